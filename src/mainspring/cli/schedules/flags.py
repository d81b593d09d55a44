"""The options that describe a schedule, and the description that they make."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mainspring.cli.options import pairs
from mainspring.errors import InvalidInput
from mainspring.model.schedules import Overlap
from mainspring.recurrence import Spec
from mainspring.recurrence.instants import parse_instant
from mainspring.recurrence.search.search import FOLDS, GAPS

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import tzinfo

F = TypeVar("F", bound="Callable[..., Any]")

_TIMES = ("cron", "intervals", "calendars")
_SPEC = (*_TIMES, "exclude", "timezone", "start", "end", "jitter", "gap", "fold")
_POLICY = ("overlap", "catchup", "pause_on_failure", "limit", "max_running", "buffer_limit", "coalesce")
_OPTIONS = {"run_id": "id", "timeout": "timeout", "run_attribute": "attributes", "version": "version"} | {
    name: name for name in ("queue", "priority", "partition")
}
_NONE = "none"

_FLAGS = (
    click.option("--workflow", metavar="NAME", help="The function to start."),
    click.option(
        "--arg", "args", multiple=True, metavar="JSON", help="An argument of the function, in order. Repeatable."
    ),
    click.option("--input", "input_", metavar="JSON", help="Its arguments as an object by name."),
    click.option("--run-id", metavar="TEXT", help="The prefix of its runs' ids.  [default: the schedule's id]"),
    click.option("--timeout", metavar="DURATION", help="The timeout of its runs."),
    click.option("--run-attribute", multiple=True, metavar="NAME=VALUE", help="An attribute of its runs. Repeatable."),
    click.option("--version", metavar="TEXT", help="The version of the app that executes its runs."),
    click.option("--queue", metavar="NAME", help="The queue that its runs wait in."),
    click.option("--priority", type=int, metavar="N", help="Smaller first, in that queue.  [default: 0]"),
    click.option("--partition", metavar="TEXT", help="The partition of that queue."),
    click.option("--cron", multiple=True, metavar="TEXT", help="A cron expression, dialect temporal. Repeatable."),
    click.option(
        "--interval", "intervals", multiple=True, metavar="6h/5h", help="An interval, with offset. Repeatable."
    ),
    click.option("--calendar", "calendars", multiple=True, metavar="JSON", help="A calendar. Repeatable."),
    click.option("--exclude", multiple=True, metavar="WHAT", help="Excluded: calendar, date or cron. Repeatable."),
    click.option("--timezone", metavar="ZONE", help="An IANA name such as Europe/Paris.  [default: UTC]"),
    click.option("--start", metavar="TIME", help="Not before this time, in that zone unless it has an offset."),
    click.option("--end", metavar="TIME", help="Not after this time, in that zone unless it has an offset."),
    click.option("--jitter", metavar="DURATION", help="Delay each start by up to this duration."),
    click.option("--gap", type=click.Choice(GAPS), help="Times that the clocks jump over."),
    click.option("--fold", type=click.Choice(FOLDS), help="Times that the clocks show twice."),
    click.option("--spec", "spec_file", metavar="FILE", help="The whole spec as JSON instead. - reads it from stdin."),
    click.option("--overlap", metavar="POLICY", help=f"{', '.join(Overlap)}."),
    click.option("--catchup", metavar="DURATION", help="How late a missed tick may start. none: any time."),
    click.option(
        "--pause-on-failure",
        type=click.IntRange(min=0),
        is_flag=False,
        flag_value=1,
        metavar="[N]",
        help="Pause after a failure, or after N in a row. 0: never.",
    ),
    click.option("--limit", metavar="N", help="How many runs the clock may start. none: any number."),
    click.option("--max-running", metavar="N", help="How many runs may be unfinished. none: the policy's own."),
    click.option("--buffer-limit", metavar="N", help="How many ticks may wait. none: any number."),
    click.option("--coalesce/--no-coalesce", default=None, help="Start only the latest missed tick."),
    click.option("--attribute", multiple=True, metavar="NAME=VALUE", help="An attribute of the schedule. Repeatable."),
    click.option("--note", metavar="TEXT", help="A note, shown with the schedule."),
)


def describing(function: F) -> F:
    """Add the options that describe a schedule."""
    for flag in reversed(_FLAGS):
        function = flag(function)
    return function


def described(given: dict[str, Any], present: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the JSON description of a schedule from the given options only.

    With a `present` spec, any of --cron, --interval and --calendar replaces all three.
    """
    made: dict[str, Any] = {}
    if given["workflow"] is not None:
        made["workflow"] = given["workflow"]
    if given["args"]:
        made["args"] = [_json(text, "--arg") for text in given["args"]]
    if given["input_"] is not None:
        made["input"] = _json(given["input_"], "--input")
    if given["note"] is not None:
        made["note"] = given["note"]
    if given["attribute"]:
        made["attributes"] = pairs(given["attribute"], "--attribute")
    options = {key: given[flag] for flag, key in _OPTIONS.items() if given[flag] not in (None, ())}
    if "attributes" in options:
        options["attributes"] = pairs(options["attributes"], "--run-attribute")
    policy = {name: _policy_value(name, given[name]) for name in _POLICY if given[name] is not None}
    spec = _spec(given, {} if present is None else dict(present["spec"]))
    return made | {key: part for key, part in (("options", options), ("policy", policy), ("spec", spec)) if part}


def _spec(given: dict[str, Any], present: dict[str, Any]) -> dict[str, Any] | None:
    named = {name: given[name] for name in _SPEC if given[name]}
    if given["spec_file"] is not None:
        if named:
            raise click.UsageError("--spec is the whole spec; leave out the other options of it")
        written: dict[str, Any] = read_json(given["spec_file"])
        return written
    if not named:
        return None
    if any(name in named for name in _TIMES):
        present = {key: value for key, value in present.items() if key not in _TIMES}
    for name in (*_TIMES, "exclude"):
        if name in named:
            named[name] = [
                _json(text, f"--{name.removesuffix('s')}") if text[:1] in "{[" else text for text in named[name]
            ]
    spec = {**present, **named}
    for name in ("start", "end"):
        if name in named:
            spec[name] = parse_instant(named[name], f"--{name}", _zone(spec)).isoformat()
    return spec


def _zone(spec: dict[str, Any]) -> tzinfo:
    """Return the schedule's zone, which applies to dates and times without an offset."""
    return Spec.from_dict({key: spec[key] for key in ("timezone", "timezoneData") if spec.get(key)}).zone.tzinfo


def _policy_value(name: str, given: Any) -> Any:
    if name in {"overlap", "pause_on_failure", "coalesce"}:
        return given
    if given == _NONE:
        return None
    if name == "catchup":
        return given
    try:
        return int(given)
    except ValueError:
        raise click.UsageError(f"--{name.replace('_', '-')} is a whole number or none, not {given!r}") from None


def read_json(name: str) -> Any:
    """Return the contents of a JSON file. `-` is stdin."""
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        return json.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{name}: {error}") from None
    except json.JSONDecodeError as error:
        raise InvalidInput(f"{name}: line {error.lineno}, column {error.colno}: {error.msg}") from None


def _json(text: str, flag: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise click.UsageError(f"{flag}: {text!r} is not JSON: {error.msg} at column {error.colno}") from None
