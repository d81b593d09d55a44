"""Crash the process at its n-th store call, before or after the commit, and recover in a new one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from mainspring.app.client_api import runtime_of
from mainspring.app.runtime import Parts
from mainspring.errors import StoreUnavailable
from mainspring.model.ids import IdMaker
from mainspring.testing.clock import VirtualClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator
    from datetime import datetime

    from mainspring.app.app import App
    from mainspring.app.settings import Settings
    from mainspring.model.clock import Clock
    from mainspring.store.protocol import Store

T = TypeVar("T")

_VERBS = {
    "apply",
    "claim",
    "notices",
    "expire",
    "cancel",
    "terminate",
    "endings",
    "step",
    "register",
    "retire",
    "remember_version",
}


_NOUNS = {
    "transactions": {"transact"},
    "retention": {"prune"},
    "messages": {"next", "asked", "event", "events", "stream"},
    "management": {"resume", "retry", "complete", "fail", "reschedule", "fork", "delete", "load"},
}
"""Parts of a store, with the verbs at which a process can die."""


class _Dead(StoreUnavailable):
    """The process of the store call is dead."""


def _is_not_about_death(record: logging.LogRecord) -> bool:
    """Whether a log record is not about the death of a simulated process."""
    given = record.args if isinstance(record.args, tuple) else (record.args,)
    raised = record.exc_info[1] if record.exc_info else None
    return not any(isinstance(each, _Dead) for each in (*given, raised))


@contextlib.contextmanager
def _filtered_log() -> Generator[None]:
    """Filter out the log lines about the database failures that the crash causes."""
    names = ("app", "engine", "services", "store")
    loggers = [logging.getLogger(f"mainspring.{name}") for name in names]
    for each in loggers:
        each.addFilter(_is_not_about_death)
    try:
        yield
    finally:
        for each in loggers:
            each.removeFilter(_is_not_about_death)


class DoomedStore:
    """A store whose process dies at the n-th call. After that every call fails."""

    def __init__(self, store: Store, at: int | None, when: Literal["before", "after"]) -> None:
        self._store = store
        self._at = at
        self._when = when
        self._lock = threading.Lock()
        self.calls = 0
        self.died = threading.Event()
        self.time_of_death: datetime | None = None
        self.on_death: Callable[[], object] = lambda: None

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name in {"schedules", "queues"}:
            return _DoomedPart(self, found)
        if name in _NOUNS:
            return _DoomedNoun(found, _NOUNS[name], self._doomed)
        return self._doomed(found) if name in _VERBS else found

    def _doomed(self, verb: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                self._refuse()
                self.calls += 1
                last = self.calls == self._at
                if last and self._when == "before":
                    self._die()
            answer = verb(*args, **kwargs)
            if last:
                self._die()
            self._refuse()
            return answer

        return call

    def _die(self) -> None:
        self.died.set()
        self.on_death()
        raise _Dead("this process has died, as the test requested")

    def _refuse(self) -> None:
        if self.died.is_set():
            raise _Dead("this process is dead")


class _DoomedPart:
    """A part of the store, with verbs of its own, that dies with the rest."""

    def __init__(self, whole: DoomedStore, part: Any) -> None:
        self._whole = whole
        self._part = part

    def __getattr__(self, name: str) -> Any:
        return self._whole._doomed(getattr(self._part, name))  # noqa: SLF001  (the store it belongs to)


class _DoomedNoun:
    """A part of a doomed store, of which some verbs can crash."""

    def __init__(self, noun: Any, verbs: set[str], doom: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self._noun = noun
        self._verbs = verbs
        self._doom = doom

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._noun, name)
        return self._doom(found) if name in self._verbs else found


class _CrashingParts(Parts):
    """Makes the first opened store a doomed one. Later stores belong to the second process."""

    def __init__(self, stores: list[DoomedStore], at: int | None, when: Literal["before", "after"]) -> None:
        self._stores = stores
        self._at = at
        self._when: Literal["before", "after"] = when

    def store(self, url: str, settings: Settings) -> Any:
        self._stores.append(DoomedStore(super().store(url, settings), None if self._stores else self._at, self._when))
        return self._stores[-1]


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """The result of the work, and whether the process crashed. If `at` is beyond the last call, it does not crash."""

    result: T
    crashed: bool
    calls: int


async def crash(
    app: App,
    work: Callable[[], Awaitable[T]],
    *,
    at: int | None,
    when: Literal["before", "after"] = "before",
    url: str = "sqlite://",
) -> Outcome[T]:
    """Do `work` in `app` on the database at `url`, crash at the `at`-th call to the store, and repeat the work in a second process.

    `when` is whether the crash comes `"before"` or `"after"` the call. `work` starts runs with ids of its own and waits
    for them, so that its repetition finds the same runs. A loop over `at` until nothing crashes proves that no crash
    changes the result.
    """
    from mainspring.store.sqlite.database import Database  # noqa: PLC0415

    runtime = runtime_of(app)
    before = runtime.given_url, runtime.clock, runtime.ids, runtime.parts
    clock = VirtualClock()
    keep = Database("") if url == "sqlite://" else None
    runtime.url = f"sqlite:///{keep.path}" if keep is not None else url
    runtime.clock, runtime.ids = clock, IdMaker(clock)
    stores: list[DoomedStore] = []
    runtime.parts = _CrashingParts(stores, at, when)
    try:
        async with clock.running():
            with _filtered_log():
                result = await _first_process(app, work, stores)
        if result is None:
            clock = VirtualClock(stores[0].time_of_death or clock.time)
            runtime.clock, runtime.ids = clock, IdMaker(clock)
            async with clock.running():
                result = await _second_process(app, work)
    finally:
        runtime.given_url, runtime.clock, runtime.ids, runtime.parts = before
        if keep is not None:
            keep.close()
    return Outcome(result[0], stores[0].died.is_set(), stores[0].calls)


async def _first_process(app: App, work: Callable[[], Awaitable[T]], stores: list[DoomedStore]) -> tuple[T] | None:
    loop = asyncio.get_running_loop()
    died = asyncio.Event()

    async def live() -> T:
        async with app:
            return await work()

    entering = loop.create_task(live())
    watching = loop.create_task(_death(stores, died, runtime_of(app).clock))
    await asyncio.wait({entering, watching}, return_when=asyncio.FIRST_COMPLETED)
    if not died.is_set():
        watching.cancel()
        return (await entering,)
    await app._vanish()  # noqa: SLF001
    entering.cancel()
    await asyncio.wait({entering})
    if not entering.cancelled():
        entering.exception()
    await asyncio.to_thread(runtime_of(app).disconnect)
    return None


async def _death(stores: list[DoomedStore], died: asyncio.Event, clock: Clock) -> None:
    loop = asyncio.get_running_loop()

    def die() -> None:
        if isinstance(clock, VirtualClock):  # pending work of the dead process may still advance it
            stores[0].time_of_death = clock.time
        loop.call_soon_threadsafe(died.set)

    while not stores:  # noqa: ASYNC110  (another thread opens the store within milliseconds)
        await asyncio.sleep(0)
    stores[0].on_death = die
    if stores[0].died.is_set():
        died.set()
    await died.wait()


async def _second_process(app: App, work: Callable[[], Awaitable[T]]) -> tuple[T]:
    async with app:
        connection = runtime_of(app).connection()
        engine = runtime_of(app).engine
        mine = engine.worker_id if engine is not None else ""
        for worker in connection.store.workers():
            if worker.id != mine:
                connection.store.retire(worker.id, runtime_of(app).clock.now(), None)
        return (await work(),)
