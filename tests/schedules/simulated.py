"""A schedule in a few lines, for comparison: which runs start, and when, by the documented rules alone.

Times are seconds since 1970. It has no code in common with the library, except for the times of a spec and their jitter, which have tests
of their own. Where the rules leave something open (what `cancel_other` does with ticks of other policies that wait), it raises `Open`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring import Spec

_ANY = 10**9


class Open(Exception):
    """The rules do not say what happens."""


@dataclass
class Rules:
    """The policy of a schedule."""

    overlap: str
    limit: int | None = None
    max_running: int | None = None
    buffer_limit: int | None = None
    pause_on_failure: int = 0


@dataclass
class Run:
    nominal: int
    ends: float


@dataclass
class Wait:
    """A tick that waits for its turn."""

    nominal: int
    manual: bool
    overlap: str | None
    in_spec: bool


@dataclass
class Simulated:
    """One schedule: `advance` lets time pass, and the other methods are what an operator does at `now`."""

    now: float
    spec: Spec
    rules: Rules
    length: Callable[[int], float]
    """How long the run of a nominal time takes."""
    fails: Callable[[int], bool]
    name: str = "s"
    starts: list[tuple[int, bool, float]] = field(default_factory=list[tuple[int, bool, float]])
    """Nominal time, whether an operator asked for it, and when it began."""
    running: list[Run] = field(default_factory=list[Run])
    waiting: list[Wait] = field(default_factory=list[Wait])
    paused: bool = False
    resume_at: float | None = None
    skips: set[int] = field(default_factory=set[int])
    _had: set[int] = field(default_factory=set[int])
    _failures: int = 0
    _held: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    """Ticks of earlier specs between nominal and jittered time."""
    _cursor: float = 0
    _at_once: bool = True

    def __post_init__(self) -> None:
        self._cursor = self.now
        self.remaining = self.rules.limit

    # -- time ----------------------------------------------------------------------------------------------------------
    def advance(self, to: float) -> None:
        while (event := self._next()) is not None and event[0] <= to:
            self.now = max(self.now, event[0])
            event[2]()
        self.now = to

    def _next(self) -> tuple[float, int, Callable[[], None]] | None:
        events: list[tuple[float, int, Callable[[], None]]] = []
        if self.running:
            first = min(self.running, key=lambda run: run.ends)
            events.append((first.ends, 0, lambda: self._end(first)))
        if self.resume_at is not None:
            events.append((self.resume_at, 1, self.resume))
        if (nominal := self.spec.next(self._cursor)) is not None:
            due = self.spec.jittered(nominal, self.name).timestamp()
            events.append((due, 2, lambda: self._clock(int(nominal.timestamp()))))
        events += [(held[0], 2, partial(self._let_go, held)) for held in self._held]
        return min(events, key=lambda event: event[:2], default=None)

    def _let_go(self, held: tuple[float, int]) -> None:
        self._held.remove(held)
        self._tick(held[1])

    def _clock(self, nominal: int) -> None:
        self._cursor = nominal
        self._tick(nominal)

    def _tick(self, nominal: int) -> None:
        taken = nominal in self._had or any(wait.in_spec and wait.nominal == nominal for wait in self.waiting)
        if not (taken or self.paused or self.remaining == 0 or nominal in self.skips):
            self._decide(Wait(nominal, manual=False, overlap=None, in_spec=True))

    # -- runs ----------------------------------------------------------------------------------------------------------
    def _slots(self, overlap: str) -> int:
        return self.rules.max_running or (_ANY if overlap == "allow_all" else 1)

    def _begin(self, tick: Wait) -> None:
        self.running.append(Run(tick.nominal, self.now + self.length(tick.nominal)))
        self.starts.append((tick.nominal, tick.manual, round(self.now, 3)))
        if tick.in_spec:
            self._had.add(tick.nominal)
        if not tick.manual and self.remaining is not None:
            self.remaining -= 1
        self._end_at_once()

    def _end_at_once(self) -> None:
        """Runs that take no time end in the moment in which they begin, except for those of one decision."""
        while self._at_once and (ended := next((run for run in self.running if run.ends <= self.now), None)):
            self._end(ended)

    def _decide(self, tick: Wait) -> bool:
        """Start it, let it wait, or leave it out; False: it is left out."""
        overlap = tick.overlap or self.rules.overlap
        if len(self.running) >= self._slots(overlap):
            if overlap in {"skip", "allow_all"} or (overlap == "buffer_one" and self.waiting):
                return False
            if overlap in {"buffer_one", "buffer_all"}:
                limit = self.rules.buffer_limit
                if limit is not None and not tick.manual and len(self.waiting) >= limit:
                    return False
                self.waiting.append(tick)
                return True
            if self.waiting:
                raise Open
            self.running.pop(0)  # cancelled or terminated: a run that sleeps ends at once
        self._begin(tick)
        return True

    def _end(self, run: Run) -> None:
        self.running.remove(run)
        self._failures = self._failures + 1 if self.fails(run.nominal) else 0
        open_ended = self.paused and self.resume_at is None
        if self.rules.pause_on_failure and self._failures >= self.rules.pause_on_failure and not open_ended:
            self.pause()
        while self.waiting:
            tick = self.waiting[0]
            if len(self.running) >= self._slots(tick.overlap or self.rules.overlap):
                return
            self.waiting.remove(tick)
            if tick.manual or not (self.paused or self.remaining == 0):
                self._begin(tick)

    # -- operators -----------------------------------------------------------------------------------------------------
    def pause(self, until: float | None = None) -> None:
        self.paused, self.resume_at = True, until
        self.waiting = [tick for tick in self.waiting if tick.manual]

    def resume(self) -> None:
        self.paused, self.resume_at = False, None

    def trigger(self, overlap: str | None) -> bool:
        return self._decide(Wait(int(self.now), manual=True, overlap=overlap, in_spec=False))

    def backfill(self, first: float, last: float, overlap: str | None) -> None:
        how = overlap or ("allow_all" if self.rules.overlap == "allow_all" else "buffer_all")
        times = [int(when.timestamp()) for when in self.spec.between(first - 1, last)]
        waiting = {tick.nominal for tick in self.waiting if tick.in_spec}
        self._at_once = False
        for nominal in times:
            if nominal >= first and nominal not in self._had | waiting:
                self._decide(Wait(nominal, manual=True, overlap=how, in_spec=True))
        self._at_once = True
        self._end_at_once()

    def change_spec(self, spec: Spec) -> None:
        while (nominal := self.spec.next(self._cursor)) is not None and nominal.timestamp() <= self.now:
            self._cursor = int(nominal.timestamp())
            self._held.append((self.spec.jittered(nominal, self.name).timestamp(), int(self._cursor)))
        self.spec, self._cursor = spec, self.now


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
