"""What the auditors look at when a soak is over: the ledger, and all rows as the databases have them then."""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from mainspring.model.states import State
from mainspring.store.schedules import ScheduleFilter, TickFilter
from tests.soak.functions.programs import PROGRAMS
from tests.soak.functions.transactions import TABLE
from tests.soak.watcher import connect, rows
from tests.support.audit import all_runs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mainspring.model.runs import Run, Step
    from mainspring.model.schedules import Schedule, Tick
    from mainspring.store.protocol import Store
    from tests.soak.ledger import Ledger, Line

_MOST = 1_000_000


@dataclass(frozen=True)
class UserRow:
    """A row that a transaction has left in a table of the user's."""

    run: str
    label: str
    token: str


@dataclass
class Evidence:
    """Everything there is to look at. Nothing is at work any more."""

    kind: str
    folder: Path
    ledger: Ledger
    runs: dict[str, Run]
    steps: dict[str, list[Step]]
    schedules: dict[str, Schedule]
    ticks: dict[str, list[Tick]]
    user_rows: list[UserRow]
    joined_rows: list[tuple[str, str]]

    # -- promises ------------------------------------------------------------------------------------------------------
    @cached_property
    def promised(self) -> dict[str, Line]:
        """The runs that the client was promised, by id."""
        return {line.run: line for line in self.ledger.of("promised")}

    @cached_property
    def _stopped(self) -> dict[str, str]:
        return {line.run: line.what for line in self.ledger.of("cancel", "terminate")}

    def stopped(self, run: Run | None) -> str | None:
        """Whether an operator tried to stop the run or one that it is a child of: `cancel` or `terminate`."""
        while run is not None:
            if run.id in self._stopped:
                return self._stopped[run.id]
            run = self.runs.get(run.parent or "")
        return None

    def timed(self, run: Run | None) -> bool:
        """Whether the run or one that it is a child of was given a time."""
        while run is not None:
            if run.timeout is not None:
                return True
            run = self.runs.get(run.parent or "")
        return False

    def clock_was_set(self) -> bool:
        return bool(self.ledger.of("clock"))

    # -- records -------------------------------------------------------------------------------------------------------
    def recorded(self, run: str) -> Iterator[tuple[str, str, Step]]:
        """Label, token and record of each effect of a run whose outcome is recorded."""
        for step in self.steps.get(run, ()):
            if step.completed is not None and step.kind in {"step", "transaction", "undo"} and step.output:
                value = json.loads(step.output)
                if isinstance(value, str) and "|" in value:
                    label, token = value.split("|")
                    yield label, token, step

    def output(self, run: str) -> Any:
        text = self.runs[run].output
        return None if text is None else json.loads(text)

    def operations(self, run: Run) -> list[Any]:
        """The program of a run that carries one out."""
        found: list[Any] = json.loads(run.input)["operations"] if run.workflow in PROGRAMS else []
        return found

    def story(self, run: str) -> str:
        """All that there is about a run: its row, its records, its effects, and what was done to processes and database meanwhile."""
        row = self.runs.get(run)
        effects = self.ledger.by_run.get(run, [])
        lines = [f"  {row}", *(f"  {step}" for step in self.steps.get(run, ()))]
        if effects:
            first, last = effects[0].at - 2, effects[-1].at + 5
            about = [line for line in self.ledger.lines if first <= line.at <= last and (line.run in {run, ""})]
            lines += [str(line) for line in about if line.what != "tries"][:60]
        return "\n".join(lines)

    def keep(self) -> None:
        """Write all rows into the folder, one JSON object each: the database may not outlive the soak."""
        with (self.folder / "rows.jsonl").open("w") as file:
            for rows in (self.runs.values(), *self.steps.values(), self.schedules.values(), *self.ticks.values()):
                file.writelines(f"{type(row).__name__} {msgspec.json.encode(row).decode()}\n" for row in rows)

    @property
    def succeeded(self) -> list[Run]:
        return [run for run in self.runs.values() if run.state is State.SUCCEEDED]


def gather(kind: str, folder: Path, ledger: Ledger, store: Store, databases: list[str]) -> Evidence:
    """Read everything. `databases` are those with a table of the user's; the first is the app's own."""
    runs = {run.id: run for run in all_runs(store)}
    schedules = {row.id: row for row in store.schedules.page(ScheduleFilter(limit=1_000))}
    user_rows: list[UserRow] = []
    joined: list[tuple[str, str]] = []
    for url in databases:
        with contextlib.closing(connect(url)) as db:
            user_rows += [UserRow(*row) for row in rows(db, f"SELECT run, label, token FROM {TABLE}")]
            if url == databases[0]:
                joined = [tuple(row) for row in rows(db, "SELECT run, listener FROM soak_joined")]
    return Evidence(
        kind,
        folder,
        ledger,
        runs,
        _steps(store, runs),
        schedules,
        {name: store.schedules.ticks(TickFilter(name, limit=_MOST)) for name in schedules},
        user_rows,
        joined,
    )


def _steps(store: Store, runs: dict[str, Run]) -> dict[str, list[Step]]:
    found: defaultdict[str, list[Step]] = defaultdict(list)
    for run in runs:
        found[run] = store.steps(run)
    return found
