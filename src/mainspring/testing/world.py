"""The user's app on an in-memory database and a virtual clock."""

from __future__ import annotations

import contextlib
import inspect
from typing import TYPE_CHECKING, Any, Self

from mainspring.app.client_api import runtime_of
from mainspring.app.functions.functions import AsyncFn, SyncFn
from mainspring.errors import InvalidInput
from mainspring.model.ids import IdMaker
from mainspring.testing.chains import Chains
from mainspring.testing.clock import VirtualClock
from mainspring.testing.standstill import Standstill

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from datetime import datetime, timedelta

    from mainspring.app.app import App


class Fake:
    """A replacement for a step that records its calls: `Fake(result)`, or `Fake(raises=error)`. `arguments` has those of each call."""

    def __init__(self, result: Any = None, *, raises: BaseException | None = None) -> None:
        self._result = result
        self._raises = raises
        self.arguments: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    @property
    def calls(self) -> int:
        """How often the fake was called."""
        return len(self.arguments)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.arguments.append((args, kwargs))
        if self._raises is not None:
            raise self._raises
        return self._result


class Replacement:
    """Replaces a function while the context is entered. Raises `InvalidInput` for an object that is not a function of the app."""

    def __init__(self, function: AsyncFn[..., Any] | SyncFn[..., Any], fake: Callable[..., Any]) -> None:
        if not isinstance(function, (AsyncFn, SyncFn)):
            raise InvalidInput(f"replace takes a workflow or step of the app, not {function!r}")
        self._function = function._function  # noqa: SLF001  (part of the library)
        self._fake = _as_coroutine(fake) if self._function.is_async and not inspect.iscoroutinefunction(fake) else fake
        self._real = self._function.fn

    def __enter__(self) -> Self:
        self._function.fn = self._fake
        return self

    def __exit__(self, *exc: object) -> None:
        self._function.fn = self._real

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *exc: object) -> None:
        self.__exit__(*exc)


class World:
    """The app under test and its clock."""

    def __init__(self, app: App, clock: VirtualClock) -> None:
        self.app = app
        self.clock = clock

    @property
    def now(self) -> datetime:
        """Civil time of the virtual clock."""
        return self.clock.time

    async def advance(self, by: timedelta | float | str) -> None:
        """Advance civil time by a duration such as `"2h"`. Everything that becomes due on the way is done when this returns."""
        await self.clock.advance(by)

    async def advance_to(self, when: datetime) -> None:
        """Advance civil time to a moment. Everything that becomes due on the way is done when this returns."""
        await self.clock.advance_to(when)

    async def drain(self) -> None:
        """Wait until everything that is due now is done. Raises `Endless` if runs start each other for ever."""
        await self.clock.drain()

    def replace(self, function: AsyncFn[..., Any] | SyncFn[..., Any], fake: Callable[..., Any]) -> Replacement:
        """Call `fake` instead of a step or workflow while the returned context is entered (`with` or `async with`)."""
        return Replacement(function, fake)


@contextlib.asynccontextmanager
async def world(
    app: App, *, at: datetime | str = "2026-01-01T00:00:00Z", url: str = "sqlite://"
) -> AsyncGenerator[World]:
    """Enter `app` as a worker at virtual time `at`, on an empty in-memory database or the one at `url`. Yields a `World`."""
    clock = VirtualClock(at)
    runtime = runtime_of(app)
    before = runtime.given_url, runtime.clock, runtime.ids, runtime.listeners
    runtime.url, runtime.clock, runtime.ids = url, clock, IdMaker(clock)
    runtime.listeners = Chains(runtime.listeners, clock)
    try:
        async with clock.running(), app:
            standstill = Standstill(runtime.connection(), clock)
            async with contextlib.aclosing(standstill):
                yield World(app, clock)
    finally:
        runtime.given_url, runtime.clock, runtime.ids, runtime.listeners = before


def _as_coroutine(fake: Callable[..., Any]) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        result = fake(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    return call
