"""What every benchmark shares: figures, the median of three, where to measure, the tables and the result file.

A figure alone says little about a library and much about the machine, so what counts are ratios: the library against
the bare database or against a peer, measured in the same run.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from rich.console import Console
from rich.table import Table

from tests.support.postgres import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

Kind = Literal["sqlite", "postgres"]
Unit = Literal["ms", "/s", "B", "MB", "pieces", "%", "µs"]

PROJECT: Final = Path(__file__).resolve().parents[1]
RESULTS: Final = PROJECT / "bench" / "results"
SCRATCH: Final = PROJECT / "build"


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing measured: who (`bare`, `mainspring`, `dbos`), what, on which database, and what came out.

    `database` is `-` where none is involved. `note` says what a reader must know to compare fairly.
    """

    who: str
    what: str
    database: str
    value: float
    unit: Unit
    note: str = ""

    def __str__(self) -> str:
        return f"{self.value:,.{digits(self.value)}f} {self.unit}"


@dataclass(frozen=True, slots=True)
class Target:
    """A kind of database to measure on; `fresh` gives the URL of an empty one, on disk, with every commit synced."""

    kind: Kind
    fresh: Callable[[], str]
    server: int | None = None
    """The process of the server, where there is one."""


Measure = Callable[[Target], Iterable[Figure]]


@dataclass(frozen=True, slots=True)
class Budget:
    """A promise about one of our figures: its ratio to another one (who, what), or without one the value itself.

    Times and sizes must be `at_most` that much, rates `at_least`.
    """

    what: str
    against: tuple[str, str] | None
    at_most: float | None = None
    at_least: float | None = None
    database: Kind | None = None
    """For one kind of database alone."""

    def kept_by(self, ratio: float) -> bool:
        return (self.at_most is None or ratio <= self.at_most) and (self.at_least is None or ratio >= self.at_least)

    def __str__(self) -> str:
        return f"≤ {self.at_most:g}" if self.at_most is not None else f"≥ {self.at_least:g}"


def median_of_three(measure: Callable[[], float]) -> float:
    """The middle of three measurements: one disturbance by a neighbour does not reach the table."""
    return statistics.median(measure() for _ in range(3))


def seconds(action: Callable[[], object]) -> float:
    """How long `action` takes."""
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def p50_ms(action: Callable[[], object], times: int) -> float:
    """The median duration of `action`, called `times` times one after the other, in milliseconds."""
    return statistics.median(seconds(action) for _ in range(times)) * 1e3


@contextlib.contextmanager
def targets(kinds: Sequence[Kind]) -> Generator[list[Target], None, None]:
    """The databases to measure on, for as long as the block lasts."""
    with contextlib.ExitStack() as stack:
        found: list[Target] = []
        if "sqlite" in kinds:
            SCRATCH.mkdir(exist_ok=True)
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=SCRATCH)))
            numbers = iter(range(10**6))
            found.append(Target("sqlite", lambda: f"sqlite:///{directory / f'{next(numbers)}.db'}"))
        if "postgres" in kinds:
            server = stack.enter_context(PostgresServer(fsync=True))
            found.append(Target("postgres", server.create_database, server.pid))
            _warn_if_in_memory(server.directory)
        _warn_if_in_memory(SCRATCH)
        yield found


def as_installed() -> dict[str, str]:
    """An environment in which modules are compiled once and for all, as installers do it, whatever the caller's says."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def machine() -> str:
    """One line about what was measured on: without it a figure cannot be compared with another day's."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{_processor()}, {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.release()}, "
        f"{_filesystem(PROJECT)}; Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}; "
        f"load {os.getloadavg()[0]:.1f}"
    )


def print_figures(figures: Sequence[Figure]) -> None:
    """Everything measured, as it came out."""
    table = Table(title="Measured", title_justify="left")
    for column in ("what", "database", "who", "value", "note"):
        table.add_column(column, justify="right" if column == "value" else "left", overflow="fold")
    for figure in sorted(figures, key=lambda each: (each.what, each.database, each.who)):
        table.add_row(figure.what, figure.database, figure.who, str(figure), figure.note)
    console().print(table)


def print_ratios(figures: Sequence[Figure], budgets: Sequence[Budget]) -> bool:
    """Our figures against their budgets, as far as both sides were measured; says whether all of them are kept."""
    known = {(figure.who, figure.what, figure.database): figure for figure in figures}
    table = Table(title="Mainspring against its budget", title_justify="left")
    for column in ("what", "database", "ours", "theirs", "ratio", "budget", ""):
        table.add_column(column, justify="right" if column in {"ours", "theirs", "ratio", "budget"} else "left")
    kept = True
    for budget, ours in ((b, f) for b in budgets for f in figures if (f.who, f.what) == ("mainspring", b.what)):
        if budget.database not in {None, ours.database}:
            continue
        theirs = known.get((*budget.against, ours.database)) if budget.against else None
        if budget.against and theirs is None:
            continue
        ratio = ours.value / theirs.value if theirs else ours.value
        good = budget.kept_by(ratio)
        kept = kept and good
        table.add_row(
            ours.what,
            ours.database,
            str(ours),
            f"{theirs} ({theirs.who} {theirs.what})" if theirs else "",
            f"{ratio:.{digits(ratio)}f}" if theirs else "",
            str(budget) if theirs else f"{budget} {ours.unit}",
            "[green]kept[/]" if good else "[red]missed[/]",
        )
    if table.row_count:
        console().print(table)
    return kept


def write_results(figures: Sequence[Figure], details: Mapping[str, str]) -> Path:
    """Keep the run as JSON, so that a later one can be compared with it."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    at = datetime.now(UTC)
    path = RESULTS / f"{at:%Y%m%dT%H%M%SZ}.json"
    content = {"at": at.isoformat(), "machine": machine(), **details, "figures": [asdict(figure) for figure in figures]}
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    return path


def digits(value: float) -> int:
    """Decimals enough for three figures that mean something."""
    return 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3


def console() -> Console:
    # Piped into a file there is no width to ask for, and folded cells help nobody.
    return Console(width=max(shutil.get_terminal_size((150, 24)).columns, 100), highlight=False)


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _filesystem(path: Path) -> str:
    """The type of the file system that holds `path`, as far as the system tells."""
    with contextlib.suppress(OSError):
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
        holders: Iterator[tuple[int, str]] = (
            (len(point), kind) for point, kind in mounts if path.resolve().is_relative_to(point)
        )
        return max(holders, default=(0, "unknown disk"))[1]
    return "unknown disk"


def _warn_if_in_memory(path: Path) -> None:
    if _filesystem(path) in {"tmpfs", "ramfs"}:
        console().print(f"[yellow]{path} is in memory: a commit there never waits for a disk, and flatters everyone[/]")
