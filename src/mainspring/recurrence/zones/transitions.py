"""The effects of clock changes on a spec: which times they shift, skip or repeat."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, NamedTuple

from mainspring.recurrence.instants import Instant, floor_second
from mainspring.recurrence.search.days import NEVER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainspring.recurrence.search.patterns import Pattern
    from mainspring.recurrence.spec import Spec

_LOCAL_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - wall clocks have no zone
_MOST = 3_600
"""The maximum count of times that one transition affects."""


class Effect(NamedTuple):
    """The effect of one clock change on the times of a spec."""

    kind: Literal["shifted", "skipped", "repeated", "once"]
    """`once`: the clocks show the time twice, but the spec has it once."""
    wall: datetime
    """The first affected time, as a wall clock would show it."""
    at: tuple[datetime, ...]
    """The instants of that time."""
    changed: datetime
    """The instant of the clock change."""
    hits: int
    """The number of affected times."""

    @property
    def message(self) -> str:
        wall = f"{self.wall:%H:%M:%S}".removesuffix(":00")
        more = f" (and {self.hits - 1} more)" if self.hits > 1 else ""
        if self.kind == "shifted":
            return f"{wall}{more} does not exist that day: moved to {self.at[0]:%H:%M}"
        if self.kind == "skipped":
            return f"{wall}{more} does not exist that day: skipped"
        if self.kind == "repeated":
            return f"{wall}{more} happens twice that day: both count"
        which = "first" if self.at[0].fold == 0 else "second"
        return f"{wall}{more} happens twice that day: the {which} counts"


def effects(spec: Spec, after: Instant, until: Instant) -> list[Effect]:
    """Return the effects of all clock changes after one instant and up to another, in order."""
    zone, begin, end = spec.zone, floor_second(after), floor_second(until)
    patterns = [values.pattern() for values in spec.named()]
    found: list[Effect] = []
    for at, before, later in zip(zone.instants, zone.offsets, zone.offsets[1:], strict=False):
        if begin < at <= end:
            for pattern in patterns:
                found += _effect(spec, pattern, at, (before, later))
    return list(dict.fromkeys(found))


def _effect(spec: Spec, pattern: Pattern, at: int, offsets: tuple[int, int]) -> Iterator[Effect]:
    before, after = offsets
    begin, end = at + min(offsets), at + max(offsets)
    local = pattern.at_or_after(begin)
    if local >= end:
        return
    count = 1
    following = pattern.at_or_after(local + 1)
    while following < end and count < _MOST:
        count += 1
        following = pattern.at_or_after(following + 1)
    gap, fold = ("skip", "both") if pattern.is_hourly else (spec.gap, spec.fold)
    if after > before:
        instants = {"after": [at], "shift": [local - before], "skip": []}[gap]
        kind: Literal["shifted", "skipped", "repeated", "once"] = "shifted" if instants else "skipped"
    else:
        instants = {"first": [local - before], "second": [local - after], "both": [local - before, local - after]}[fold]
        kind = "repeated" if fold == "both" else "once"
    tzinfo = spec.zone.tzinfo
    times = tuple(datetime.fromtimestamp(instant, tzinfo) for instant in instants if instant != NEVER)
    yield Effect(kind, _LOCAL_EPOCH + timedelta(seconds=local), times, datetime.fromtimestamp(at, tzinfo), count)
