"""Measure Mainspring, the bare databases, DBOS and PgQueuer in one run, and print what counts: the ratios.

    python -m bench.run                              everything (a few minutes)
    python -m bench.run --only sequential --only roundtrip --database sqlite
    python -m bench.run --no-peer                    without DBOS and PgQueuer
    python -m bench.run --history 1000000            ours with a million finished runs in the table

Ends with 1 when a budget is missed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import click

from bench import bare, core
from bench.distant import distant
from bench.fleet import fleet
from bench.functions import PENDING_COSTS, functions
from bench.harness import (
    PROJECT,
    Budget,
    Figure,
    Kind,
    Measure,
    Target,
    as_installed,
    console,
    machine,
    print_figures,
    print_ratios,
    targets,
    write_results,
)
from bench.history import with_past
from bench.lists import FILTERS, lists
from bench.messages import messages
from bench.queues import JOBS, jobs, queues
from bench.schedules import schedules
from bench.snapshots import SNAPSHOT_KINDS, snapshots
from bench.steady import steady
from bench.transactions import transactions
from bench.waking import QUEUES, waking
from bench.wal import wal
from bench.web import PAGES, web

if TYPE_CHECKING:
    from collections.abc import Iterator

SECTIONS: Final = (
    "footprint",
    "sequential",
    "roundtrip",
    "concurrent",
    "queued",
    "recovery",
    "schedules",
    "transactions",
    "functions",
    "queues",
    "snapshots",
    "messages",
    "fleet",
    "wal",
    "distant",
    "web",
)
LONG: Final = ("steady", "lists")
"""Only when they are asked for."""
_OWN: Final[dict[str, Measure]] = {
    "schedules": schedules,
    "transactions": transactions,
    "functions": functions,
    "messages": messages,
    "snapshots": snapshots,
    "fleet": fleet,
    "wal": wal,
    "distant": distant,
    "web": web,
    "steady": steady,
    "lists": lists,
}
"""Sections that compare ours with the bare database or with ourselves."""
KINDS: Final[tuple[Kind, ...]] = ("sqlite", "postgres")
PEER_PYTHON: Final = PROJECT / ".bench-venv" / "bin" / "python"

BUDGETS: Final = (
    Budget("step, async run", ("bare", "commit, beside steps"), at_most=2.2),
    Budget("step, def run", ("bare", "commit, beside steps"), at_most=1.6),
    Budget("start + step + finish", ("bare", "commit, beside runs"), at_most=6.5, database="sqlite"),
    Budget("start + step + finish", ("bare", "commit, beside runs"), at_most=5.5, database="postgres"),
    Budget("concurrent steps", ("dbos", "concurrent steps"), at_least=60),
    Budget("concurrent steps", ("bare", "batched rows"), at_least=0.10),
    Budget("queued runs", ("dbos", "queued runs"), at_least=30),
    Budget("recovery of 500 runs", ("dbos", "recovery of 500 runs"), at_most=0.10),
    Budget("import", None, at_most=120),
    Budget("memory", None, at_most=45),
    Budget("lateness of a tick", None, at_most=15),
    Budget("schedules made", None, at_least=5_000),
    Budget("start-up with 100,000 schedules", None, at_most=3_000),
    Budget("idle with 100,000 schedules", None, at_most=10),
    Budget("memory of 100,000 schedules", None, at_most=50),
    Budget("10,000 due at once", None, at_most=5_000),
    Budget("10,000 due at once, two processes", None, at_most=5_000),
    Budget("a year of five minutes", None, at_most=60_000),
    Budget("transaction, def run", ("bare", "transaction"), at_most=1.5),
    Budget("run_after(0) to first instruction", None, at_most=10),
    Budget("run_after(0) in another process", None, at_most=10),
    Budget("functions scheduled", ("bare", "batched rows, in turns"), at_least=0.15, database="sqlite"),
    Budget("functions scheduled", ("bare", "batched rows, in turns"), at_least=0.30, database="postgres"),
    Budget("message, same process", None, at_most=5),
    Budget("message from elsewhere", None, at_most=10),
    Budget("claims, many waiting", ("mainspring", "claims, few waiting"), at_most=2),
    Budget("enqueue to start", None, at_most=5),
    Budget("enqueue to start elsewhere", None, at_most=10),
    Budget(f"idle with {QUEUES} queues", None, at_most=10),
    Budget("jobs through a queue", ("pgqueuer", "jobs through a queue"), at_least=1.3),
    Budget("jobs through a queue: worker", ("pgqueuer", "jobs through a queue: worker"), at_most=1),
    Budget("jobs through a queue: server", ("pgqueuer", "jobs through a queue: server"), at_most=1),
    Budget("jobs of a batch function", None, at_least=25_000, database="postgres"),
    Budget("jobs of a batch function: worker", ("mainspring", "jobs through a queue: worker"), at_most=1),
    Budget("jobs enqueued", None, at_least=45_000, database="postgres"),
    *(
        Budget(
            f"{what} under an old snapshot, last", ("mainspring", f"{what} under an old snapshot, first"), at_least=0.7
        )
        for what in SNAPSHOT_KINDS
    ),
    *(Budget(f"slots in use at a distance, {what} a limit", None, at_least=80) for what in ("with", "without")),
    Budget("plain claims, many waiting", ("mainspring", "plain claims, few waiting"), at_most=2),
    *(Budget(f"{what}, many pending", ("mainspring", f"{what}, few pending"), at_most=2) for what in PENDING_COSTS),
    *(Budget(f"page: {name}", None, at_most=100) for name in PAGES if name != "runs of a rare workflow"),
    Budget("open page", None, at_most=10),
    *(Budget(f"list: {name}", None, at_most=50) for name in (*FILTERS, "counts")),
    Budget("statements per job", None, at_most=20, database="postgres"),
    Budget("connections of an idle worker", None, at_most=2, database="postgres"),
    Budget("log of a trivial job", None, at_most=1_300, database="postgres"),
    Budget("log of a step", None, at_most=360, database="postgres"),
    Budget("retention, 5 ms away", None, at_least=2_000, database="postgres"),
)


@click.command(help=__doc__)
@click.option(
    "--only", multiple=True, type=click.Choice((*SECTIONS, *LONG)), help="A section to measure; may be repeated."
)
@click.option("--database", multiple=True, type=click.Choice(KINDS), help="A database to measure on; may be repeated.")
@click.option("--peer/--no-peer", default=True, help="Measure DBOS and PgQueuer as well.")
@click.option("--peer-python", type=click.Path(path_type=Path), default=PEER_PYTHON, help="A Python that has them.")
@click.option("--history", default=0, help="Finished runs in the table before anything is measured.")
def main(only: tuple[str, ...], database: tuple[str, ...], *, peer: bool, peer_python: Path, history: int) -> None:
    sections = only or SECTIONS
    kinds = cast("tuple[Kind, ...]", database or KINDS)
    out = console()
    out.print(machine())
    if peer and not peer_python.exists():
        out.print(f"[yellow]DBOS and PgQueuer are left out: {peer_python} does not exist; `make bench` makes it[/]")
        peer = False
    figures: dict[tuple[str, str, str], Figure] = {}
    with targets(kinds) as found:
        for target in found:
            past = with_past(target, history) if history else target
            for figure in _measure(target, past, sections, peer_python if peer else None):
                figures[figure.who, figure.what, figure.database] = figure
    everything = list(figures.values())
    print_figures(everything)
    kept = print_ratios(everything, BUDGETS)
    out.print(f"kept as {write_results(everything, {'sections': ', '.join(sections)}).relative_to(PROJECT)}")
    sys.exit(0 if kept else 1)


def _measure(target: Target, past: Target, sections: tuple[str, ...], peer_python: Path | None) -> Iterator[Figure]:
    """Ours on databases with a past, if one is asked for; the others on empty ones."""
    yield from bare.measure(target)
    for name in sections:
        if name in core.SECTIONS:
            yield from core.SECTIONS[name](past)
    for name, measure in _OWN.items():
        if name in sections:
            yield from measure(target)
    if "queues" in sections:
        beside = peer_python if target.kind == "postgres" else None
        yield from jobs(
            target, None if beside is None else lambda: _peer(beside, "pgqueuer_peer.py", target.fresh(), str(JOBS))
        )
        yield from queues(target)
        yield from waking(target)
    if peer_python is not None:
        yield from _peer(peer_python, "dbos_peer.py", target.fresh(), *sections)


def _peer(python: Path, script: str, *arguments: str) -> Iterator[Figure]:
    """What a script in the peers' environment has measured: its last line."""
    words = [str(python), str(PROJECT / "bench" / script), *arguments]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, env=as_installed())
    for fields in json.loads(done.stdout.splitlines()[-1]):
        yield Figure(**fields)


if __name__ == "__main__":
    main()
