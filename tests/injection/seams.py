"""Everything by which the harness touches the inside of the library. If the library changes there, this is the file to change.

- `Clock`: both clocks of an app, on the virtual time of the threads.
- `WatchedStore`: a store, every call of which is a point. `Parts` puts it into an app.
- `verbs`: what a store can do, found by reflection over its protocol.
- `LifeOf`: an app as a process: entered, left, killed, or declared dead.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
from typing import TYPE_CHECKING, Any, cast

from mainspring import App, Settings
from mainspring.app.runtime import Parts
from mainspring.engine.engine import Engine
from mainspring.engine.operations.undo import left_position
from mainspring.engine.replay.context import here
from mainspring.model.clock import SECOND
from mainspring.model.ids import IdMaker
from mainspring.model.runs import RunFilter
from mainspring.store import protocol
from mainspring.store.changes import Signal
from mainspring.store.open import open_store as open_store  # noqa: PLC0414  (for databases of the harness)
from mainspring.store.protocol import Store
from mainspring.store.sqlite.store import SqliteStore
from tests.injection.threads import patched

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.app.undo import Undo
    from mainspring.model.runs import Run, Step
    from tests.injection.threads import Turns

Engine.patience = 0.02
_EPOCH = 1_767_225_600 * SECOND  # 2026-01-01
_SIGNALS = ("Lost", "HandedBack", "Parked", "Halt", "Stopped", "Continued", "Abandoned")
"""Names of exceptions that the engine uses for itself: none of them may be a reason that users see."""


def lazy_thread(name: str) -> bool:
    """Whether a thread looks for other processes' work again and again, so that time need not stop for it."""
    return name == "mainspring-watcher"


def expecting_thread(name: str) -> bool:
    """Whether a thread that waits briefly for a descriptor waits for what a server is about to send."""
    return name == "mainspring-listener"


