"""Searching the interleavings of a case: all of them up to a number of preemptions, or many at random; and repeating one.

A schedule is written as the decisions in which it departs from the default, `12:1 40:2`: at decision 12 the first alternative,
at decision 40 the second. The default keeps the running thread as long as it can run, then takes the oldest one that can. What is
left out is the default, so the empty schedule is a program without preemptions. The text is all that is needed to repeat a failure.
"""

from __future__ import annotations

import contextlib
import gc
import random
import sys
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tests.interleavings.scheduler import Carriers, Finding, Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from types import ModuleType

    from tests.interleavings.scheduler import Choice

Departures = tuple[tuple[int, int], ...]
"""Decisions and the options taken there, where these are not the default."""
Bound = Literal["preemptions", "delays"]
"""What a search counts: taking the baton from a thread that could go on; or every departure from the default."""


@dataclass(frozen=True)
class Case:
    """A program to explore. `run` is its main thread; it raises if what it promises does not hold."""

    name: str
    run: Callable[[Scheduler], object]
    lines: tuple[str, ...] = ()
    """Files whose every line is a switch point."""
    calm: bool = False
    """Decide only inside `Scheduler.exploring`: what goes before and after is the same in every schedule."""
    horizon: float = 600.0
    """Virtual seconds after which nothing that the program waits for may still be to come."""


@dataclass
class Report:
    """What a search has seen."""

    case: str
    schedules: int = 0
    by_cost: Counter[int] = field(default_factory=Counter[int])
    """Schedules by their preemptions (or delays)."""
    decisions: int = 0
    """In the longest of them."""
    points: int = 0
    seconds: float = 0.0
    complete: bool = True
    """Every schedule within the bound was run."""

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} with {cost}" for cost, count in sorted(self.by_cost.items()))
        listed = f" ({kinds})" if kinds else ""
        end = "" if self.complete else ", not all"
        return (
            f"{self.case}: {self.schedules} schedules{listed}{end}, up to {self.decisions} decisions each, "
            f"{self.points} switch points, {self.seconds:.1f} s"
        )


class Broken(AssertionError):
    """A schedule in which a case does not keep its promises, and how to repeat it."""

    def __init__(self, case: str, finding: Finding, departures: Departures, report: Report, trace: list[str]) -> None:
        self.case = case
        self.finding = finding
        self.schedule = written(departures)
        self.report = report
        super().__init__(
            f"{case}: {finding}\n"
            f"found by schedule {report.schedules} after {report.seconds:.2f} s; repeat it with\n"
            f'    python -m tests.interleavings --case "{case}" --schedule "{self.schedule}"\n'
            "the end of its trace (thread, what it does):\n" + "\n".join(f"    {line}" for line in trace[-80:])
        )


def files_of(*modules: ModuleType) -> tuple[str, ...]:
    """For `Case.lines`."""
    return tuple(str(module.__file__) for module in modules)


def written(departures: Departures) -> str:
    return " ".join(f"{number}:{option}" for number, option in departures)


def parsed(schedule: str) -> Departures:
    pairs = (one.partition(":") for one in schedule.split())
    return tuple((int(number), int(option)) for number, _, option in pairs)


# -- policies ------------------------------------------------------------------------------------------------------------
class Given:
    """Takes the departures it is given, and the default everywhere else."""

    def __init__(self, departures: Departures) -> None:
        self._departures = dict(departures)

    def choose(self, number: int, choice: Choice, threads: list[int]) -> int:
        del threads
        option = self._departures.get(number, 0)
        return option if option < choice.options else 0


