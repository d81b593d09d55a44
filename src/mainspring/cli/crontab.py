"""`mainspring crontab`: check crontab files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mainspring.cli import display
from mainspring.cli.commands import FAILED, Group, note, output_option
from mainspring.cli.options import time
from mainspring.cli.terminal import echo
from mainspring.errors import Fault, InvalidCron
from mainspring.model.clock import SystemClock, to_datetime

if TYPE_CHECKING:
    from datetime import datetime

    from mainspring.recurrence.cron.crontab_items import ParsedCronItem


@click.group(cls=Group)
def crontab() -> None:
    """Check crontab files."""


@crontab.command
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--count", type=click.IntRange(min=0), default=3, show_default=True, help="Next times of each entry.")
@click.option(
    "--after",
    type=time,
    metavar="TIME",
    help="Show times after this one, UTC unless it says otherwise.  [default: now]",
)
@output_option("table", "json")
@click.pass_context
def check(ctx: click.Context, file: Path, count: int, after: datetime | None, output: str) -> None:
    """Parse a crontab file, or stdin if FILE is `-`, and print when each entry fires. Needs no database.

    Faults are listed with line and column, and the exit code is 1 then. Entries that other crons read differently (`*/n` of
    dates and months) get a warning.

    \b
      mainspring crontab check crontab --count 5
    """
    from mainspring.recurrence import parse_crontab  # noqa: PLC0415  (slow to import)
    from mainspring.recurrence.cron.crontab_items import idle_faults  # noqa: PLC0415

    try:
        items = parse_crontab(sys.stdin.read() if str(file) == "-" else file.read_text("utf-8"))
        faults = idle_faults(items)
    except InvalidCron as error:
        items, faults = [], list(error.faults)
    except (OSError, UnicodeDecodeError) as error:
        items, faults = [], [Fault(f"cannot be read: {error}")]
    if faults:
        for fault in faults:
            echo(f"{file}: {fault}", err=True)
        ctx.exit(FAILED)
    since = after or to_datetime(SystemClock().now())
    entries = [_entry(item, since, count) for item in items]
    if output == "json":
        display.as_json(entries)
        return
    rows = [
        (entry["identifier"], entry["task"], entry["pattern"], entry["words"], ", ".join(entry["upcoming"]))
        for entry in entries
    ]
    if rows:
        display.table(("ENTRY", "TASK", "PATTERN", "MEANING", "NEXT (UTC)"), rows)
    warned = 0
    for entry in entries:
        for warning in entry["warnings"]:
            note(f"{file}: warning: {entry['identifier']}: {warning}")
            warned += 1
    note(f"{file}: {len(items)} entries, " + (f"{warned} warnings" if warned else "nothing wrong"))


def _entry(item: ParsedCronItem, since: datetime, count: int) -> dict[str, Any]:
    from mainspring.recurrence.cron.dialects.graphile import divisor_warnings  # noqa: PLC0415  (slow to import)

    spec = item.spec()
    options = item.options
    return {
        "identifier": item.identifier,
        "task": item.task,
        "pattern": item.cron.text,
        "words": spec.describe(),
        "payload": item.payload,
        "options": {
            "fill": item.backfill_period.total_seconds(),
            "max": options.max_attempts,
            "queue": options.queue_name,
            "jobKey": options.job_key,
            "jobKeyMode": options.job_key_mode,
            "priority": options.priority,
        },
        "warnings": divisor_warnings(item.cron.text),
        "upcoming": [f"{moment:%Y-%m-%d %H:%M}" for moment in spec.upcoming(since, count)] if count else [],
    }
