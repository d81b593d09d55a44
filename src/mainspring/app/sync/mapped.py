"""A coroutine whose result is passed through a function.

An `async def` around the coroutine would leave it unawaited if the wrapper is cancelled before it began.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

T = TypeVar("T")
R = TypeVar("R")


class Mapped(Coroutine[Any, Any, R], Generic[T, R]):
    """The coroutine `work`, with `then(result)` as its result."""

    __slots__ = ("__weakref__", "_then", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], then: Callable[[T], R]) -> None:
        self._work = work
        self._then = then

    def __repr__(self) -> str:
        return repr(self._work)

    @property
    def cr_await(self) -> Coroutine[Any, Any, T]:
        """The inner coroutine, for tools that show where a task waits."""
        return self._work

    def __await__(self) -> Generator[Any, Any, R]:
        return cast("Generator[Any, Any, R]", self)  # `await` only needs an iterator with send and throw

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any, /) -> Any:
        try:
            return self._work.send(value)
        except StopIteration as done:
            raise StopIteration(self._then(done.value)) from None

    def throw(self, *error: Any) -> Any:
        try:
            return self._work.throw(*error)
        except StopIteration as done:
            raise StopIteration(self._then(done.value)) from None

    def close(self) -> None:
        self._work.close()
