"""Check the values of filters. An error names the filter."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeAlias, get_type_hints

from mainspring.errors import InvalidInput
from mainspring.model.clock import SECOND, to_micros

_CURSOR = re.compile(r"[0-9a-z]{24}")
MOST_VALUES = 10_000
"""The maximum number of values of a filter. Databases limit the values of one statement."""
Texts: TypeAlias = str | Collection[str] | None
"""One text or several."""
Time: TypeAlias = datetime | float | None
"""An aware datetime, or seconds since the epoch."""


class Filter(NamedTuple):
    """The description of a filter for the command line and the API. It annotates the fields of a record of filters."""

    help: str
    kind: Literal["texts", "attributes", "flag", "time"] = "texts"
    metavar: str = "NAME"
    choices: tuple[str, ...] = ()
    """The allowed values. Empty: any."""
    options: tuple[str, ...] = ()
    """The options on the command line, if they differ from the filter's name."""


def filters_of_record(record: type) -> dict[str, Filter]:
    """Return the filters that a record annotates, by name. Keywords, options and query parameters follow from them."""
    hints = get_type_hints(record, include_extras=True)
    return {name: next(each for each in hint.__metadata__ if isinstance(each, Filter)) for name, hint in hints.items()}


def refuse_unknown(what: str, given: Mapping[str, Any], known: Mapping[str, Filter]) -> None:
    """Raise `InvalidInput` for filters that do not exist."""
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise InvalidInput(f"{what} are not found by {', '.join(unknown)}; by {', '.join(known)}")


def one_of(name: str, given: object, choices: Collection[str]) -> tuple[str, ...]:
    """Return one text or several. Raises `InvalidInput` if one is not among `choices`."""
    found = texts(name, given)
    unknown = [each for each in found if choices and each not in choices]
    if unknown:
        raise InvalidInput(f"there is no {name} {', '.join(unknown)}; there are {', '.join(choices)}")
    return found


def time(name: str, given: object) -> int | None:
    """Return a point in time as microseconds, or None."""
    if given is None:
        return None
    if isinstance(given, datetime) and given.tzinfo is not None:
        return to_micros(given)
    if isinstance(given, int | float) and not isinstance(given, bool):
        return round(given * SECOND)
    raise InvalidInput(f"{name} is an aware datetime, such as datetime.now(UTC), or epoch seconds, not {given!r}")


def texts(name: str, given: object) -> tuple[str, ...]:
    """Return one text or several as a tuple. None and an empty list return an empty one."""
    if given is None:
        return ()
    values = (given,) if isinstance(given, str) else given
    if not isinstance(values, Collection) or isinstance(values, Mapping):
        raise InvalidInput(f"{name} is a text or a list of texts, not {given!r}")
    found: tuple[Any, ...] = tuple(values)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if len(found) > MOST_VALUES:
        raise InvalidInput(f"{name} has {len(found):,} values; ask for at most {MOST_VALUES:,} at a time")
    for each in found:
        if not isinstance(each, str):
            raise InvalidInput(f"{name} is a text or a list of texts, not {given!r}")
        _check_text(name, each)
    return tuple(str(each) for each in found)


def text(name: str, given: object) -> str | None:
    """Return one text, or None."""
    if given is not None and not isinstance(given, str):
        raise InvalidInput(f"{name} is a text, not {given!r}")
    if given is not None:
        _check_text(name, given)
    return given


def flag(name: str, given: object) -> bool | None:
    """Return True, False, or None for either."""
    if given is not None and not isinstance(given, bool):
        raise InvalidInput(f"{name} is True or False, not {given!r}")
    return given


def page_size(given: object, what: str) -> int:
    """Return the size of a page. Raises `InvalidInput` for one below 1."""
    if isinstance(given, bool) or not isinstance(given, int):
        raise InvalidInput(f"limit is a whole number, not {given!r}")
    if given < 1:
        raise InvalidInput(f"a page has at least one {what}, not {given}")
    return given


def _check_text(name: str, given: str) -> None:
    try:
        given.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{name} is text that can be stored, not {given!r}") from None
    if "\0" in given:
        raise InvalidInput(f"{name} is text without zero characters, not {given!r}")


def cursor(given: str | None) -> str | None:
    """Return the `next` of a page, passed back. Anything else is an error, because it would silently return the first page."""
    if given is not None and not _CURSOR.fullmatch(given):
        raise InvalidInput(f"after is the `next` of the page before, not {given!r}")
    return given


def time_cursor(given: str | None) -> tuple[int, str] | None:
    """Return the `next` of a page that is ordered by a time and an id."""
    if given is None:
        return None
    micros, _, last = given.partition(":")
    try:
        return int(micros), last
    except ValueError:
        raise InvalidInput(f"after is the `next` of the page before, not {given!r}") from None
