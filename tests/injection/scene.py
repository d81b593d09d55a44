"""What a shape is written with: its app in one life, a ledger of effects that outlives lives, and a caller that drives it.

A shape is a function of a `Scene`. It registers workflows and steps with `scene.app` and returns how they are driven. It is called once for
each life, so every life has an app of its own, as every process would.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from mainspring import run
from mainspring.errors import MainspringError, NotFound, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from mainspring import App
    from mainspring.model.runs import Run, Step
    from tests.injection.record import Record
    from tests.injection.seams import LifeOf

EFFECT_SECONDS = 0.05
"""How long a step of a shape takes, unless it says otherwise. Virtual, so it costs nothing."""
_AGAIN_SECONDS = 0.1
Trace: TypeAlias = "list[tuple[int, Any, float]]"
"""What the code of a run got to see: the number of the operation, the value, and what `run.now` says."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One effect: a step's function was entered (`begin`), came to its end, or was cut off in the middle."""

    life: int
    run: str
    label: str
    what: str
    at: float
    zombie: bool
    """Its worker had been declared dead, and may not have known."""
    recorded: bool
    """The database had an outcome of this very effect when it began: it should not have."""


@dataclass
class Ledger:
    """All effects of a case, in order. The database has no part in it."""

    entries: list[Entry] = field(default_factory=list[Entry])
    facts: set[str] = field(default_factory=set[str])
    """What has changed in the world outside, for good."""
    notes: list[str] = field(default_factory=list[str])
    """What shapes found wrong by themselves."""
    traces: dict[str, list[Trace]] = field(default_factory=dict[str, "list[Trace]"])
    """What the code of a run got to see, in order: one list for each time that it was executed."""
    scopes: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """By run and label: where `run.undo` blocks are in the record."""

    def count(self, what: str) -> Counter[tuple[str, str]]:
        return Counter((entry.run, entry.label) for entry in self.entries if entry.what == what)


class Scene:
    """One life of a shape."""

    def __init__(self, life: LifeOf, ledger: Ledger, database: str, elsewhere: str, now: Callable[[], float]) -> None:
        self.life = life
        self.app: App = life.app
        self.ledger = ledger
        self.database = database
        """sqlite, memory or postgres."""
        self.elsewhere = elsewhere
        """The URL of another database."""
        self._now = now

    # -- effects -------------------------------------------------------------------------------------------------------
    async def effect(self, label: str, seconds: float = EFFECT_SECONDS) -> str:
        """Something that an `async def` step does to the world outside."""
        where = self._begin(label)
        try:
            await asyncio.sleep(seconds)
        except BaseException:
            self._note(where, label, "cut")
            raise
        self._note(where, label, "end")
        return label

    def effect_blocking(self, label: str, seconds: float = EFFECT_SECONDS) -> str:
        """The same for a `def` step."""
        where = self._begin(label)
        time.sleep(seconds)
        self._note(where, label, "end")
        return label

    def mark(self, label: str) -> str:
        """An effect of no length."""
        where = self._begin(label)
        self._note(where, label, "end")
        return label

    def mark_at(self, where: str, label: str) -> str:
        """The same for one input of a batch, which has no run of its own."""
        self._note(where, label, "begin", looks=True)
        self._note(where, label, "end")
        return label

    async def effects(self, places: list[tuple[str, str]], seconds: float = EFFECT_SECONDS) -> list[str]:
        """What a batch does to the world outside: for each input the run that it is of, and the label."""
        for where, label in places:
            self._note(where, label, "begin", looks=True)
        try:
            await asyncio.sleep(seconds)
        except BaseException:
            for where, label in places:
                self._note(where, label, "cut")
            raise
        for where, label in places:
            self._note(where, label, "end")
        return [label for _, label in places]

    def left_well(self) -> None:
        """The workflow has left its `run.undo` block without an exception: nothing is owed any more."""
        self._note(run.id, "undo", "well")

    def new_trace(self, of: str) -> Trace:
        """A list for what the code sees in an execution that begins now."""
        made: Trace = []
        if not self.life.dead:
            self.ledger.traces.setdefault(of, []).append(made)
        return made

    def _begin(self, label: str) -> str:
        where = run.id
        self._note(where, label, "begin", looks=True)
        return where

    def _note(self, where: str, label: str, what: str, *, looks: bool = False) -> None:
        life = self.life
        if life.dead:
            return  # a process that is gone does nothing
        zombie, recorded = False, False
        if looks:
            row = life.inner.run(where)
            zombie = row is None or row.owner is None or row.owner != life.worker
            recorded = any(
                step.completed is not None and step.output is not None and f'"{label}"' in step.output
                for step in life.inner.steps(where)
            )
        self.ledger.entries.append(Entry(life.number, where, label, what, self._now(), zombie, recorded))


class Expected(Exception):
    """What a shape raises on purpose."""


class Ended(BaseException):
    """There is nothing more for the caller to do in this life."""


