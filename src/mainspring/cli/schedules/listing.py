"""`mainspring schedules`: show schedules, their ticks and the outcomes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from mainspring.app.settings import Settings
from mainspring.cli import display
from mainspring.cli.commands import FAILED, Group, note, output_option, url_option
from mainspring.cli.options import filter_options, filters_of, future, past
from mainspring.cli.schedules.changes import CHANGES
from mainspring.cli.schedules.page import HEAD, TICK_HEAD, row, show_audit, show_schedule, tick_row
from mainspring.cli.schedules.preview import preview
from mainspring.cli.terminal import data
from mainspring.model.clock import to_datetime
from mainspring.model.schedules import TickOutcome
from mainspring.operations.connect import connect
from mainspring.operations.filters import SCHEDULE_FILTERS

if TYPE_CHECKING:
    from mainspring.operations.schedules.info import SchedulePage


@click.group(cls=Group)
def schedules() -> None:
    """Show schedules and the outcomes of their ticks. Create, change and stop them."""


schedules.add_command(preview)
for change in CHANGES:
    schedules.add_command(change)


@schedules.command(name="list")
@url_option
@filter_options(SCHEDULE_FILTERS)
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="The largest number to print.")
@click.option("--after", metavar="ID", help="Continue after a page: the cursor that it printed.")
@output_option("table", "json", "jsonl", "ids")
def list_(url: str, limit: int, after: str | None, output: str, **filters: Any) -> None:
    """List schedules by id.

    \b
      mainspring schedules list --paused
      mainspring schedules list --attribute tenant=acme --due-before 1h
    """
    with connect(url, Settings()) as operations:
        page: SchedulePage = operations.schedules.list(
            after=after, limit=limit, **filters_of(SCHEDULE_FILTERS, filters, operations.clock)
        )
        now = to_datetime(operations.clock.now())
    display.listing(
        output,
        page.schedules,
        page=page,
        name=lambda schedule: schedule.id,
        head=HEAD,
        row=lambda schedule: row(schedule, now),
        none="no schedules",
    )


@schedules.command
@url_option
@filter_options(SCHEDULE_FILTERS)
@output_option("table", "json")
def count(url: str, output: str, **filters: Any) -> None:
    """Count schedules by state.

    \b
      mainspring schedules count
      mainspring schedules count --workflow report --failing
    """
    with connect(url, Settings()) as operations:
        found = operations.schedules.count(**filters_of(SCHEDULE_FILTERS, filters, operations.clock))
    if output == "json":
        display.as_json(found)
    else:
        display.table(("STATE", "SCHEDULES"), [(state, str(number)) for state, number in found.items()])


@schedules.command
@click.argument("schedule", metavar="ID")
@url_option
@click.option("--after", metavar="TIME", default="now", show_default=True, help="From this time on. 2h: in two hours.")
@click.option("--until", metavar="TIME", help="Up to this time, included. 2h: in two hours.")
@click.option(
    "--count",
    "most",
    type=click.IntRange(1, 100_000),
    default=20,
    show_default=True,
    help="The largest number to print.",
)
@output_option("table", "json", "jsonl")
def times(schedule: str, url: str, after: str, until: str | None, *, most: int, output: str) -> None:
    """Print the nominal times of a schedule in a span of time, also while it is paused.

    \b
      mainspring schedules times nightly --after 2027-01-01 --until 2027-02-01
    """
    with connect(url, Settings()) as operations:
        first = future(after, "--after", operations.clock)
        last = None if until is None else future(until, "--until", operations.clock)
        found = operations.schedules.times(schedule, first, last, most)
    if output == "json":
        display.as_json(found)
    elif output == "jsonl":
        display.as_jsonl(found)
    else:
        for moment in found:
            data(moment.isoformat())
    if not found:
        note("no times")


@schedules.command
@click.argument("schedule", metavar="ID")
@url_option
@output_option("table", "json")
def show(schedule: str, url: str, output: str) -> None:
    """Show one schedule: its spec, action and policy, its state, its latest ticks, the next times."""
    with connect(url, Settings()) as operations:
        found = operations.schedules.describe(schedule)
        found = replace(found, recent=operations.pictures.with_states(found.recent))
        now = to_datetime(operations.clock.now())
    if output == "json":
        display.as_json(found)
    else:
        show_schedule(found, now)


@schedules.command
@click.argument("schedule", metavar="ID")
@url_option
@click.option("--since", metavar="TIME", help="Only from this time on. 2h: two hours ago.")
@click.option("--until", metavar="TIME", help="Only up to this time.")
@click.option(
    "--outcome",
    multiple=True,
    type=click.Choice([outcome.value for outcome in TickOutcome]),
    help="Only with this outcome. Repeatable.",
)
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="The largest number to print.")
@click.option("--after", metavar="CURSOR", help="Continue after a page: the cursor that it printed.")
@output_option("table", "json", "ids")
def ticks(
    schedule: str,
    url: str,
    since: str | None,
    until: str | None,
    outcome: tuple[str, ...],
    *,
    limit: int,
    after: str | None,
    output: str,
) -> None:
    """List the ticks of a schedule, latest first, with outcome and reason. `-o ids` prints the ids of their runs.

    \b
      mainspring schedules ticks nightly --outcome missed --outcome skipped_overlap
      mainspring schedules ticks nightly --since 1d -o ids | mainspring runs cancel -
    """
    with connect(url, Settings()) as operations:
        page = operations.pictures.ticks(
            schedule,
            since=None if since is None else past(since, "--since", operations.clock),
            until=None if until is None else past(until, "--until", operations.clock),
            outcome=outcome,
            after=after,
            limit=limit,
        )
    display.listing(
        output, page.ticks, page=page, name=lambda tick: tick.run, head=TICK_HEAD, row=tick_row, none="no ticks"
    )


@schedules.command
@click.argument("schedule", metavar="ID")
@url_option
@click.option("--since", metavar="TIME", default="1d", show_default=True, help="From this time on. 1d: a day ago.")
@click.option("--until", metavar="TIME", default="now", show_default=True, help="Up to this time.")
@output_option("table", "json")
@click.pass_context
def audit(ctx: click.Context, schedule: str, url: str, *, since: str, until: str, output: str) -> None:
    """Audit all times of a schedule in a period: how many were on time, late, delayed, missed, skipped, paused.

    Exit code 1 if one was missed, late, overdue, dropped, could not be started, or has no tick.

    \b
      mainspring schedules audit nightly --since 30d
      mainspring schedules list -o ids | xargs -n1 mainspring schedules audit --since 1d
    """
    with connect(url, Settings()) as operations:
        found = operations.schedules.audit(
            schedule, past(since, "--since", operations.clock), past(until, "--until", operations.clock)
        )
    if output == "json":
        display.as_json(found)
    else:
        show_audit(found)
    if not found.healthy:
        ctx.exit(FAILED)
