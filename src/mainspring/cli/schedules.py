"""`mainspring schedules`: seeing when things start, what has become of it, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mainspring.app.settings import Settings
from mainspring.cli import display, schedule_page
from mainspring.cli.commands import FAILED, Group, note, output_option, url_option
from mainspring.cli.preview import preview
from mainspring.cli.schedule_changes import CHANGES
from mainspring.cli.schedule_flags import pairs
from mainspring.cli.terminal import data
from mainspring.cli.times import future, past
from mainspring.model.clock import to_datetime
from mainspring.model.schedules import Outcome
from mainspring.operations.connect import connect

if TYPE_CHECKING:
    from mainspring.operations.schedule_infos import SchedulePage


@click.group(cls=Group)
def schedules() -> None:
    """See schedules and what became of their ticks; make, change and stop them."""


schedules.add_command(preview)
for change in CHANGES:
    schedules.add_command(change)


@schedules.command(name="list")
@url_option
@click.option("--id-prefix", metavar="TEXT", help="Only ids that begin so.")
@click.option("--paused/--active", default=None, help="Only paused ones, or only those that are not.")
@click.option("--workflow", metavar="NAME", help="Only those that start this function.")
@click.option("--attribute", "attributes", multiple=True, metavar="NAME=VALUE", help="Only with this. Repeatable.")
@click.option("--due-before", metavar="TIME", help="Only with a tick before this time; 2h: within two hours.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="How many.")
@click.option("--after", metavar="ID", help="Go on after a page that said so.")
@output_option("table", "json", "ids")
def list_(
    url: str,
    id_prefix: str | None,
    workflow: str | None,
    attributes: tuple[str, ...],
    due_before: str | None,
    *,
    paused: bool | None,
    limit: int,
    after: str | None,
    output: str,
) -> None:
    """List schedules by id.

    \b
      mainspring schedules list --paused
      mainspring schedules list --attribute tenant=acme --due-before 1h
    """
    with connect(url, Settings()) as operations:
        page: SchedulePage = operations.schedules.list(
            id_prefix=id_prefix,
            paused=paused,
            workflow=workflow,
            attributes=pairs(attributes, "--attribute") if attributes else None,
            due_before=None if due_before is None else future(due_before, "--due-before", operations.clock),
            after=after,
            limit=limit,
        )
        now = to_datetime(operations.clock.now())
    if output == "json":
        display.as_json(page)
    elif output == "ids":
        for schedule in page.schedules:
            data(schedule.id)
    elif page.schedules:
        display.table(schedule_page.HEAD, [schedule_page.row(schedule, now) for schedule in page.schedules])
    else:
        note("no schedules")
    if page.next:
        note(f"there are more: --after {page.next}")


@schedules.command
@click.argument("schedule", metavar="ID")
@url_option
@output_option("table", "json")
def show(schedule: str, url: str, output: str) -> None:
    """Show one schedule: when, what and how, its state, its latest ticks, the next times."""
    with connect(url, Settings()) as operations:
        found = operations.schedules.describe(schedule)
        now = to_datetime(operations.clock.now())
    if output == "json":
        display.as_json(found)
    else:
        schedule_page.show(found, now)


@schedules.command
@click.argument("schedule", metavar="ID")
@url_option
@click.option("--since", metavar="TIME", help="Only from this time on; 2h: two hours ago.")
@click.option("--until", metavar="TIME", help="Only up to this time.")
@click.option(
    "--outcome",
    multiple=True,
    type=click.Choice([outcome.value for outcome in Outcome]),
    help="Only with this outcome. Repeatable.",
)
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="How many.")
@click.option("--after", metavar="CURSOR", help="Go on after a page that said so.")
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
    """List what became of a schedule's times, latest first, with the reason. `-o ids` prints the ids of their runs.

    \b
      mainspring schedules ticks nightly --outcome missed --outcome skipped_overlap
      mainspring schedules ticks nightly --since 1d -o ids | mainspring runs cancel -
    """
    with connect(url, Settings()) as operations:
        page = operations.schedules.ticks(
            schedule,
            since=None if since is None else past(since, "--since", operations.clock),
            until=None if until is None else past(until, "--until", operations.clock),
            outcome=outcome,
            after=after,
            limit=limit,
        )
    if output == "json":
        display.as_json(page)
    elif output == "ids":
        for tick in page.ticks:
            if tick.run is not None:
                data(tick.run)
    elif page.ticks:
        display.table(schedule_page.TICK_HEAD, [schedule_page.tick_row(tick) for tick in page.ticks])
    else:
        note("no ticks")
    if page.next:
        note(f"there are more: --after {page.next}")


@schedules.command
@click.argument("schedule", metavar="ID")
@url_option
@click.option("--since", metavar="TIME", default="1d", show_default=True, help="From this time on; 1d: a day ago.")
@click.option("--until", metavar="TIME", default="now", show_default=True, help="Up to this time.")
@output_option("table", "json")
@click.pass_context
def audit(ctx: click.Context, schedule: str, url: str, *, since: str, until: str, output: str) -> None:
    """Account for all times of a schedule in a period: how many were on time, late, delayed, missed, skipped, paused.

    Exit code 1 if one was missed, late, overdue, dropped, could not be started, or has no tick at all.

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
        schedule_page.show_audit(found)
    if not found.healthy:
        ctx.exit(FAILED)
