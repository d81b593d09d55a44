"""Resources that steps share, opened once per worker: HTTP clients, pools, models."""

from __future__ import annotations

import contextlib
import inspect
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mainspring.errors import InvalidInput, NotStarted

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator

T = TypeVar("T")
_CLOSED: Any = object()


class Resource(Generic[T]):
    """A resource. A step calls it to get its value. Opened on the worker's loop at start, closed at stop."""

    def __init__(self, open_: Callable[[], AsyncGenerator[T]] | Callable[[], Generator[T]]) -> None:
        if not (inspect.isasyncgenfunction(open_) or inspect.isgeneratorfunction(open_)):
            raise InvalidInput(f"a resource is a generator that yields once: {open_!r} is not")
        self._open = open_
        self.name = open_.__qualname__
        self._value: T = _CLOSED
        self._overrides: list[T] = []

    def __call__(self) -> T:
        if self._overrides:
            return self._overrides[-1]
        if self._value is _CLOSED:
            raise NotStarted(f"the resource {self.name!r} is open only while the app executes in this process")
        return self._value

    @contextlib.contextmanager
    def override(self, fake: T) -> Generator[T]:
        """Replace the resource's value, in tests. The real resource is not opened."""
        self._overrides.append(fake)
        try:
            yield fake
        finally:
            self._overrides.remove(fake)

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """Open the resource for a worker."""
        if self._overrides:
            yield
            return
        opened = self._open()
        manager: Any = contextlib.asynccontextmanager if inspect.isasyncgen(opened) else contextlib.contextmanager
        entered = manager(lambda: opened)()
        async with contextlib.AsyncExitStack() as stack:
            if inspect.isasyncgen(opened):
                self._value = await stack.enter_async_context(entered)
            else:
                self._value = stack.enter_context(entered)
            try:
                yield
            finally:
                self._value = _CLOSED
