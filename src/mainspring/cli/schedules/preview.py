"""`mainspring schedules preview`: describe any spec, list its times and print a calendar. Needs no database."""

from __future__ import annotations

import calendar
import json
import warnings
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click

from mainspring.cli.commands import Command, Misuse
from mainspring.cli.schedules.flags import read_json
from mainspring.cli.terminal import echo, safe_json, safe_lines
from mainspring.model.clock import SystemClock, to_datetime
from mainspring.recurrence import Cron, Spec, lint
from mainspring.recurrence.cron.dialects import DIALECTS
from mainspring.recurrence.instants import parse_instant
from mainspring.recurrence.search.search import FOLDS, GAPS
from mainspring.recurrence.zones.transitions import Effect, effects

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_MONTHS = 3
_MOST_TIMES = 10_000


class Preview(NamedTuple):
    """A spec with its next times and the clock changes that affect them."""

    spec: Spec
    after: datetime
    times: list[datetime]
    effects: list[Effect]


def make_preview(spec: Spec, after: datetime, until: datetime | None, count: int) -> Preview:
    """Return the first `count` times after one moment, up to another if it is given."""
    times: list[datetime] = []
    for when in spec.times(after):
        if len(times) == count or (until is not None and when.timestamp() > until.timestamp()):
            break
        times.append(when)
    shown_until = (
        until if until is not None and len(times) < count else times[-1] + timedelta(days=1) if times else after
    )
    return Preview(spec, after, times, effects(spec, after, shown_until))


@click.command("preview", cls=Command, short_help="Show when a cron expression or a spec fires.")
@click.argument("expression", required=False)
@click.option("--spec", "spec_file", metavar="FILE", help="A spec as JSON. - reads it from stdin.")
@click.option(
    "--dialect", type=click.Choice(DIALECTS), default="temporal", show_default=True, help="The dialect of EXPRESSION."
)
@click.option("--timezone", metavar="ZONE", help="An IANA name such as Europe/Paris.  [default: UTC]")
@click.option("--gap", type=click.Choice(GAPS), help="Times that the clocks jump over.  [default: after]")
@click.option("--fold", type=click.Choice(FOLDS), help="Times that the clocks show twice.  [default: first]")
@click.option("--after", metavar="TIME", help="Begin after this time, e.g. 2027-01-31T09:00Z.  [default: now]")
@click.option("--until", metavar="TIME", help="Stop after this time.")
@click.option(
    "--count", type=click.IntRange(1, _MOST_TIMES), help="How many times to show.  [default: 10; with --until: all]"
)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def preview(expression: str | None, spec_file: str | None, output: str, **given: Any) -> None:
    """Show when EXPRESSION, or the spec in FILE, fires: as a sentence, a list, and a calendar.

    A mark shows where a change of the clocks shifts, skips or repeats a time.
    """
    if (expression is None) == (spec_file is None):
        raise click.UsageError("give either an EXPRESSION or --spec FILE")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        spec = _spec_of_file(spec_file, given) if spec_file is not None else _spec_of_text(str(expression), given)
    after = _moment(given["after"], "--after", spec) or to_datetime(SystemClock().now())
    until = _moment(given["until"], "--until", spec)
    count = given["count"] or (_MOST_TIMES if until is not None else 10)
    shown = make_preview(spec, after, until, count)
    for warning in caught:
        echo(f"warning: {safe_lines(str(warning.message))}", err=True)
    if output == "json":
        click.echo(safe_json(json.dumps(preview_json(shown), indent=2, ensure_ascii=False)))
        return
    for line in preview_lines(shown):
        echo(line)
    for advice in lint(spec, shown.after):
        echo(f"warning: {safe_lines(advice.message)}", err=True)


def _spec_of_text(expression: str, given: dict[str, Any]) -> Spec:
    policy = {name: given[name] for name in ("gap", "fold", "timezone") if given[name]}
    # A plain string is checked more strictly than a Cron: only an explicit dialect defines what six fields mean.
    chosen = click.get_current_context().get_parameter_source("dialect") is not click.core.ParameterSource.DEFAULT
    if not chosen and len(fields := expression.split()) == 6 and fields[-1] == "*":
        raise Misuse(
            "six fields that end with a star: seconds first, or year last? For seconds write --dialect vixie, else leave the year out"
        )
    return Spec(cron=[Cron(expression, given["dialect"]) if chosen else expression], **policy)


