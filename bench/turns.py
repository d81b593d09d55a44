"""Compare this code with another revision of it, in turns within one measurement.

    python -m bench.turns 841454b                              every kind of work, on both databases
    python -m bench.turns main --turns 20 --only "step, def run" --database postgres

Two processes, one for each revision, keep an app open on the same server or disk and work alternately, a fraction of a second each, so a
minute in which the machine is slow makes both slower. A ratio below 1 means that this code is faster.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import click
from rich.table import Table

from bench.harness import PROJECT, SCRATCH, Kind, as_installed, console, digits, machine, targets
from bench.processor import all_seconds
from bench.turns_worker import WORK

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

    from bench.harness import Target

_WARM_UPS: Final = 2
_SAMPLES: Final = 2_000
"""Of the bootstrap, which says how far the median of so few turns can be trusted."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What one unit of work took, in microseconds."""

    wall: float
    worker: float
    """Processor time."""
    server: float
    """Processor time; 0 on SQLite, which works in the process of the worker."""

    @property
    def processor(self) -> float:
        return self.worker + self.server


class Side:
    """A process that works with the code of one revision."""

    def __init__(self, source: Path, target: Target) -> None:
        self._server = target.server
        self._process = subprocess.Popen(
            [sys.executable, str(PROJECT / "bench" / "turns_worker.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=as_installed() | {"PYTHONPATH": str(source), "MAINSPRING_URL": target.fresh()},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def work(self, what: str) -> Taken:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        before = self._server_seconds()
        self._process.stdin.write(what + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"the process that was to do {what!r} has ended")
        took: dict[str, Any] = json.loads(answer)
        server = (self._server_seconds() - before) / took["units"] * 1e6
        return Taken(took["wall"], took["worker"], server)

    def _server_seconds(self) -> float:
        return 0.0 if self._server is None else all_seconds(self._server)


@contextlib.contextmanager
def other_source(revision: str) -> Generator[Path, None, None]:
    """Check a revision out beside the project, for as long as the block lasts."""
    folder = SCRATCH / f"turns-{os.getpid()}"
    SCRATCH.mkdir(exist_ok=True)
    subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(folder), revision], check=True, cwd=PROJECT)
    try:
        yield folder / "src"
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", str(folder)], check=True, cwd=PROJECT)


def compare(target: Target, other: Path, what: str, turns: int) -> list[tuple[Taken, Taken]]:
    """Let both sides do the same work alternately; which of them begins changes from turn to turn."""
    with Side(other, target) as before, Side(PROJECT / "src", target) as now:
        for _ in range(_WARM_UPS):
            before.work(what)
            now.work(what)
        pairs: list[tuple[Taken, Taken]] = []
        for turn in range(turns):
            if turn % 2:
                mine = now.work(what)
                pairs.append((before.work(what), mine))
            else:
                theirs = before.work(what)
                pairs.append((theirs, now.work(what)))
        return pairs


def ratio(pairs: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Return the median of now : before over the turns, and the bounds in which it lies in 95 of 100 resamplings."""
    chance = random.Random(0)
    each = [now / before for before, now in pairs if before]
    if not each:
        return 1.0, 1.0, 1.0
    medians = sorted(statistics.median(chance.choices(each, k=len(each))) for _ in range(_SAMPLES))
    return statistics.median(each), medians[_SAMPLES // 40], medians[-_SAMPLES // 40]


@click.command(help=__doc__)
@click.argument("revision")
@click.option("--turns", default=12, show_default=True, help="How often each side works.")
@click.option("--only", "chosen", multiple=True, type=click.Choice(list(WORK)), help="This work; can be repeated.")
@click.option("--database", "kinds", multiple=True, type=click.Choice(["sqlite", "postgres"]))
def main(revision: str, turns: int, chosen: tuple[str, ...], kinds: tuple[Kind, ...]) -> None:
    table = Table(title=f"This code against {revision}, {turns} turns; {machine()}", title_justify="left")
    for column in ("what", "database", "before", "now", "time, now : before", "processor time, now : before"):
        table.add_column(column, justify="left" if column in {"what", "database"} else "right")
    with other_source(revision) as other, targets(kinds or ("sqlite", "postgres")) as found:
        for target in found:
            for what in chosen or WORK:
                pairs = compare(target, other, what, turns)
                _add(table, what, target.kind, pairs)
                console().print(f"{target.kind}: {what} is measured", style="dim")
    console().print(table)


def _add(table: Table, what: str, kind: Kind, pairs: Sequence[tuple[Taken, Taken]]) -> None:
    before, now = (statistics.median(side.wall for side in sides) for sides in zip(*pairs, strict=True))
    wall = ratio([(a.wall, b.wall) for a, b in pairs])
    processor = ratio([(a.processor, b.processor) for a, b in pairs])
    table.add_row(
        what,
        kind,
        f"{before:.{digits(before)}f} µs",
        f"{now:.{digits(now)}f} µs",
        *(f"{middle:.3f} ({low:.2f} to {high:.2f})" for middle, low, high in (wall, processor)),
    )


if __name__ == "__main__":
    main()
