"""What is done to a shape, and at which points.

A point is written as `kind:number`, with the lag of the threads behind `@` and the loop iterations until the second half of a pair
behind `+`: `turn:17`, `turn@6:17`, `before:23`, `turn:40+3`.

| kind | the n-th |
|---|---|
| turn | iteration of the event loop, counted from where the first life begins |
| time | millisecond, whatever happens in it; in no series |
| before, after | call of the store by the first life |
| slow | such a call, which takes longer than a step |
| lost | such a call, which commits, and its answer is lost |
| away | such a call: it and the next one of the same verb fail |
| switch | lock, queue or sleep that a thread uses: it stands back there until all other threads wait |
| seed | order in which threads are let run: drawn by lot, as is the moment at which something happens |
| none | nothing happens but what the settings bring about |
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.injection.faults import Faults

_PARKING = {"resident": 0, "park_after": 0}
_FORM = re.compile(r"(\w+)(?:@(\d+))?:(\d+)(?:\+(\d+))?")
LAG = 6
"""Iterations of a busy loop in which other threads get nothing done, in those series that have such a lag."""
SEEDS = 200
_GAPS = (0, 1, 2, 3, 5, 8, 13, 21)
"""Iterations between the halves of a pair. Which of them it is depends on the number of the point."""


@dataclass(frozen=True, slots=True)
class Point:
    """Where in a case something happens."""

    kind: str
    number: int
    lag: int = 0
    then: int = 0

    @classmethod
    def parse(cls, text: str) -> Point:
        found = _FORM.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is no point; write turn:17, before:3, turn@6:17+2 or the like")
        kind, lag, number, then = found.groups()
        return cls(kind, int(number), int(lag or 0), int(then or 0))

    def __str__(self) -> str:
        lag = f"@{self.lag}" if self.lag else ""
        then = f"+{self.then}" if self.then else ""
        return f"{self.kind}{lag}:{self.number}{then}"


NOWHERE = Point("none", 1)


@dataclass(frozen=True)
class Injection:
    """What happens at a point: the names of methods of `Faults`, the second so many loop iterations after the first."""

    name: str
    actions: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ("turn", "turn@", "before", "after")
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    holds: bool = True
    """A call of the store at which it happens lasts until the rest of the process has felt it."""

    @property
    def has(self) -> frozenset[str]:
        return frozenset(self.name.split("+"))

    def act(self, faults: Faults, point: Point) -> None:
        for number, action in enumerate(self.actions):
            work = getattr(faults, action)
            if number and point.then:
                faults.later(point.then, work)
            else:
                work()

    def points(self, kind: str, calls: int, turns: int, operations: int, seeds: int = SEEDS) -> Iterator[Point]:
        """All points of one kind, in a case that lasted so long undisturbed."""
        name, lag = kind.rstrip("@"), LAG if kind.endswith("@") else 0
        last = {"turn": turns, "switch": operations, "none": 1, "seed": seeds}.get(name, calls)
        for number in range(1, last + 1):
            yield Point(name, number, lag, _GAPS[number % len(_GAPS)] if len(self.actions) > 1 else 0)


INJECTIONS = {
    each.name: each
    for each in (
        Injection("none", kinds=("none", "none@")),
        Injection("stop", ("stop",)),
        Injection("park", kinds=("none", "none@", "slow", "switch"), settings=_PARKING),
        Injection("park+stop", ("stop",), settings=_PARKING),
        Injection("park+kill", ("kill",), kinds=("turn", "after"), settings=_PARKING),
        Injection("park+cancel", ("cancel",), kinds=("turn", "after"), settings=_PARKING),
        Injection("cancel", ("cancel",)),
        Injection("terminate", ("terminate",)),
        Injection("takeover", ("take_over",)),
        Injection("kill", ("kill",), holds=False),
        Injection("lost", kinds=("lost",)),
        Injection("outage", kinds=("away", "away@")),
        Injection("drop", ("drop",), kinds=("turn", "turn@")),
        Injection("slow", kinds=("slow",)),
        Injection("switch", kinds=("switch",)),
        Injection("cancel+stop", ("cancel", "stop")),
        Injection("stop+cancel", ("stop", "cancel"), kinds=("turn", "turn@")),
        Injection("stop+kill", ("stop", "kill"), kinds=("turn", "after")),
        Injection("stop+takeover", ("stop", "take_over"), kinds=("turn", "after")),
        Injection("cancel+kill", ("cancel", "kill"), kinds=("turn", "after")),
        Injection("lost+stop", ("stop",), kinds=("lost",)),
        Injection("outage+stop", ("stop",), kinds=("away",)),
        Injection("slow+stop", ("stop",), kinds=("slow",)),
        Injection("slow+kill", ("kill_soon",), kinds=("slow",)),
        Injection("slow+cancel", ("cancel",), kinds=("slow",)),
        Injection("switch+stop", ("stop",), kinds=("switch",)),
        Injection("switch+outage", ("fail_commits",), kinds=("switch",)),
        Injection("shuffle", kinds=("seed",)),
        Injection("shuffle+outage", ("fail_at_random",), kinds=("seed",)),
        Injection("shuffle+stop", ("stop",), kinds=("seed",)),
        Injection("shuffle+kill", ("kill",), kinds=("seed",)),
        Injection("shuffle+park", kinds=("seed",), settings=_PARKING),
        Injection("shuffle+takeover", ("take_over",), kinds=("seed",)),
        Injection("complete", ("complete",)),
        Injection("fail", ("fail",)),
        Injection("reschedule", ("reschedule",)),
        Injection("park+complete", ("complete",), kinds=("turn", "after"), settings=_PARKING),
        Injection("park+fail", ("fail",), kinds=("turn", "after"), settings=_PARKING),
        Injection("stop+complete", ("stop", "complete"), kinds=("turn", "after")),
        Injection("cancel+resume", ("cancel", "resume")),
        Injection("terminate+resume", ("terminate", "resume")),
        Injection("retry", ("retry",)),
        Injection("fail+retry", ("fail", "retry")),
        Injection("park+fail+retry", ("fail", "retry"), kinds=("turn", "after"), settings=_PARKING),
        Injection("fork", ("fork",)),
        Injection("delete", ("delete",)),
        Injection("terminate+delete", ("terminate", "delete")),
        Injection("cancel+delete", ("cancel", "delete"), kinds=("turn", "after")),
        Injection("stop+delete", ("stop", "delete"), kinds=("turn", "after")),
        Injection("drop+stop", ("drop", "stop"), kinds=("turn",)),
    )
}
