"""What a run, and each part of an engine, asks of the engine that it belongs to.

The engine knows runs and parts; they know only this, so that imports go one way. Where a run is meant, it is `Any` here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
    from concurrent.futures import ThreadPoolExecutor
    from threading import Lock

    from mainspring.engine.registry import Function, Registry
    from mainspring.engine.replay.signals import Halt
    from mainspring.engine.residency.timers import Timers
    from mainspring.engine.settings import EngineSettings
    from mainspring.model.clock import Clock
    from mainspring.model.runs import NewRun, Run, Step
    from mainspring.store.committer.committer import Committer
    from mainspring.store.messages import Awaited
    from mainspring.store.protocol import Store
    from mainspring.store.writes import Op, Recorded


class HaltsRuns(Protocol):
    """Taking runs from their code."""

    def halt(self, ex: Any, signal: Halt, /) -> None: ...
    def hand_back_if_idle(self, ex: Any, /) -> None: ...
    def out_of_time(self, ex: Any, /) -> None: ...


class ParksRuns(Protocol):
    """Runs that wait, in memory or stored."""

    @property
    def waiting(self) -> int: ...
    def count(self, change: int, /) -> None: ...
    def begin_wait(self, ex: Any, /) -> None: ...
    def end_wait(self, ex: Any, /) -> None: ...
    def reconsider(self, ex: Any, /) -> None: ...
    def after_rounds(self, rounds: int, then: Callable[[], None], /) -> None: ...
    def free_a_thread(self) -> None: ...


class HasSlots(Protocol):
    """Slots for runs in this worker."""

    def threads(self) -> int: ...
    def reserve(self, function: Function, /, *, in_run: bool) -> bool: ...
    def unreserve(self, function: Function, /) -> None: ...


class StartsRuns(Protocol):
    """Runs that begin in the worker that stores them."""

    def reserve_each(self, runs: Iterable[NewRun], /, *, in_run: bool = False) -> bool: ...
    def begin_if_stored(self, runs: Iterable[NewRun], answers: Iterable[Any], /) -> None: ...
    def follow_write(self, runs: Sequence[NewRun], answer: asyncio.Future[Any], /) -> asyncio.Future[Any]: ...


class WatchesWaits(Protocol):
    """What runs wait for."""

    def watch(self, wait: Any, /) -> None: ...
    def unwatch(self, wait: Any, /) -> None: ...
    def arrived(self, published: Iterable[Awaited], /) -> None: ...


class FormsBatches(Protocol):
    """Calls of batch functions."""

    def join(self, call: Any, /) -> asyncio.Future[Any]: ...


class PipelinedCommit(Protocol):
    """The commit of an outcome that the code has had already."""

    error: Exception | None
    kept: bool

    @property
    def refused(self) -> bool: ...
    def done(self) -> bool: ...
    def arrival(self) -> asyncio.Future[Recorded]: ...
    def commit_with(self, op: Op) -> asyncio.Future[Any]: ...
    def commit_alone(self) -> asyncio.Future[Recorded]: ...
    def commit_sync(self, *ops: Op) -> Any: ...


class Host(Protocol):
    """An engine."""

    store: Store
    committer: Committer
    clock: Clock
    registry: Registry
    settings: EngineSettings
    worker_id: str
    version: str
    home: object
    loop: asyncio.AbstractEventLoop
    timers: Timers
    moving: Lock
    accepting: bool
    draining: bool
    drained_at: float | None
    patience: float
    step_pool: ThreadPoolExecutor
    receiver: Callable[[Function, Any], Any]
    methods: Callable[[], Mapping[str, Sequence[str]]]
    on_room: Callable[[], None]
    on_notice: Callable[[], None]
    operations: list[Callable[[Run, Step], None]]
    around: Callable[[Run, str], Callable[[], None]] | None

    @property
    def executions(self) -> Mapping[str, Any]: ...
    @property
    def halting(self) -> HaltsRuns: ...
    @property
    def residency(self) -> ParksRuns: ...
    @property
    def slots(self) -> HasSlots: ...
    @property
    def local_starts(self) -> StartsRuns: ...
    @property
    def waits(self) -> WatchesWaits: ...
    @property
    def batches(self) -> FormsBatches: ...
    @property
    def on_loop(self) -> bool: ...

    def begin(self, new: NewRun, schedule: str | None, tick: str | None) -> None: ...
    def launch(self, ex: Any, /) -> None: ...
    def changed(self, ex: Any, name: str, reason: str | None = None, /) -> None: ...
    def here(self, work: Callable[..., None], *args: Any) -> None: ...
    def on_loop_thread(self, thread: int) -> bool: ...
    def spawn(self, work: Coroutine[Any, Any, None]) -> None: ...
    def check_size(self, text: str, value: object, what: str) -> str: ...
    async def consult(self, ex: Any, question: Callable[[], Any], /) -> Any: ...
    async def in_thread(self, work: Callable[..., Any], *args: Any) -> Any: ...