@dataclass
class Caller:
    """Drives a shape from outside, as a program does: each thing until it is acknowledged, then the next, also across lives.

    What it does is safe to repeat: starts have ids, messages have keys.
    """

    scene: Scene
    done: list[str]
    """What was acknowledged, in any life."""
    results: dict[str, Any]
    dropped: list[str]
    """What was called off in the middle, so that nobody knows whether it happened."""
    under_way: str | None = None
    deleted: set[str] = field(default_factory=set[str])
    """Runs that an operator has deleted."""

    @property
    def app(self) -> App:
        return self.scene.app

    async def do(
        self, name: str, work: Callable[[], Awaitable[Any]], *, missing: bool = False, failing: bool = False
    ) -> Any:
        """Do something once. `missing`: that what it concerns is not there (any more) is fine, too; `failing`: any error is."""
        if name in self.done or name in self.dropped:
            return None
        self.under_way = name
        try:
            answer = await self._until_acknowledged(work)
        except MainspringError:
            if not missing and not self.dropped and not failing:
                raise
            answer = None
        except Exception:
            if not failing:
                raise
            answer = None
        finally:
            self.under_way = None
        self.done.append(name)
        return answer

    async def _until_acknowledged(self, work: Callable[[], Awaitable[Any]]) -> Any:
        while True:
            try:
                return await work()
            except StoreError:
                if self.scene.life.dead:
                    raise Ended from None
                await asyncio.sleep(_AGAIN_SECONDS)

    async def start(self, function: Any, run_id: str, *args: Any, **options: Any) -> None:
        """Start a run."""
        await self.do(f"start {run_id}", lambda: function.options(id=run_id, **options).start(*args))

    async def send(self, run_id: str, topic: str, value: Any) -> None:
        """Send a message, whether or not there is still somebody to receive it."""
        name = f"send {topic} {value}"
        await self.do(name, lambda: self.app.send(run_id, topic, value, key=name), missing=True)

    async def send_again(self, run_id: str, topic: str, value: Any) -> None:
        """Send what was sent before, as a caller does that is not sure whether it was arrived."""
        key = f"send {topic} {value}"
        await self.do(f"again {key}", lambda: self.app.send(run_id, topic, value, key=key), missing=True)

    async def results_of(self, *run_ids: str, promised: bool = False) -> None:
        """Wait for runs to end, all at once, and keep what they ended with. `promised`: by a schedule, which may have been held up."""
        await asyncio.gather(*(self._result(run_id, promised=promised) for run_id in run_ids))

    async def _result(self, run_id: str, *, promised: bool) -> None:
        name = f"result {run_id}"
        while name not in self.done and not (self.dropped and name in self.dropped):
            try:
                self.results[run_id] = await self.app.handle(run_id).result()
            except (StoreError, NotFound) as error:
                if self.scene.life.dead:
                    raise Ended from None
                if isinstance(error, StoreError) or (promised and run_id not in self.deleted):
                    await asyncio.sleep(_AGAIN_SECONDS)
                    continue
                self.results[run_id] = error
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001  (how it ended is the auditor's to judge)
                self.results[run_id] = error
            self.done.append(name)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


Drive: TypeAlias = "Callable[[Caller], Awaitable[None]]"


@dataclass(frozen=True)
class Shape:
    """A workload, and what must come of it."""

    name: str
    build: Callable[[Scene], Drive]
    expected: dict[str, Any]
    """Results of its runs by id. An exception is written as its type's name."""
    main: tuple[str, ...]
    """Runs that an injection cancels or terminates."""
    once: frozenset[str] = frozenset()
    """Effects that are never begun twice, whatever happens."""
    undoes: dict[str, str] = field(default_factory=dict[str, str])
    """Effects that are owed when another one was recorded and the run was cancelled."""
    tries: dict[str, int] = field(default_factory=dict[str, int])
    """Effects that an undisturbed run begins more often than once."""
    interrupted: frozenset[str] = frozenset()
    """Runs that may fail as interrupted when their process dies."""
    optional: frozenset[str] = frozenset()
    """Effects that may be missing, and runs that may never have been started, when something else was faster."""
    needs: frozenset[str] = frozenset()
    """What its caller does so that runs are started, beside starting them: if that was called off, they may be missing."""
    revived: frozenset[str] = frozenset()
    """Runs that its caller lets go on when they have failed."""
    databases: tuple[str, ...] = ("sqlite", "memory", "postgres")
    check: Callable[[dict[str, Any]], bool] | None = None
    """Whether a result will do, where it depends on who was first."""
    judge: Callable[[Record, dict[str, Run], dict[str, list[Step]]], Iterator[str]] | None = None
    """What else is wrong, one line each, given the runs and steps at the end."""
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    while_leaving: bool = False
    """Somebody begins to wait for the first run while the app is being left."""
    at_once: bool = False
    """It is driven from the moment on when the app is entered, while the worker makes its first claim."""


SHAPES: dict[str, Shape] = {}


def shape(expected: dict[str, Any], **facts: Any) -> Callable[[Callable[[Scene], Drive]], Callable[[Scene], Drive]]:
    """Register a shape under the name of its function."""

    def register(build: Callable[[Scene], Drive]) -> Callable[[Scene], Drive]:
        main = facts.pop("main", tuple(expected)[:1])
        for name in ("once", "interrupted", "optional", "needs", "revived"):
            if name in facts:
                facts[name] = frozenset(facts[name])
        SHAPES[build.__name__] = Shape(build.__name__, build, expected, main, **facts)
        return build

    return register