class Walk:
    """A random walk: at each decision a preemption, an early timeout or a fault with a probability that the seed sets."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._restless = self._chance.choice((0.02, 0.1, 0.3))
        self._hasty = self._chance.choice((0.0, 0.0, 0.01, 0.05))
        self._faulty = self._chance.choice((0.1, 0.3))
        self._early = 3

    def choose(self, number: int, choice: Choice, threads: list[int]) -> int:
        del number
        chance = self._chance
        if choice.fault:
            return chance.randrange(1, choice.options) if chance.random() < self._faulty else 0
        if choice.clock and self._early and chance.random() < self._hasty:
            self._early -= 1
            return choice.options - 1
        if choice.preempts and chance.random() >= self._restless:
            return 0
        return chance.randrange(len(threads))


class Priorities:
    """PCT: threads have random priorities, the highest one runs, and at a few random decisions it becomes the lowest.

    A defect that needs d orderings among n decisions of k threads is found with a probability of at least 1/(k n^(d-1)).
    """

    def __init__(self, seed: int, decisions: int, changes: int = 3) -> None:
        self._chance = random.Random(seed)
        self._changes = {self._chance.randrange(max(decisions, 1)) for _ in range(self._chance.randint(0, changes))}
        self._faulty = self._chance.choice((0.1, 0.3))
        self._hurry = {self._chance.randrange(max(decisions, 1)) for _ in range(self._chance.choice((0, 0, 1, 2)))}
        self._priorities: dict[int, float] = {}
        self._lowest = 0.0

    def choose(self, number: int, choice: Choice, threads: list[int]) -> int:
        if choice.fault:
            return self._chance.randrange(1, choice.options) if self._chance.random() < self._faulty else 0
        if choice.clock and number in self._hurry:
            return choice.options - 1
        for thread in threads:
            if thread not in self._priorities:
                self._priorities[thread] = self._chance.random() + 1.0
        best = max(threads, key=lambda thread: self._priorities[thread])
        if number in self._changes:
            self._lowest -= 1.0
            self._priorities[best] = self._lowest
            best = max(threads, key=lambda thread: self._priorities[thread])
        return threads.index(best)


# -- running -------------------------------------------------------------------------------------------------------------
def _ignore(_: object) -> None:
    pass


@contextlib.contextmanager
def searching() -> Generator[Carriers]:
    """The threads for many schedules, and quiet for them.

    The garbage collector stands still, because finalizers would run at another moment each time; and what finalizers complain of
    when a schedule was cut off in the middle is of no interest.
    """
    carriers = Carriers()
    hook, sys.unraisablehook = sys.unraisablehook, _ignore
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield carriers
    finally:
        carriers.end()
        gc.collect()
        sys.unraisablehook = hook
        if enabled:
            gc.enable()


def run_once(
    case: Case, policy: Given | Walk | Priorities, carriers: Carriers | None = None, *, record: bool = False
) -> Scheduler:
    """Run one schedule."""
    if carriers is None:
        with searching() as made:
            return run_once(case, policy, made, record=record)
    scheduler = Scheduler(policy, carriers, horizon=case.horizon, lines=case.lines, calm=case.calm, record=record)
    scheduler.run(lambda: case.run(scheduler))
    if scheduler.finding is None and scheduler.left:
        scheduler.finding = Finding("left behind", "threads that never end: " + "; ".join(scheduler.left))
    return scheduler


def departures_of(scheduler: Scheduler) -> Departures:
    return tuple((number, choice.taken) for number, choice in enumerate(scheduler.choices) if choice.taken)


def replay(case: Case, schedule: str) -> Scheduler:
    """Run the schedule that was printed with a failure."""
    return run_once(case, Given(parsed(schedule)), record=True)


def exhaust(
    case: Case,
    preemptions: int,
    *,
    bound: Bound = "preemptions",
    seconds: float = float("inf"),
    most: int = 10**9,
) -> Report:
    """Run every schedule with up to so many preemptions, those with the fewest first. Raises `Broken` at the first that fails."""
    report = Report(case.name)
    begun = time.monotonic()
    waiting: list[deque[Departures]] = [deque([()]), *(deque[Departures]() for _ in range(preemptions))]
    with searching() as carriers:
        for cost, queue in enumerate(waiting):
            while queue:
                if report.schedules >= most or time.monotonic() - begun > seconds:
                    report.complete = False
                    return report
                departures = queue.popleft()
                scheduler = _one(case, Given(departures), carriers, report, begun)
                report.by_cost[cost] += 1
                for alternative, more in _alternatives(scheduler.choices, departures, bound):
                    if cost + more <= preemptions:
                        waiting[cost + more].append(alternative)
    return report


def _alternatives(choices: list[Choice], departures: Departures, bound: Bound) -> Iterable[tuple[Departures, int]]:
    """The schedules that depart once more, after their last departure, with what that costs: each schedule has one such parent."""
    first = departures[-1][0] + 1 if departures else 0
    for number in range(first, len(choices)):
        choice = choices[number]
        for option in range(1, choice.options):
            yield (*departures, (number, option)), _cost(choice, option, bound)


def _cost(choice: Choice, option: int, bound: Bound) -> int:
    if choice.fault:
        return 0
    early = choice.clock and option == choice.options - 1
    return 1 if choice.preempts or early or bound == "delays" else 0


def walk(
    case: Case,
    seeds: Iterable[int],
    *,
    seconds: float = float("inf"),
    by: Literal["walk", "priorities", "both"] = "both",
) -> Report:
    """Run a random schedule for each seed. Raises `Broken` at the first that fails."""
    report = Report(case.name)
    begun = time.monotonic()
    length = 0
    with searching() as carriers:
        for seed in seeds:
            if time.monotonic() - begun > seconds:
                report.complete = False
                break
            if length == 0:
                length = len(_one(case, Given(()), carriers, report, begun).choices)
            policy = Priorities(seed, length) if by == "priorities" or (by == "both" and seed % 2) else Walk(seed)
            _one(case, policy, carriers, report, begun)
    return report


def _one(case: Case, policy: Given | Walk | Priorities, carriers: Carriers, report: Report, begun: float) -> Scheduler:
    scheduler = run_once(case, policy, carriers)
    report.schedules += 1
    report.points += scheduler.points
    report.decisions = max(report.decisions, len(scheduler.choices))
    report.seconds = time.monotonic() - begun
    if report.schedules % 200 == 0:
        gc.collect()
    if scheduler.finding is not None:
        raise _broken(case, scheduler, carriers, report)
    return scheduler


def _broken(case: Case, scheduler: Scheduler, carriers: Carriers, report: Report) -> Broken:
    assert scheduler.finding is not None
    departures = _shrunk(case, departures_of(scheduler), scheduler.finding.kind, carriers)
    again = run_once(case, Given(departures), carriers, record=True)
    finding = again.finding or Finding(
        "not repeatable", f"this was found once, and its schedule does not show it again:\n{scheduler.finding}"
    )
    return Broken(case.name, finding, departures, report, again.trace)


def _shrunk(case: Case, departures: Departures, kind: str, carriers: Carriers, seconds: float = 5.0) -> Departures:
    """A schedule with fewer departures that ends with a finding of the same kind."""
    until = time.monotonic() + seconds
    size = len(departures)
    while size >= 1:
        at = 0
        while at < len(departures):
            if time.monotonic() > until:
                return departures
            fewer = departures[:at] + departures[at + size :]
            found = run_once(case, Given(fewer), carriers).finding
            if found is not None and found.kind == kind:
                departures = fewer
            else:
                at += size
        size //= 2
    return departures
