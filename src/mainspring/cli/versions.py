"""`mainspring versions`: versions of the app, their runs, and stranded runs."""

from __future__ import annotations

import click

from mainspring.app.settings import Settings
from mainspring.cli import display
from mainspring.cli.audit import carry_out, perform, reason_option
from mainspring.cli.commands import Group, ids_from, note, output_option, url_option
from mainspring.cli.terminal import data
from mainspring.model.clock import to_datetime
from mainspring.operations.connect import connect
from mainspring.operations.versions import VERSION_ACTIONS, PatchInfo


@click.group(cls=Group)
def versions() -> None:
    """Show versions of the app, and continue stranded runs."""


@versions.command(name="list")
@url_option
@output_option("table", "json", "ids")
def list_(url: str, output: str) -> None:
    """List versions, newest first: workers, unfinished runs, and why some of them are stranded.

    \b
      mainspring versions list
    """
    with connect(url, Settings()) as operations:
        found = operations.versions.list()
        now = to_datetime(operations.clock.now())
    if output == "json":
        display.as_json(found)
        return
    if output == "ids":
        for each in found:
            data(each.version)
        return
    rows: list[list[str]] = []
    for each in found:
        seen = display.ago(each.first_seen, now) if each.first_seen else ""
        row = [each.version, seen, str(each.workers), str(each.live), str(sum(each.stranded.values()))]
        reasons = [f"{count}: {reason}" for reason, count in each.stranded.items()] or [""]
        rows += [[*row, reasons[0]], *(["", "", "", "", "", reason] for reason in reasons[1:])]
    display.table(("VERSION", "FIRST SEEN", "WORKERS", "UNFINISHED", "STRANDED", "WHY"), rows)


@versions.command
@url_option
@output_option("table", "json")
def patches(url: str, output: str) -> None:
    """List the patches that unfinished runs have used. The old path of a patch is needed while there are old runs.

    \b
      mainspring versions patches
    """
    with connect(url, Settings()) as operations:
        found = operations.versions.patches()
    head = ("PATCH", "WORKFLOW", "NEW RUNS", "OLD RUNS")
    display.listing(output, found, head=head, row=_patch_row, none="no patches")


def _patch_row(patch: PatchInfo) -> tuple[str, ...]:
    return patch.name, patch.workflow, str(patch.new), str(patch.old)


@versions.command(name="set-newest")
@click.argument("version")
@url_option
@reason_option
def set_newest(version: str, url: str, reason: str | None) -> None:
    """Make a version the newest one: its declarations of schedules and queues hold, as after a deploy of it.

    Use it to roll back: start workers of the older version, then name that version here.

    \b
      mainspring versions set-newest 2026.3 --reason "2026.4 loses orders"
    """
    with connect(url, Settings()) as operations:
        _, answer = perform(
            operations,
            VERSION_ACTIONS["set_newest"],
            version,
            lambda: operations.versions.set_newest(version),
            reason=reason,
        )
    note(answer.message)


@versions.command
@click.argument("run_ids", metavar="ID…", nargs=-1, required=True)
@url_option
@click.option("--version", metavar="VERSION", help="Only workers of this version may continue them.")
@reason_option
def force(run_ids: tuple[str, ...], url: str, version: str | None, reason: str | None) -> None:
    """Let stranded runs continue on any source. An ID of - reads ids from stdin.

    If the source requests the recorded operations the run continues, otherwise it fails. `mainspring replay` checks this beforehand.

    \b
      mainspring runs list --stranded -o ids | mainspring versions force -
      mainspring runs list --stranded -o ids | mainspring runs fork - --failed
    """
    ids = ids_from(run_ids)
    with connect(url, Settings()) as operations:
        forced = carry_out(
            operations,
            "versions.force",
            ids,
            lambda: operations.versions.force(ids, version),
            lambda found: found,
            reason=reason,
            version=version,
        )
        for run_id, done in forced.items():
            if done:
                data(run_id)
            else:
                note(f"{run_id} is not stranded")
