"""Explore interleavings: `python -m tests.interleavings --minutes 10`, or see one again: `--case NAME --schedule "12:1 40:2"`."""

from __future__ import annotations

import logging
import sys
import time

import click

from tests.interleavings import old_defects
from tests.interleavings.cases import BY_NAME, CASES
from tests.interleavings.explore import Broken, exhaust, replay, walk
from tests.interleavings.patching import patched

_ROUND = 5.0
"""Seconds for a case until the next one has its turn."""


@click.command(help=__doc__)
@click.option("--minutes", default=1.0, show_default=True, help="For how long.")
@click.option("--case", "part", default="", help="Only cases whose name contains this.")
@click.option("--first", default=1_000_000, show_default=True, help="The first seed.")
@click.option("--preemptions", type=int, help="Instead of seeds: every schedule with up to so many preemptions.")
@click.option("--schedule", help="Only this schedule of the case, with all that its threads do.")
@click.option(
    "--defect", type=click.Choice(list(old_defects.DEFECTS)), help="Put this old defect back, to see it found."
)
@click.option("--list", "listing", is_flag=True, help="Only list the cases.")
def main(
    *,
    minutes: float,
    part: str,
    first: int,
    preemptions: int | None,
    schedule: str | None,
    defect: str | None,
    listing: bool,
) -> None:
    logging.getLogger("mainspring").setLevel(logging.CRITICAL + 1)
    logging.getLogger("concurrent.futures").setLevel(logging.CRITICAL + 1)
    chosen = [case for case in CASES if part in case.name] or [case for name, case in BY_NAME.items() if part in name]
    if part in BY_NAME:
        chosen = [BY_NAME[part]]
    if listing or not chosen:
        click.echo("\n".join(case.name for case in chosen or BY_NAME.values()))
        sys.exit(0 if listing else 2)
    with patched():
        if schedule is not None:
            _show(chosen[0].name, schedule)
        if defect is not None:
            with old_defects.put_back(defect) as name:
                _search([name], minutes, first, preemptions)
        _search([case.name for case in chosen], minutes, first, preemptions)


def _show(name: str, schedule: str) -> None:
    scheduler = replay(BY_NAME[name], schedule)
    click.echo("\n".join(scheduler.trace))
    click.echo(str(scheduler.finding or "nothing is wrong with this one"))
    sys.exit(1 if scheduler.finding else 0)


def _search(names: list[str], minutes: float, first: int, preemptions: int | None) -> None:
    """Round after round over all cases, each time with the seeds after the last; or each case once, for everything."""
    until = time.monotonic() + minutes * 60
    seeds = dict.fromkeys(names, first)
    left, broken, total = list(names), 0, 0
    while left and time.monotonic() < until:
        for name in list(left):
            seconds = max(until - time.monotonic(), 0.0)
            try:
                if preemptions is None:
                    report = walk(BY_NAME[name], range(seeds[name], sys.maxsize), seconds=min(seconds, _ROUND))
                else:
                    report = exhaust(BY_NAME[name], preemptions, seconds=seconds / len(left))
                    left.remove(name)
            except Broken as found:
                click.echo(str(found))
                report, broken = found.report, broken + 1
                left.remove(name)
            seeds[name] += report.schedules
            total += report.schedules
            click.echo(str(report), err=True)
    click.echo(f"{total:,} schedules of {len(names)} cases, {broken} cases failed")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
