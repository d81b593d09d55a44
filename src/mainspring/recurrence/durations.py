"""Durations: a phrase like `4w3d2h1m`, a `timedelta`, or a number of seconds."""

from __future__ import annotations

import functools
import math
import re
from datetime import timedelta
from fractions import Fraction

from mainspring.errors import InvalidInput
from mainspring.model.clock import SECOND

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_PHRASE = re.compile(r"(?:[0-9]+[smhdw])+")
_PART = re.compile(r"([0-9]+)([smhdw])")
_FRACTION = re.compile(r"[0-9]*[.,][0-9]")
_DECIMAL_PHRASE = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?[smhdw])+")
_DECIMAL_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw])")
# A longer phrase cannot be a duration that `timedelta` holds. The bound keeps absurd input cheap.
_LONGEST_PHRASE = 100

LONGEST = timedelta(days=365_000)
"""The longest duration. A time that is computed with it, and shown as a datetime, must stay before the year 10000."""
_LONGEST_SECONDS = LONGEST.days * 86_400


def parse_duration(value: timedelta | float | str) -> timedelta:
    """Return the duration of a phrase such as `"4w3d2h1m"`, a `timedelta`, or a number of seconds.

    A phrase is a sequence of whole numbers, each with one of the units s, m, h, d (24 hours) and w (7 days), added up.
    Raises `InvalidInput`, with what to write instead, for anything that is not a duration of zero or more.
    """
    if isinstance(value, str):
        return _from_phrase(value)
    if isinstance(value, timedelta):
        if value < timedelta(0):
            raise InvalidInput(f"duration: {value!r} is negative; write a duration of zero or more")
        return _bounded(value, repr(value))
    return _from_seconds(value)


def micros(value: timedelta | float | str) -> int:
    """Return a duration in microseconds."""
    return round(parse_duration(value).total_seconds() * SECOND)


def typed_duration(text: str) -> float | str:
    """Return what `parse_duration` takes for a text that a person typed: a number without a unit is seconds."""
    return float(text) if text.isascii() and text.isdigit() else text


def whole_numbers(phrase: str) -> str:
    """Convert a phrase with decimal fractions to one with whole numbers: `1.5h` becomes `5400s`.

    Returns any other phrase unchanged, also one that is not a whole number of seconds: `parse_duration` reports the fault.
    """
    if len(phrase) > _LONGEST_PHRASE or "." not in phrase or not _DECIMAL_PHRASE.fullmatch(phrase):
        return phrase
    seconds = sum(Fraction(number) * _SECONDS[unit] for number, unit in _DECIMAL_PART.findall(phrase))
    return f"{seconds.numerator}s" if seconds.denominator == 1 else phrase


def format_duration(value: timedelta) -> str:
    """Return the shortest phrase that `parse_duration` parses as `value`. Fractions of a second are dropped."""
    rest = value.days * 86_400 + value.seconds
    parts: list[str] = []
    for unit in "wdhms":
        count, rest = divmod(rest, _SECONDS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


@functools.lru_cache(256)  # most programs use few different phrases
def _from_phrase(phrase: str) -> timedelta:
    if len(phrase) > _LONGEST_PHRASE:
        raise InvalidInput(f"duration: a phrase of {len(phrase)} characters is too long; write one like '4w3d2h1m'")
    if not _PHRASE.fullmatch(phrase):
        raise InvalidInput(f"duration: {phrase!r} is not a time phrase; {_advice(phrase)}")
    return _bounded(sum(int(number) * _SECONDS[unit] for number, unit in _PART.findall(phrase)), repr(phrase))


def _from_seconds(value: object) -> timedelta:
    # bool is an int in Python, but True where a delay belongs is a mistake of the user's.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(
            f"duration: {value!r} is a {type(value).__name__}; give a timedelta, a number of seconds or a phrase like '1h30m'"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(f"duration: {value!r} is not a number of seconds")
    if value < 0:
        raise InvalidInput(f"duration: {value!r} seconds is negative; write a duration of zero or more")
    return _bounded(value, f"{value!r} seconds")


def _bounded(length: timedelta | float, given: str) -> timedelta:
    seconds = length.total_seconds() if isinstance(length, timedelta) else length
    if seconds > _LONGEST_SECONDS:
        raise InvalidInput(
            f"duration: {given} is longer than {LONGEST.days:,} days, about a thousand years, the longest there is; where None means "
            "no limit, write None"
        )
    return length if isinstance(length, timedelta) else timedelta(seconds=length)


def _advice(phrase: str) -> str:
    compact = "".join(phrase.split()).lstrip("+")
    if not compact:
        return "write one like '90s' or '1h30m'"
    if compact.isascii() and compact.isdigit():
        return f"it has no unit; write '{compact}s' for seconds"
    if compact[0] == "-":
        return "a duration cannot be negative"
    if _PHRASE.fullmatch(compact.lower()):
        return f"write '{compact.lower()}': units in lower case, no signs, no spaces"
    if _FRACTION.match(compact):
        return "numbers are whole; write '90m' rather than '1.5h'"
    return "write whole numbers with the units s, m, h, d or w, as in '4w3d2h1m'"
