"""Checks of values that callers give. Each raises `InvalidInput` with the name of the value and what it has to be."""

from __future__ import annotations

import functools
import inspect
import json
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from difflib import get_close_matches
from typing import Any, TypeVar

import msgspec

from mainspring.errors import InvalidInput, NotSerializable
from mainspring.model.clock import SECOND, to_micros
from mainspring.model.ids import is_storable

C = TypeVar("C", bound=type[Any])
LONGEST_KEY = 512
MOST = 2**31 - 1
"""The maximum of a count. It fits in the columns of both databases."""
_YEARS = (-62_135_596_800, 253_402_300_799)
"""The first second of the year 1 and the last of the year 9999, the range of a datetime."""


def check_text(what: str, value: object) -> str:
    """Return a text of 1 to `LONGEST_KEY` characters that databases can store."""
    if not isinstance(value, str) or not 1 <= len(value) <= LONGEST_KEY or not is_storable(value):
        raise InvalidInput(f"{what} is a text of 1 to {LONGEST_KEY} characters, not {short(value)}")
    return value


def check_name(what: str, value: object) -> str:
    """Return a text that databases can store: a name or an id to look for."""
    if not isinstance(value, str) or not is_storable(value):
        raise InvalidInput(f"{what} is a text that can be stored, not {short(value)}")
    return value


def check_flag(what: str, value: object) -> bool:
    """Return True or False. Other values are errors, because `bool("no")` is true."""
    if not isinstance(value, bool):
        raise InvalidInput(f"{what} is True or False, not {short(value)}")
    return value


def check_whole(what: str, value: object, least: int = 0) -> int:
    """Return a whole number from `least` to `MOST`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidInput(f"{what} is a whole number of at least {least}, not {short(value)}")
    if value > MOST:
        raise InvalidInput(f"{what} is at most {MOST:,}, not {short(value)}")
    return value


def check_several(what: str, value: object) -> list[Any]:
    """Return the items of a list or another iterable that is no text and no mapping."""
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping)):
        return [*value]  # pyright: ignore[reportUnknownVariableType]
    raise InvalidInput(f"{what} is a list, not {short(value)}")  # pyright: ignore[reportUnknownArgumentType]


def check_mapping(what: str, value: object) -> Mapping[Any, Any]:
    """Return a mapping, such as a dict."""
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{what} is a mapping, not {short(value)}")
    return value  # pyright: ignore[reportUnknownVariableType]


def attributes_json(given: object, what: str) -> str:
    """Return attributes, named values for filtering runs and schedules, as JSON text. Raises `InvalidInput` or `NotSerializable`.

    They are plain JSON, so that a database can compare them.
    """
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{what} is a dict with names as keys, not {given!r}")
    named: dict[Any, Any] = dict(given)  # pyright: ignore[reportUnknownArgumentType]
    if not all(isinstance(name, str) for name in named):
        raise InvalidInput(f"{what} is a dict with names as keys, not {given!r}")
    try:
        text = msgspec.json.encode(named).decode()
        stored = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotSerializable(f"{what} cannot be stored as JSON: {error}") from None
    if stored != named or "\\u0000" in text:
        raise NotSerializable(f"{what} are plain JSON values (strings, numbers, booleans, lists, dicts), not {given!r}")
    return text


def check_time(what: str, value: object) -> int:
    """Return a point in time, an aware datetime or seconds since 1970, in microseconds."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidInput(
                f"{what} {value.isoformat()} has no zone; write an aware datetime, such as datetime.now(UTC)"
            )
        found = to_micros(value)
        if not _YEARS[0] * SECOND <= found < (_YEARS[1] + 1) * SECOND:  # its offset can lead out of them
            raise InvalidInput(f"{what} {value.isoformat()} is not in the years 1 to 9999 of UTC")
        return found
    infinite = isinstance(value, float) and not math.isfinite(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or infinite:
        raise InvalidInput(
            f"{what} is an aware datetime, such as datetime.now(UTC), or seconds since 1970, not {short(value)}"
        )
    if not _YEARS[0] <= value <= _YEARS[1]:
        raise InvalidInput(f"{what} is seconds since 1970, in the years 1 to 9999, not {short(value)}")
    return round(value * SECOND)


def short(value: object) -> str:
    """Return the repr of a value for a message, shortened if it is long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


def explained(error: Callable[[str], Exception] = InvalidInput) -> Callable[[C], C]:
    """Decorate a class whose constructor users call: wrong arguments raise `error`, which names the known ones."""

    def decorate(cls: C) -> C:
        init: Callable[..., None] = cls.__init__

        @functools.wraps(init)
        def checked(self: Any, *args: Any, **named: Any) -> None:
            try:
                init(self, *args, **named)
            except TypeError:
                try:
                    inspect.signature(init).bind(self, *args, **named)
                except TypeError as misuse:
                    raise error(_explanation(cls.__name__, init, args, named, misuse)) from None
                raise

        setattr(cls, "__init__", checked)  # noqa: B010  (the type of the constructor stays what it is)
        return cls

    return decorate


def _explanation(
    cls: str, init: Callable[..., None], args: tuple[Any, ...], named: dict[str, Any], misuse: TypeError
) -> str:
    parameters = list(inspect.signature(init).parameters.values())[1:]
    known = [each.name for each in parameters]
    for name in named:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            return f"{cls} has no {name!r}; {hint}"
    if args and parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        return f"the parts of a {cls} are given by name: {cls}({known[0]}={args[0]!r})"
    return f"{cls}({', '.join(known)}): {misuse}"