def _spec_of_file(name: str, given: dict[str, Any]) -> Spec:
    written = read_json(name)
    changed = {key: given[key] for key in ("gap", "fold", "timezone") if given[key]}
    return Spec.from_dict(cast("dict[str, Any]", written) | changed if isinstance(written, dict) else written)


def _moment(text: str | None, name: str, spec: Spec) -> datetime | None:
    return None if text is None else parse_instant(text, name, spec.zone.tzinfo)


def preview_json(shown: Preview) -> dict[str, Any]:
    marks = _marks(shown)
    return {
        "description": shown.spec.describe(),
        "timezone": shown.spec.timezone,
        "times": [
            {
                "local": when.isoformat(),
                "utc": _utc(when.timestamp()),
                "transition": _effect_json(marks.get(when.timestamp())),
            }
            for when in shown.times
        ],
        "transitions": [_effect_json(effect) for effect in shown.effects],
        "warnings": [{"code": advice.code, "message": advice.message} for advice in lint(shown.spec, shown.after)],
        "spec": shown.spec.to_dict(),
    }


def _effect_json(effect: Effect | None) -> dict[str, Any] | None:
    if effect is None:
        return None
    return {
        "kind": effect.kind,
        "wall": effect.wall.isoformat(),
        "at": [when.isoformat() for when in effect.at],
        "changed": effect.changed.isoformat(),
        "hits": effect.hits,
        "message": effect.message,
    }


def preview_lines(shown: Preview) -> Iterator[str]:
    """Yield the description, the list with its marks, and the months."""
    yield shown.spec.describe()
    yield ""
    if not shown.times:
        yield "No times."
        return
    marks = _marks(shown)
    rows: list[tuple[float, str, str]] = []
    for when in shown.times:
        mark = marks.get(when.timestamp())
        rows.append((when.timestamp(), f"{when:%a %Y-%m-%d %H:%M:%S %Z}", mark.message if mark else ""))
    skipped = [effect for effect in shown.effects if not effect.at]
    rows += [(skip.changed.timestamp(), f"{skip.wall:%a %Y-%m-%d %H:%M:%S} -", skip.message) for skip in skipped]
    width = max(len(local) for _, local, _ in rows)
    for instant, local, message in sorted(rows, key=lambda row: row[0]):
        utc = " " * 20 if local.endswith(" -") else _utc(instant)
        yield f"{'!' if message else ' '} {local:<{width}}  {utc}  {message}".rstrip()
    yield ""
    yield from month_lines(shown)


def month_lines(shown: Preview) -> Iterator[str]:
    """Yield the months of the first times, with days of times in brackets, and days of clock changes with a !."""
    counts: dict[tuple[int, int], dict[int, int]] = {}
    for when in shown.times:
        days = counts.setdefault((when.year, when.month), {})
        days[when.day] = days.get(when.day, 0) + 1
    changed = {(effect.changed.year, effect.changed.month, effect.changed.day) for effect in shown.effects}
    for year, month in list(counts)[:_MOST_MONTHS]:
        yield f"{calendar.month_name[month]} {year}".center(28).rstrip()
        yield " Mo  Tu  We  Th  Fr  Sa  Su"
        for week in calendar.monthcalendar(year, month):
            cells = [_cell(day, day in counts[year, month], (year, month, day) in changed) for day in week]
            yield "".join(cells).rstrip()
        yield ""
    if len(counts) > _MOST_MONTHS:
        yield f"… and {len(counts) - _MOST_MONTHS} more months"


def _cell(day: int, fires: bool, changes: bool) -> str:  # noqa: FBT001 - two facts about a day, always given together
    if day == 0:
        return "    "
    end = "!" if changes else "]" if fires else " "
    return f"{'[' if fires else ' '}{day:>2}{end}"


def _marks(shown: Preview) -> dict[float, Effect]:
    # By instant: two datetimes of one zone that differ only in their fold are equal in Python.
    return {when.timestamp(): effect for effect in shown.effects for when in effect.at}


def _utc(instant: float) -> str:
    return to_datetime(round(instant) * 1_000_000).isoformat().replace("+00:00", "Z")
