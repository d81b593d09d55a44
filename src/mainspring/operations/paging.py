"""Lists that are longer than one page."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

from mainspring.store.schedules import ScheduleFilter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mainspring.model.schedules import Schedule
    from mainspring.store.verbs.schedules import Schedules

T = TypeVar("T")
AT_ONCE = 1_000
"""How many schedules are read at once."""


def schedules_of(store: Schedules, app: str) -> Iterator[Schedule]:
    """Yield all schedules of an app by id. They may be changed during the iteration."""
    after: str | None = None
    while page := store.page(ScheduleFilter(app=app, after=after, limit=AT_ONCE)):
        yield from page
        after = page[-1].id


class Page(Generic[T]):
    """Base of pages, which behave like the list that they hold: iterate, count and index."""

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
