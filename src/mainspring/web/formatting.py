"""Numbers, times and names as people read them."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from markupsafe import Markup

from mainspring.recurrence.instants import parse_instant

if TYPE_CHECKING:
    from mainspring.web.pages.queues import Limits

_STEPS = ((86_400 * 365, "y"), (86_400 * 30, "mo"), (86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
WHERE_REPLAY_AGREES = "MAINSPRING_CONTINUE_ON=compatible mainspring worker MODULE:APP"
"""Lets stranded runs go on if what they have recorded is what the code asks for."""
_PER = {1.0: "second", 60.0: "minute", 3_600.0: "hour", 86_400.0: "day"}
OUTCOMES = {
    "fired": "started",
    "late": "started late",
    "skipped_overlap": "skipped: overlap",
    "skipped_by_request": "skipped on request",
    "missed": "missed",
    "paused": "paused",
    "dropped": "dropped: buffer full",
    "replaced": "replaced",
    "start_failed": "could not start",
    "run_failed": "started and failed",
    "pending": "pending",
    "buffered": "buffered",
}


def count(number: int, most: int | None = None) -> str:
    """A number with its thousands apart; one that stopped counting says so."""
    return f"{number:,}+" if most is not None and number >= most else f"{number:,}"


NONE = "\N{EN DASH}"
"""Stands where there is nothing."""


def duration(seconds: float | timedelta | None) -> str:
    """A length of time in at most two units."""
    if seconds is None:
        return NONE
    length = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
    if length < 0:
        return f"-{duration(-length)}"
    if length < 60:
        return _short(length)
    for (size, name), (small, below) in pairwise(_STEPS):
        if length >= size:
            whole = int(length // size)
            rest = int((length - whole * size) // small)
            return f"{whole} {name} {rest} {below}" if rest else f"{whole} {name}"
    return f"{length:.0f} s"


def _short(length: float) -> str:
    if not length:
        return "0"
    if length < 0.001:
        return f"{length * 1e6:.0f} µs"
    if length < 1:
        return f"{length * 1e3:.0f} ms"
    return f"{length:.1f}".removesuffix(".0") + " s" if length < 10 else f"{length:.0f} s"


def ago(when: datetime, now: datetime) -> str:
    """How far a time is from now, in one unit."""
    length = (now - when).total_seconds()
    if abs(length) < 1:
        return "now"
    for size, name in _STEPS:
        if abs(length) >= size:
            # What is all but 30 days away is not 29. Pages say the same (mainspring.js).
            return f"{int(length / size)} {name} ago" if length > 0 else f"in {int(-length / size + 0.05)} {name}"
    return "now"


def moment(when: datetime, zone: str | None = None) -> str:
    """A time in full, in its own zone or in a named one."""
    if zone is not None:
        with suppress(ValueError, KeyError, OSError):  # a zone that a schedule carries itself may be unknown here
            when = when.astimezone(ZoneInfo(zone))
    return f"{when:%Y-%m-%d %H:%M:%S} {when.tzname() or 'UTC'}"


def known_zone(name: str) -> str:
    """The zone of times in a form: that of a schedule, or UTC where the schedule carries a zone that is unknown here."""
    try:
        return ZoneInfo(name).key
    except (ValueError, KeyError, OSError):
        return "UTC"


def exactly(when: datetime) -> str:
    """A time in UTC with its milliseconds: operations follow each other faster than a second."""
    utc = when.astimezone(UTC)
    return f"{utc:%Y-%m-%d %H:%M:%S}.{utc.microsecond // 1_000:03} UTC"


def in_form(text: str | None) -> str:
    """A time of the address, however it was written, as a field of a form takes it: in UTC, without saying so."""
    return f"{parse_instant(text, zone=UTC).astimezone(UTC):%Y-%m-%dT%H:%M:%S}" if text else ""


def time_tag(when: datetime | None, now: datetime, *, coming: bool = False) -> Markup | str:
    """A time as a distance, with the time in full behind it. The page's script keeps the distance right."""
    if when is None:
        return NONE
    utc = when.astimezone(UTC)
    words = ago(max(when, now) if coming else when, now)
    mark = Markup(' class="due"') if coming else ""
    return Markup('<time datetime="{}" title="{}"{}>{}</time>').format(utc.isoformat(), moment(utc), mark, words)


def outcome(name: str) -> str:
    return OUTCOMES.get(name, name)


def rate(text: str | None) -> str:
    """A limit of starts: `30/60s` is 30 per minute."""
    if text is None:
        return ""
    limit, _, per = text.partition("/")
    seconds = float(per.removesuffix("s"))
    return f"{limit} per {_PER.get(seconds) or duration(seconds)}"


def limits(found: Limits) -> str:
    """What a queue lets through, beside how many at once."""
    parts = [
        rate(found.rate),
        _each(found.worker_concurrency, "per worker"),
        _each(found.partition_concurrency, "per partition"),
        _each(found.partition_worker_concurrency, "per partition and worker"),
        f"{rate(found.partition_rate)} and partition" if found.partition_rate else "",
    ]
    return ", ".join(part for part in parts if part) or NONE


def _each(number: int | None, what: str) -> str:
    return "" if number is None else f"{number} {what}"
