"""The options with which commands say which runs they mean."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from mainspring.cli.times import time
from mainspring.model.states import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.operations.run_filters import RunFilters

F = TypeVar("F", bound="Callable[..., Any]")

_TIMES = ("created", "started", "completed", "due")


def duration(text: str) -> float | str:
    """A length of time as people write it: 1h30m, or a number of seconds, as in code."""
    return float(text) if text.isascii() and text.isdigit() else text


def filter_options(function: F) -> F:
    """The options that choose runs; they arrive as keyword arguments for `filters_of`."""
    options = [
        click.option("--state", "state", multiple=True, type=click.Choice([state.value for state in State]), help="Only in this state. Repeatable."),
        click.option("--workflow", "--name", "workflow", multiple=True, metavar="NAME", help="Only of this function. Repeatable."),
        click.option("--kind", multiple=True, type=click.Choice(["workflow", "step", "transaction"]),
                     help="Only of this kind of function. Repeatable."),
        click.option("--id-prefix", multiple=True, metavar="TEXT", help="Only ids that begin so. Repeatable."),
        click.option("--queue", multiple=True, metavar="NAME", help="Only of this queue. Repeatable."),
        click.option("--key", multiple=True, metavar="KEY", help="Only with this key. Repeatable."),
        click.option("--parent", multiple=True, metavar="ID", help="Only children of this run. Repeatable."),
        click.option("--schedule", multiple=True, metavar="ID", help="Only those that this schedule started. Repeatable."),
        click.option("--version", multiple=True, metavar="VERSION",
                     help="Only those that this version of the app began. Repeatable."),
        click.option("--forked-from", multiple=True, metavar="ID", help="Only forks of this run. Repeatable."),
        click.option("--attribute", "attributes", multiple=True, metavar="NAME=VALUE",
                     help="Only with this attribute; a VALUE that is JSON is read as such. Repeatable."),
        click.option("--stranded", is_flag=True, help="Only those that no live worker can continue."),
    ]  # fmt: skip
    for name in _TIMES:
        options.append(
            click.option(f"--{name}-after", type=time, metavar="TIME", help=f"Only {name} at this time or later.")
        )
        options.append(
            click.option(f"--{name}-before", type=time, metavar="TIME", help=f"Only {name} before this time.")
        )
    for option in reversed(options):
        function = option(function)
    return function


def filters_of(given: dict[str, Any]) -> RunFilters:
    """The filters that the options ask for."""
    found = {name: value for name, value in given.items() if value not in (None, (), False)}
    if "attributes" in found:
        found["attributes"] = dict(map(_attribute, found["attributes"]))
    return cast("RunFilters", found)


def _attribute(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--attribute")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value
