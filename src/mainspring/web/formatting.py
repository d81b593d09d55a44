"""Numbers, times and names for people to read."""

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
    """Format a number with thousands separators. A count that stopped at its limit ends in a plus sign."""
    return f"{number:,}+" if most is not None and number >= most else f"{number:,}"


NONE = "\N{EN DASH}"
"""The placeholder for a missing value."""


def duration(seconds: float | timedelta | None) -> str:
    """Format a duration in at most two units."""
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
    """Format the distance of a time from now, in one unit."""
    length = (now - when).total_seconds()
    if abs(length) < 1:
        return "now"
    for size, name in _STEPS:
        if abs(length) >= size:
            # Just under 30 days is shown as 30, not 29. The page's script (mainspring.js) does the same.
            return f"{int(length / size)} {name} ago" if length > 0 else f"in {int(-length / size + 0.05)} {name}"
    return "now"


def moment(when: datetime, zone: str | None = None) -> str:
    """Format a time in full, in its own zone or in a named one."""
    if zone is not None:
        with suppress(ValueError, KeyError, OSError):  # a time zone that a schedule brings along may be unknown here
            when = when.astimezone(ZoneInfo(zone))
    return f"{when:%Y-%m-%d %H:%M:%S} {when.tzname() or 'UTC'}"


def known_zone(name: str) -> str:
    """Return the time zone for a form: that of the schedule, or UTC if the schedule's zone is unknown here."""
    try:
        return ZoneInfo(name).key
    except (ValueError, KeyError, OSError):
        return "UTC"


def exactly(when: datetime) -> str:
    """Format a time in UTC with milliseconds: operations may be less than a second apart."""
    utc = when.astimezone(UTC)
    return f"{utc:%Y-%m-%d %H:%M:%S}.{utc.microsecond // 1_000:03} UTC"


def in_form(text: str | None) -> str:
    """Format a time from the address for a form field: in UTC, without an offset."""
    return f"{parse_instant(text, zone=UTC).astimezone(UTC):%Y-%m-%dT%H:%M:%S}" if text else ""


def time_tag(when: datetime | None, now: datetime, *, coming: bool = False) -> Markup | str:
    """Format a time as its distance from now, with the full time as a tooltip. The page's script updates the distance."""
    if when is None:
        return NONE
    utc = when.astimezone(UTC)
    words = ago(max(when, now) if coming else when, now)
    mark = Markup(' class="due"') if coming else ""
    return Markup('<time datetime="{}" title="{}"{}>{}</time>').format(utc.isoformat(), moment(utc), mark, words)


def outcome(name: str) -> str:
    return OUTCOMES.get(name, name)


def rate(text: str | None) -> str:
    """Format a rate limit: `30/60s` becomes "30 per minute"."""
    if text is None:
        return ""
    limit, _, per = text.partition("/")
    seconds = float(per.removesuffix("s"))
    return f"{limit} per {_PER.get(seconds) or duration(seconds)}"


def limits(found: Limits) -> str:
    """Format the limits of a queue other than its concurrency."""
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
