"""Simulate fleets under many seeds: `python -m tests.simulation --seeds 1000 [--first 0]`, or one of them: `--seed 123`."""

from __future__ import annotations

import sys
from collections import Counter

import click

from mainspring.testing.simulation import Faults, SimulationFailed, simulate
from tests.simulation.scenario import CALLS, CANCELLED, app


@click.command(help=__doc__)
@click.option("--seeds", default=100, show_default=True, help="How many.")
@click.option("--first", default=0, show_default=True, help="The first of them.")
@click.option("--seed", type=int, help="Only this one.")
def main(seeds: int, first: int, seed: int | None) -> None:
    undisturbed = simulate(app, CALLS, seed=0, faults=Faults.none())
    expected = {run: result for run, result in undisturbed.results.items() if run != "too-slow"}
    faults: Counter[str] = Counter()
    actions = executions = failed = 0
    chosen = range(first, first + seeds) if seed is None else [seed]
    for number, one in enumerate(chosen, 1):
        try:
            report = simulate(app, CALLS, seed=one, expected=expected, cancel=CANCELLED)
        except SimulationFailed as failure:
            failed += 1
            click.echo(f"{failure}\nor: python -m tests.simulation --seed {one}")
            continue
        faults.update(report.faults)
        actions += report.actions
        executions += report.executions
        if number % 50 == 0:
            click.echo(f"{number} seeds, {failed} failed", err=True)
    listed = ", ".join(f"{count:,} {what}" for what, count in sorted(faults.items()))
    click.echo(f"{len(chosen):,} seeds: {actions:,} actions, {executions:,} steps executed, {listed}; {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
