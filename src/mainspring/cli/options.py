"""Options that commands share: times, and the filters of runs and schedules, made from the record of filters.

Times are in UTC, as commands print them, unless they have an offset.
"""

from __future__ import annotations

import json
from datetime import UTC
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mainspring.errors import InvalidInput
from mainspring.model.clock import to_datetime
from mainspring.recurrence.durations import parse_duration
from mainspring.recurrence.instants import parse_instant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from mainspring.model.clock import Clock
    from mainspring.operations.filters import Filter


_UNITS = ("s", "m", "h", "d", "w")
"""The last characters of durations, which begin with a digit. No time ends so."""


def time(text: str) -> datetime:
    """Parse the time of an option: 2026-01-31 (midnight), 2026-01-31T12:00, 2026-01-31T12:00+01:00."""
    try:
        return parse_instant(text, "time", UTC)
    except InvalidInput as error:
        raise click.BadParameter(str(error).removeprefix("time: ")) from None


def past(text: str, flag: str, clock: Clock) -> datetime:
    """Return a time, or that of a duration ago: 2h."""
    return _moment(text, flag, clock, -1)


def future(text: str, flag: str, clock: Clock) -> datetime:
    """Return a time, or that of a duration ahead: 2h."""
    return _moment(text, flag, clock, 1)


def _moment(text: str, flag: str, clock: Clock, sign: int) -> datetime:
    now = to_datetime(clock.now())
    if text == "now":
        return now
    if not text[:1].isdigit() or not text.endswith(_UNITS):
        return parse_instant(text, flag, UTC)
    try:
        return now + sign * parse_duration(text)
    except InvalidInput as error:
        raise InvalidInput(f"{flag}: {str(error).removeprefix('duration: ')}") from None


F = TypeVar("F", bound="Callable[..., Any]")


def filter_options(filters: Mapping[str, Filter]) -> Callable[[F], F]:
    """Add the options of filters. They are passed as keyword arguments for `filters_of`."""

    def add(function: F) -> F:
        for name, each in reversed([*filters.items()]):
            function = _option(name, each)(function)
        return function

    return add


def _option(name: str, each: Filter) -> Callable[[F], F]:
    names = each.options or (f"--{name.replace('_', '-')}",)
    if each.kind == "flag":
        return click.option(*names, name, is_flag=True, default=None, help=each.help)
    if each.kind == "time":
        ago = "in two hours" if name.startswith("due") else "two hours ago"
        return click.option(*names, name, metavar="TIME", help=f"{each.help} 2h: {ago}.")
    if each.kind == "attributes":
        more = "A VALUE that is JSON is parsed. Repeatable."
        return click.option(*names, name, multiple=True, metavar="NAME=VALUE", help=f"{each.help} {more}")
    kind = click.Choice(each.choices) if each.choices else None
    metavar = None if each.choices else each.metavar
    return click.option(*names, name, multiple=True, type=kind, metavar=metavar, help=f"{each.help} Repeatable.")


def filters_of(filters: Mapping[str, Filter], given: dict[str, Any], clock: Clock) -> Any:
    """Return the filters of the options."""
    found: dict[str, Any] = {name: given[name] for name in filters if given.get(name) not in (None, ())}
    for name, value in found.items():
        if filters[name].kind == "attributes":
            found[name] = pairs(value, "--attribute")
        elif filters[name].kind == "time":
            read = future if name.startswith("due") else past
            found[name] = read(value, f"--{name.replace('_', '-')}", clock)
    return found


def pairs(given: tuple[str, ...], flag: str) -> dict[str, Any]:
    """Parse texts like NAME=VALUE to a dict. A value that is JSON is parsed."""
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=flag)
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            found[name] = value
    return found