# -- time --------------------------------------------------------------------------------------------------------------
class Clock:
    """Wall-clock and monotonic time are the same virtual time."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def now(self) -> int:
        return _EPOCH + round(self._turns.now * SECOND)

    def monotonic(self) -> float:
        return self._turns.now

    def call_at(
        self, when: int, loop: asyncio.AbstractEventLoop, ring: Callable[[], None], *, background: bool = False
    ) -> asyncio.TimerHandle:
        del background
        return loop.call_at(max((when - _EPOCH) / SECOND, self._turns.now), ring)

    doubtful = False

    def confirm(self) -> None:
        pass

    def busy(self) -> None:
        pass

    def idle(self) -> None:
        pass

    def waiting(self, change: int) -> None:
        pass


# -- the store ---------------------------------------------------------------------------------------------------------
def _imported() -> dict[str, Any]:
    """What the module of the protocol imports for its annotations, by name."""
    found: dict[str, Any] = {}
    for node in ast.walk(ast.parse(inspect.getsource(protocol))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            module = importlib.import_module(node.module)
            found.update({name.name: getattr(module, name.name) for name in node.names})
    return found


def _public(kind: type) -> set[str]:
    """The methods of a class, also those that it inherits."""
    kinds = [each for each in kind.__mro__ if each.__module__.startswith("mainspring.")]
    return {
        name
        for each in kinds
        for name, value in vars(each).items()
        if not name.startswith("_") and inspect.isfunction(value)
    }


def nouns() -> dict[str, type]:
    """The parts of a store that have verbs of their own: attributes and properties of the protocol whose type is a class of the library."""
    names = vars(protocol) | _imported()
    kinds: dict[str, Any] = dict(Store.__annotations__)
    for name, value in vars(Store).items():
        if isinstance(value, property) and value.fget is not None:
            kinds[name] = value.fget.__annotations__["return"]
    return {name: names[str(kind)] for name, kind in kinds.items() if str(kind) in names}


def verbs() -> set[str]:
    """Every verb of a store: `claim`, `messages.next`, …"""
    parts = {f"{noun}.{verb}" for noun, kind in nouns().items() for verb in _public(kind)}
    return {*_public(Store), *parts}


UNTOUCHED = {
    "announce": "spares workers on PostgreSQL a look; nothing depends on it",
    "blockers": "read by the command line, and by a worker that waits for the database",
    "clock_offset": "asked once, by an app on the clock of the system",
    "close": "there is nothing left to go wrong",
    "declared_functions.list": "read by the dashboard and the command line; a worker looks before it writes",
    "functions.get": "read by the dashboard and the command line",
    "inspect": "read by the command line",
    "list_instances": "written when an instance is named while a worker runs; every heartbeat looks whether it has to be",
    "list_crontab": "written when a crontab file changes while a worker runs",
    "management.empty": "refused while a worker lives, and a case has one",
    "versions.set_newest": "as a deploy does, it changes which declarations hold",
    "messages.received": "read by the dashboard and the command line",
    "messages.streams": "read by the dashboard and the command line",
    "retention.begin_sweep": "once a day, for values that a codec keeps elsewhere; no run depends on it",
    "retention.texts_with": "read by that sweep",
    "retention.expired": "read by the command line",
    "schedules.listed": "read by the dashboard and the command line",
    "schema_report": "read by the command line",
    "server_state": "read for metrics and by the command line",
    "size": "read by the command line",
    "transactions.use": "set before the first transaction",
    "dashboard": "figures, on which no run depends",
    "audit": "notes of what operators did, on which no run depends",
}
"""Verbs, and nouns with all their verbs, that no case has to call, and why."""


class WatchedStore:
    """A store that tells of every call, before and after it."""

    def __init__(self, store: Any, call: Callable[[str, Callable[[], Any]], Any], acall: Any, part: str = "") -> None:
        self._store = store
        self._call = call
        self._acall = acall
        self._part = part
        self._parts: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not self._part and name in _NOUNS:
            if name not in self._parts:
                self._parts[name] = WatchedStore(found, self._call, self._acall, f"{name}.")
            return self._parts[name]
        verb = f"{self._part}{name}"
        if verb not in _VERBS:
            return found
        if inspect.iscoroutinefunction(found):

            async def acall(*args: Any, **kwargs: Any) -> Any:
                return await self._acall(verb, lambda: found(*args, **kwargs))

            return acall

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(verb, lambda: found(*args, **kwargs))

        return call


_NOUNS = frozenset(nouns())
_VERBS = frozenset(verbs())


class _CrashingParts(Parts):
    """Gives an app the store that the harness watches."""

    def __init__(self, life: LifeOf) -> None:
        self._life = life

    def store(self, url: str, settings: Settings) -> Any:
        life = self._life
        inner = life.database.store or open_store(url, settings)
        life.inner = cast("Store", inner)
        return _Process(inner, life, own=life.database.store is None)

    def loop_watch(self, loop: Any, thread: int) -> Any:
        """No thread that looks at real time."""
        del loop, thread
        return lambda: None


class _Process(WatchedStore):
    """The store of one process: what it awaits ends with the process."""

    def __init__(self, store: Any, life: LifeOf, *, own: bool) -> None:
        super().__init__(store, life.call, life.acall)
        self._life = life
        self._own = own

    def open(self, **options: Any) -> None:
        if self._own:
            self._call("open", lambda: self._store.open(**options))
        self._life.connected = True

    def close(self) -> None:
        self._life.connected = False
        if self._own:
            self._store.close()

    def listen(self, notify: Callable[[Signal], None]) -> None:
        def unless_dead(signal: Signal) -> None:
            if not self._life.dead:
                notify(signal)

        self._life.notify = unless_dead
        if self._own:
            self._call("listen", lambda: self._store.listen(unless_dead))
        else:
            self._life.database.notify(self._life, unless_dead)


class SharedMemory:
    """A temporary SQLite database that several lives use: it would vanish with the first that closes it."""

    def __init__(self) -> None:
        self.url = "sqlite://"
        with patched():  # it is older than the turns of the case, and its locks are used by the threads that take them
            self.store = SqliteStore("", url="sqlite://", synchronous="OFF")
            self.store.open()
        self._awaiting: dict[Any, Callable[[Signal], None]] = {}
        self.store.notify_only_self(self._broadcast)

    def notify(self, life: Any, notify: Callable[[Signal], None]) -> None:
        self._awaiting[life] = notify

    def _broadcast(self, signal: Signal) -> None:
        for notify in list(self._awaiting.values()):
            notify(signal)

    def close(self) -> None:
        self.store.close()


# -- a process ---------------------------------------------------------------------------------------------------------
class LifeOf:
    """An app on a database, as a process that can be killed. `calls` makes every call of its store."""

    def __init__(self, database: Any, turns: Turns, number: int, settings: Settings, calls: Any) -> None:
        self.database = database
        self.number = number
        self.dead = False
        """Killed: nothing that it still does counts."""
        self.app = App(database.url, settings=settings, version="1")
        runtime = self.app._runtime
        runtime.clock = cast("Any", Clock(turns))
        runtime.ids = IdMaker(runtime.clock, seed=number)
        runtime.parts = _CrashingParts(self)
        self._calls = calls
        self.inner: Store = cast("Store", None)
        """The store itself, which no injection concerns. To be used while `connected`."""
        self.connected = False
        self.notify: Callable[[Signal], None] = lambda _: None
        self._workers: list[str] = []

    def call(self, verb: str, work: Callable[[], Any]) -> Any:
        """Make a call of its store."""
        return self._calls.call(self, verb, work)

    async def acall(self, verb: str, work: Callable[[], Any]) -> Any:
        """The same for one that is awaited."""
        return await self._calls.acall(self, verb, work)

    @property
    def worker(self) -> str:
        """The id under which it works now, or did last."""
        engine = self.app._runtime.engine
        if engine is not None and (not self._workers or self._workers[-1] != engine.worker_id):
            self._workers.append(engine.worker_id)
        return self._workers[-1] if self._workers else ""

    def now(self) -> int:
        return self.app._runtime.clock.now()

    def declare_dead(self) -> None:
        """What another worker does that has not seen this one live for a lease."""
        worker = self.worker
        if worker:
            self.inner.retire(worker, self.now(), 100)

    async def vanish(self) -> None:
        """Clear away a process that is dead."""
        await self.app._vanish()
        await asyncio.to_thread(self.app._runtime.disconnect)


def lost_signal(life: LifeOf) -> None:
    """What a store tells of when an answer was lost."""
    life.notify(Signal(ready=True, ended=None, notified=None, due=True, published=None, lost=True))


def is_unwinding() -> bool:
    """Whether the code that executes is on its way out: what it sees from now on does not count."""
    ex = here().execution
    return not ex.in_code or ex.unwound or ex.disagreement is not None


def scope_of(undo: Undo) -> str:
    """The position of a `run.undo` block."""
    return undo._position  # pyright: ignore[reportPrivateUsage]


def is_left_well(steps: list[Step], scope: str) -> bool:
    """Whether a `run.undo` block was left in good order."""
    left = left_position(scope)
    return any(step.position == left and step.seq is not None for step in steps)


def all_runs(store: Store) -> list[Run]:
    return store.runs(RunFilter(limit=1_000))


def is_inner_signal(reason: str | None) -> bool:
    return reason is not None and reason.split(":")[0].split("(")[0] in _SIGNALS


def describe(run: Run, steps: list[Step], now: int) -> str:
    """A run that has not ended, and what it waits for."""
    due = "never" if run.due is None else f"in {(run.due - now) / SECOND:g} s"
    waits = [
        f"{step.kind} {step.name} due {'never' if step.due is None else f'{(step.due - now) / SECOND:g} s'}"
        for step in steps
        if step.completed is None
    ]
    return f"{run.state}, owner {'none' if run.owner is None else 'a worker'}, due {due}, open: {waits}"
