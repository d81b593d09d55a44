"""Lists that may be longer than one answer."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

T = TypeVar("T")


class Page(Generic[T]):
    """What all pages are: something to go through, count and look into, like the list that they hold."""

    __slots__ = ()

    @property
    @abstractmethod
    def _items(self) -> Sequence[T]: ...

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, number: int) -> T:
        return self._items[number]
