"""`mainspring doctor`: health checks."""

from __future__ import annotations

import click

from mainspring.app.settings import Settings
from mainspring.cli import display
from mainspring.cli.commands import FAILED, Command, note, output_option, url_option


@click.command(cls=Command)
@url_option
@output_option("table", "json")
@click.pass_context
def doctor(ctx: click.Context, url: str, output: str) -> None:
    """Check the database, tables, clocks, workers and stranded runs, and print hints.

    Exit code 1 if something is wrong.
    """
    from mainspring.operations import health  # noqa: PLC0415  (imports much that other commands do not need)

    settings = Settings()
    findings = list(health.examine(url, settings, settings.lease))
    if output == "json":
        display.as_json(findings)
    else:
        display.table(("VERDICT", "WHAT", "FOUND"), [(one.verdict, one.subject, one.found) for one in findings])
        hints = list(dict.fromkeys(f"{one.subject}: {one.hint}" for one in findings if one.hint))
        if hints:
            note("\n" + "\n".join(hints))
    if any(one.verdict == health.WRONG for one in findings):
        ctx.exit(FAILED)
