"""Play every case there is, or some of them: `python -m tests.injection --database sqlite --shape steps --injection stop`.

Each failure is one line: the shape, the injection, the point, and what is wrong. One case alone: `--case "steps stop turn:17"`.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tests.injection.databases import databases
from tests.injection.generated.shrink import shrink as shrunk
from tests.injection.injections import INJECTIONS, SEEDS
from tests.injection.scene import SHAPES
from tests.injection.seams import verbs
from tests.injection.series import Name, Series
from tests.support.postgres import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Iterable


@click.command(help=__doc__)
@click.option("--database", type=click.Choice(["sqlite", "memory", "postgres"]), default="sqlite", show_default=True)
@click.option(
    "--shape", "shapes", multiple=True, type=click.Choice(sorted(SHAPES)), help="Only this one; can be repeated."
)
@click.option("--injection", "injections", multiple=True, type=click.Choice(sorted(INJECTIONS)), help="The same.")
@click.option("--case", "cases", multiple=True, help='One case, as a failure names it: "steps stop turn:17".')
@click.option(
    "--minutes", type=float, help="Stop after this time. Cases come in a mixed order, so what was played is a sample."
)
@click.option("--seed", default=0, show_default=True, help="Of that order.")
@click.option("--seeds", default=SEEDS, show_default=True, help="How many orders of threads are drawn by lot.")
@click.option("--every", default=1, show_default=True, help="Only every n-th point.")
@click.option("--generated", default=0, help="So many generated programs, from --seed on, instead of the shapes.")
@click.option("--each", default=12, show_default=True, help="Cases of each generated program, drawn by lot.")
@click.option(
    "--shrink", is_flag=True, help="Of a generated program that fails (--case), look for the smallest that does."
)
@click.option("--resume", is_flag=True, help="Pass over cases that were played before with --resume.")
@click.option("--first", is_flag=True, help="Stop at the first failure.")
@click.option("--verbose", is_flag=True, help="Everything there is to say about a failure.")
def main(  # noqa: PLR0917  (click passes options by name)
    database: str,
    shapes: tuple[str, ...],
    injections: tuple[str, ...],
    cases: tuple[str, ...],
    minutes: float | None,
    seed: int,
    seeds: int,
    every: int,
    generated: int,
    each: int,
    shrink: bool,
    resume: bool,
    first: bool,
    verbose: bool,
) -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(PostgresServer(fsync=False)) if database == "postgres" else None
        series = Series(stack.enter_context(contextlib.closing(databases(database, server))), seeds=seeds)
        wanted = [INJECTIONS[name] for name in injections or INJECTIONS]
        total = len(cases) or generated * each
        names: Iterable[Name]
        if cases:
            names = [Name.parse(text) for text in cases]
        elif generated:
            names = (name for number in range(seed, seed + generated) for name in series.lots(number, each, wanted))
        else:
            names = drawn = list(series.names([SHAPES[name] for name in shapes or SHAPES], wanted))[::every]
            random.Random(seed).shuffle(drawn)
            total = len(drawn)
        done = Played(Path("build", f"injection-{database}.txt")) if resume else None
        report = Report(total)
        until = time.monotonic() + minutes * 60 if minutes else float("inf")
        for name in names:
            if time.monotonic() > until or (first and report.failed):
                break
            if done is not None and str(name) in done.names:
                continue
            report.add(
                shrunk(series, name, click.echo) if shrink else name, series.play(name).problems, verbose=verbose
            )
            if done is not None:
                done.add(name)
        report.show(series, database)
    sys.exit(1 if report.failed else 0)


class Played:
    """Cases that were played before, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.names = set(path.read_text().splitlines()) if path.exists() else set[str]()
        path.parent.mkdir(exist_ok=True)

    def add(self, name: Name) -> None:
        with self._path.open("a") as file:
            file.write(f"{name}\n")


class Report:
    """Failures as they come, and a table at the end."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._began = time.monotonic()
        self.played: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.kinds: Counter[tuple[str, str]] = Counter()

    def add(self, name: Name, problems: list[str], *, verbose: bool) -> None:
        self.played[name.injection] += 1
        if problems:
            self.failed[name.injection] += 1
            for kind in {problem.split(":")[0] for problem in problems}:
                self.kinds[name.injection, kind] += 1
            lines = problems if verbose else [problem.split("\n")[0][:300] for problem in problems]
            click.echo(f"{name} | {(chr(10) if verbose else ' | ').join(lines)}")
        played = self.played.total()
        if played % 500 == 0:
            click.echo(f"{played:,} of {self._total:,} cases, {self.failed.total():,} failed", err=True)

    def show(self, series: Series, database: str) -> None:
        seconds = time.monotonic() - self._began
        click.echo(f"\n{'injection':16} {'cases':>7} {'failed':>7}  how")
        for injection, played in sorted(self.played.items()):
            kinds = ", ".join(
                f"{kind} {times}" for (name, kind), times in sorted(self.kinds.items()) if name == injection
            )
            click.echo(f"{injection:16} {played:7,} {self.failed[injection]:7,}  {kinds}")
        called = len(series.verbs & verbs())
        click.echo(
            f"{self.played.total():,} cases on {database} in {seconds:.0f} s, {self.failed.total():,} failed; "
            f"they called {called} of the {len(verbs())} verbs of the store"
        )


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of what is repeated
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.injection", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    main()
