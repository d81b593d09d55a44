"""Check the values of filters. An error names the filter."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeAlias, get_type_hints

from mainspring.errors import InvalidInput
from mainspring.model.given import check_flag, check_name, check_time, check_whole

_CURSOR = re.compile(r"[0-9a-z]{24}")
_TIME_CURSOR = re.compile(r"(-?[0-9]{1,18}):(.*)", re.DOTALL)
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
    return None if given is None else check_time(name, given)


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
        check_name(name, each)
    return tuple(str(each) for each in found)


def text(name: str, given: object) -> str | None:
    """Return one text, or None."""
    return None if given is None else check_name(name, given)


def flag(name: str, given: object) -> bool | None:
    """Return True, False, or None for either."""
    return None if given is None else check_flag(name, given)


def page_size(given: object) -> int:
    """Return the size of a page. Raises `InvalidInput` for one below 1."""
    return check_whole("limit", given, 1)


def cursor(given: str | None) -> str | None:
    """Return the `next` of a page, passed back. Anything else is an error, because it would silently return the first page."""
    if given is not None and not _CURSOR.fullmatch(check_name("after", given)):
        raise InvalidInput(f"after is the `next` of the page before, not {given!r}")
    return given


def time_cursor(given: str | None) -> tuple[int, str] | None:
    """Return the `next` of a page that is ordered by a time and an id."""
    if given is None:
        return None
    found = _TIME_CURSOR.fullmatch(check_name("after", given))
    if found is None:
        raise InvalidInput(f"after is the `next` of the page before, not {given!r}")
    return int(found[1]), found[2]
