"""The user's app on an in-memory database and a virtual clock."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from typing import TYPE_CHECKING, Any, Self

from mainspring.app.app import App
from mainspring.app.client_api import runtime_of
from mainspring.app.events import Listeners
from mainspring.app.functions.functions import AsyncFn, SyncFn
from mainspring.errors import Endless, InvalidInput
from mainspring.model.ids import IdMaker
from mainspring.model.runs import Run
from mainspring.operations.runs.info import Runs
from mainspring.store.changes import EVERYTHING
from mainspring.testing.clock import VirtualClock

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from datetime import datetime, timedelta

    from mainspring.app.runtime import Connection
    from mainspring.store.changes import Signal
    from mainspring.store.verbs.unreported_ends import UnreportedEnd


class Fake:
    """A replacement for a step that records its calls: `Fake(result)`, or `Fake(raises=error)`.

    `arguments` has the positional and keyword arguments of each call: `(("ada",), {"urgent": True})`.
    """

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
        """Wall-clock time of the virtual clock."""
        return self.clock.time

    async def advance(self, by: timedelta | float | str) -> None:
        """Advance wall-clock time by a duration such as `"2h"`. Everything that becomes due on the way is done when this returns."""
        self._look()
        await self.clock.advance(by)

    async def advance_to(self, when: datetime | str) -> None:
        """Advance wall-clock time to a moment such as `"2026-01-31T09:00Z"`. Everything that becomes due on the way is done when this returns."""
        self._look()
        await self.clock.advance_to(when)

    async def drain(self) -> None:
        """Wait until everything that is due now is done. Raises `Endless` if runs start each other for ever."""
        self._look()
        await self.clock.drain()

    def _look(self) -> None:
        """Notify the worker of commits of other connections. It polls for them in real time, which does not pass here."""
        runtime = runtime_of(self.app)
        if runtime.is_connected:
            runtime.connection().notify(EVERYTHING)

    def replace(self, function: AsyncFn[..., Any] | SyncFn[..., Any], fake: Callable[..., Any]) -> Replacement:
        """Call `fake` instead of a step or workflow while the returned context is entered (`with` or `async with`)."""
        return Replacement(function, fake)


@contextlib.asynccontextmanager
async def world(
    app: App, *, at: datetime | str = "2026-01-01T00:00:00Z", url: str = "sqlite://"
) -> AsyncGenerator[World]:
    """Enter `app` as a worker at virtual time `at`, on an empty in-memory database or the one at `url`. Yields a `World`.

        async with testing.world(app, at="2026-01-01T00:00Z") as w, w.replace(send_mail, Fake()):
            handle = await trial.start("ada")
            await w.advance("21d")
            assert await handle.result() == "over"

    Waiting for a result also advances the clock, from one due time to the next. Raises `Endless` if the wait could never end.
    """
    if not isinstance(app, App):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"world takes an App, not {app!r}; write testing.world(app)")
    if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(
            f"world: url is that of a database, such as the default 'sqlite://', which is in memory, not {url!r}"
        )
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


LONGEST = 1_000


class Chains(Listeners):
    """Wraps the listeners of an app, and counts the length of the chains of runs that start at one virtual time."""

    follows_runs = True

    def __init__(self, listeners: Listeners, clock: VirtualClock) -> None:
        super().__init__()
        self._listeners = listeners
        self.operations, self.around = listeners.operations, listeners.around
        self.changes = listeners.changes
        self._clock = clock
        self._moment = 0
        self._lengths: dict[str, int] = {}

    def add(self, name: str, fn: Callable[[Any], Any]) -> None:
        self._listeners.add(name, fn)

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def _interested(self, name: str) -> list[Callable[[Any], Any]]:
        return self._listeners._interested(name)  # noqa: SLF001

    def emit(self, name: str, run: Run | UnreportedEnd, reason: str | None, at: int) -> None:
        if name == "run.started" and isinstance(run, Run):
            self._count(run, at)
        self._listeners.emit(name, run, reason, at)

    def _count(self, run: Run, now: int) -> None:
        if now != self._moment:
            self._moment = now
            self._lengths.clear()
        before = run.scheduled_by or run.parent
        length = self._lengths[run.id] = self._lengths.get(before, 0) + 1 if before is not None else 1
        if length == LONGEST:
            self._clock.give_up(
                Endless(
                    f"{LONGEST:,} runs have started each other, one after the other, while it was {self._clock.time.isoformat()}, the "
                    f"last one of {run.workflow!r}: this has no end. Give them a delay, or an end"
                )
            )


class Standstill:
    """Raises `Endless` in the calls of a test that wait for a run, once nothing can end the run any more."""

    def __init__(self, connection: Connection, clock: VirtualClock) -> None:
        self._connection = connection
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        connection.on_signal(self._committed)
        clock.on_standstill = self._begin

    def _committed(self, _: Signal) -> None:
        self._clock.progress()

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._end_waits())

    async def _end_waits(self) -> None:
        watched = self._connection.endings.watched
        if watched:
            words = await asyncio.to_thread(self._describe, watched[0])
            self._connection.endings.fail(
                Endless(
                    f"{words}; nothing is due and nothing is in progress, so the wait has no end. Send or answer it in another task of "
                    "the test, or give the wait a timeout"
                )
            )

    def _describe(self, run_id: str) -> str:
        runs = Runs(self._connection.store, self._clock)
        waits = [f"{step.kind} {step.name!r}" for step in runs.steps(run_id) if step.completed is None]
        state = runs.get(run_id)
        what = f" for {', '.join(waits)}" if waits else f" ({state.state})"
        return f"this test waits for run {run_id!r} of {state.workflow!r}, which waits{what}"

    async def aclose(self) -> None:
        self._clock.on_standstill = None
        self._connection.off_signal(self._committed)
        if self._task is not None:
            await asyncio.wait({self._task})
