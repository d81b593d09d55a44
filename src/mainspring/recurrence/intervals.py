"""Times at equal distances in absolute time, which zones and transitions do not affect."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from mainspring.errors import Fault, InvalidInput, InvalidSpec
from mainspring.recurrence.durations import format_duration, parse_duration
from mainspring.recurrence.faults import build
from mainspring.recurrence.frozen import Frozen
from mainspring.recurrence.instants import Instant, as_datetime, floor_second, is_whole
from mainspring.recurrence.search.search import Cycle

if TYPE_CHECKING:
    from collections.abc import Mapping


class Interval(Frozen):
    """Every `every`, counted from 1970-01-01T00:00Z or from `anchor`, and `offset` later.

    `Interval("6h", offset="5h")`, or `Interval("6h/5h")`, is 05:00, 11:00, 17:00 and 23:00 UTC. Durations are whole
    seconds, and the offset is shorter than the interval. An anchor is where to count from, not where to begin: for that
    a spec has `start`. Raises `InvalidSpec` with every fault.
    """

    __slots__ = ("anchor", "every", "offset")

    every: timedelta
    offset: timedelta
    anchor: datetime | None

    def __init__(
        self,
        every: timedelta | float | str,
        offset: timedelta | float | str | None = None,
        anchor: Instant | None = None,
    ) -> None:
        faults: list[Fault] = []
        entered = every
        if isinstance(every, str) and "/" in every:
            every, _, written = every.partition("/")
            if offset is not None:
                faults.append(
                    Fault("is given twice", "offset", hint="write it after the slash or as offset=, not both")
                )
            offset = written
        whole_every = _duration("every", every, faults)
        whole_offset = timedelta(0) if offset is None else _duration("offset", offset, faults)
        if whole_every is not None and whole_every < timedelta(seconds=1):
            faults.append(Fault(f"{every!r} is shorter than a second", "every"))
        elif whole_every is not None and whole_offset is not None and whole_offset >= whole_every:
            faults.append(Fault(f"{offset!r} is not shorter than every {every!r}", "offset"))
        at = _anchor(anchor, faults)
        if faults or whole_every is None or whole_offset is None:
            raise InvalidSpec(f"interval {entered!r}", faults)
        self._fill(every=whole_every, offset=whole_offset, anchor=at)

    @property
    def cycle(self) -> Cycle:
        """The same times as a period and a phase, in seconds."""
        every = round(self.every.total_seconds())
        origin = 0 if self.anchor is None else floor_second(self.anchor)
        return Cycle(every, (origin + round(self.offset.total_seconds())) % every)

    def canonical(self) -> Interval:
        """Return the same times counted from 1970."""
        every, phase = self.cycle
        return Interval(every, phase)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, `{every, offset, anchor}`."""
        written: dict[str, Any] = {"every": format_duration(self.every)}
        if self.offset:
            written["offset"] = format_duration(self.offset)
        if self.anchor is not None:
            written["anchor"] = self.anchor.isoformat()
        return written

    @classmethod
    def from_cycle(cls, cycle: Cycle) -> Interval:
        return cls(cycle.every, cycle.phase)

    def __eq__(self, other: object) -> bool:
        """Whether two intervals have the same times."""
        return self.cycle == other.cycle if isinstance(other, Interval) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.cycle)

    def __reduce__(self) -> tuple[type[Interval], tuple[object, ...]]:
        return Interval, (self.every, self.offset, self.anchor)

    def __repr__(self) -> str:
        anchor = "" if self.anchor is None else f", anchor={self.anchor!r}"
        return f"Interval({str(self)!r}{anchor})"

    def __str__(self) -> str:
        offset = f"/{format_duration(self.offset)}" if self.offset else ""
        return format_duration(self.every) + offset


def _duration(name: str, value: timedelta | float | str, faults: list[Fault]) -> timedelta | None:
    try:
        duration = parse_duration(value)
    except InvalidInput as error:
        faults.append(Fault(str(error).removeprefix("duration: "), name))
        return None
    if duration.microseconds:
        faults.append(Fault(f"{value!r} is not a whole number of seconds", name))
        return None
    return duration


def _anchor(anchor: Instant | None, faults: list[Fault]) -> datetime | None:
    if anchor is None:
        return None
    try:
        at = as_datetime(anchor)
    except InvalidInput as error:
        faults.append(Fault(str(error).removeprefix("time: "), "anchor"))
        return None
    if not is_whole(at):
        faults.append(Fault(f"{at.isoformat()} is not a whole second", "anchor"))
        return None
    return at


def interval_from_dict(given: Mapping[str, Any]) -> Interval:
    """Return the interval of a JSON form, `{every, offset, anchor}`."""
    from mainspring.recurrence.instants import parse_instant  # noqa: PLC0415 - read from JSON only

    unknown = sorted(str(key) for key in given if key not in {"every", "offset", "anchor"})
    faults = [Fault("is not a key of an interval", key, hint="there are every, offset, anchor") for key in unknown]
    faults += [] if "every" in given else [Fault("is missing", "every")]
    anchor = given.get("anchor")
    if isinstance(anchor, str):
        try:
            anchor = parse_instant(anchor)
        except InvalidInput as error:
            faults.append(Fault(str(error).removeprefix("time: "), "anchor"))
            anchor = None
    every, offset = given.get("every", timedelta(days=36_500)), given.get("offset")
    return build("interval", faults, lambda: Interval(every, offset, anchor))
