"""The possible next events of a simulation, and the choice between them: actions of processes, faults, or time."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from mainspring.errors import MainspringError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Sequence


class Actor(Protocol):
    """The part of a process that the stage controls."""

    @property
    def alive(self) -> bool: ...
    @property
    def frozen(self) -> bool: ...

    def freeze(self) -> None:
        """Stop for longer than the lease, then continue."""
        ...

    def ask_to_stop(self) -> None:
        """Stop in an orderly way."""
        ...

    def set_clock(self, by: int) -> None:
        """Set the wall clock, by microseconds."""
        ...


@dataclass(frozen=True, slots=True)
class Faults:
    """The probability of each fault, per action. `Faults.none()` has none."""

    crash: float = 0.01
    """A process dies, before or after a call to the database."""
    unavailable: float = 0.02
    """The database is busy or unreachable. The call has no effect."""
    lost_answer: float = 0.02
    """The database commits, but the response is lost."""
    freeze: float = 0.006
    """A process stops for longer than its lease, then continues."""
    clock_jump: float = 0.004
    """The wall clock of a process is set, by up to an hour, forwards or backwards."""
    lost_signal: float = 0.1
    """A notification does not arrive."""
    stop: float = 0.004
    """A process stops in an orderly way, and another one replaces it."""

    @classmethod
    def none(cls) -> Faults:
        """Return probabilities of zero."""
        return cls(0, 0, 0, 0, 0, 0, 0)


@dataclass(slots=True)
class Action:
    """An action that a process requested and that has not happened yet."""

    process: Actor | None
    perform: Callable[[], None]
    fail: Callable[[], None]
    """Called instead if the process dies first."""


class Standstill(MainspringError):
    """No action is possible any more, and not all runs have ended."""


@dataclass(slots=True)
class Stage:
    """The state of a simulation: its time, its random numbers, and the pending actions."""

    seed: int
    faults: Faults
    calm_after: int
    """The number of actions after which no more faults happen, so that all runs can end."""
    on_action: Callable[[], None] = lambda: None
    time: float = 0.0
    actions: int = 0
    counts: dict[str, int] = field(default_factory=dict[str, int])
    processes: Sequence[Actor] = ()
    _waiting: list[Action] = field(default_factory=list[Action])
    chance: random.Random = field(init=False)
    loop: AbstractEventLoop = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    # -- called by the processes ---------------------------------------------------------------------------------------
    def add(self, process: Actor | None, perform: Callable[[], None], fail: Callable[[], None] = lambda: None) -> None:
        """Add an action, which happens at a moment that the stage chooses."""
        if process is not None and not process.alive:
            fail()
        else:
            self._waiting.append(Action(process, perform, fail))

    def drop(self, process: Actor) -> None:
        """Drop the pending actions of a dead process."""
        lost = [action for action in self._waiting if action.process is process]
        self._waiting = [action for action in self._waiting if action.process is not process]
        for action in lost:
            action.fail()

    def happens(self, what: str) -> bool:
        """Whether a fault happens now. Counts it."""
        if self.calm or self.chance.random() >= getattr(self.faults, what):
            return False
        self.count(what)
        return True

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    @property
    def calm(self) -> bool:
        return self.actions >= self.calm_after

    # -- called by the loop --------------------------------------------------------------------------------------------
    def idle(self, timeout: float | None) -> None:
        """Perform one pending action, or advance time to the next timer."""
        ready = [action for action in self._waiting if action.process is None or not action.process.frozen]
        if not ready and timeout is None:
            raise Standstill(f"nothing can happen any more after {self.actions} actions")
        if ready and (timeout is None or self.chance.random() < 0.9):
            action = self.chance.choice(ready)
            self._waiting.remove(action)
            self.actions += 1
            action.perform()
            self.on_action()
            self._disturb()
        elif timeout is not None:
            self.time += timeout

    def _disturb(self) -> None:
        living = [process for process in self.processes if process.alive and not process.frozen]
        if not living:
            return
        process = self.chance.choice(living)
        if self.happens("freeze"):
            process.freeze()
        if self.happens("stop"):
            process.ask_to_stop()
        if self.happens("clock_jump"):
            process.set_clock(by=int(self.chance.uniform(-3_600, 3_600) * 1e6))
