"""The values of filters, checked: what no database could compare is an error that names the filter."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from mainspring.errors import InvalidInput

_CURSOR = re.compile(r"[0-9a-z]{24}")
MOST_VALUES = 10_000
"""Databases take only so many values in one statement."""


def texts(name: str, given: object) -> tuple[str, ...]:
    """One text or several of them. None and an empty list ask for nothing."""
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
    """One text, or None."""
    if given is not None and not isinstance(given, str):
        raise InvalidInput(f"{name} is a text, not {given!r}")
    if given is not None:
        _check_text(name, given)
    return given


def flag(name: str, given: object) -> bool | None:
    """True, False, or None for either."""
    if given is not None and not isinstance(given, bool):
        raise InvalidInput(f"{name} is True or False, not {given!r}")
    return given


def page_size(given: object, what: str) -> int:
    """How many a page may have."""
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
    """The `next` of a page, handed back. Anything else would be page one for somebody who asked for another."""
    if given is not None and not _CURSOR.fullmatch(given):
        raise InvalidInput(f"after is the `next` of the page before, not {given!r}")
    return given
