"""Operators against runs that end: whatever they do, every run ends as it says, and nothing of the inside is seen."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, ClassVar

from tests.random_programs.played import expected
from tests.random_programs.stage import Program

if TYPE_CHECKING:
    import random

    from mainspring import Client, RunInfo
    from tests.random_programs.stage import Stage

DEPTH = 2
INSIDE = ("Lost", "HandedBack", "Stopped", "Halted", "Parked", "Fenced")
"""Signals of the engine, which must never be how a run ends."""

ANSWERS = ("Declined", "RunFailed", "RunCancelled", "RunEnded", "NotFound", "NotSerializable")
"""What a run of this program may fail with: its own exception, and what becomes of its children."""


class EndingRuns(Program):
    name: ClassVar[str] = "ending_runs"

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.started: dict[str, str] = {}
        self.deleted: set[str] = set()
        self.by_hand: set[str] = set()
        self._count = 0

    def act(self, client: Client, chance: random.Random, actor: int) -> str:
        if chance.random() < 0.3 or not self.started:
            self._count += 1
            name = f"t{actor}-{self._count}"
            client.options(id=name, after=chance.choice([0, 0, 0, 0.2])).start.sync("tree", depth=DEPTH, label=name)
            self.started[name] = name
            return "started"
        name = chance.choice([*self.started][-30:])
        victim = chance.choice([name, name, f"{name}-0", f"{name}-1", f"{name}-0-0"])
        verb = chance.choice(
            ["cancel", "terminate", "resume", "retry", "fork", "complete", "fail", "reschedule", "delete", "export"]
        )
        runs = client.runs
        if verb == "fork":
            steps = runs.steps.sync(victim)
            step = chance.choice([None, *(each.position for each in steps if each.completed is not None)])
            handle = runs.fork.sync(victim, step=step)
            self.started[handle.id] = name
        elif verb == "complete":
            if any(runs.complete.sync(victim, result=["by hand"], reason="asked").values()):
                self.by_hand.add(victim)
        elif verb == "fail":
            runs.fail.sync(victim, reason="asked")
        elif verb == "reschedule":
            runs.reschedule.sync(victim, at=datetime.now(UTC) + timedelta(seconds=chance.choice([0, 0.1])))
        elif verb == "delete":
            if runs.delete.sync(victim)[victim]:
                self.deleted.add(victim)
        elif verb == "export":
            runs.export.sync(victim)
        else:
            getattr(runs, verb).sync(victim)
        return verb

    def audit(self, client: Client) -> None:
        there: dict[str, RunInfo] = {}
        cursor: str | None = None
        while True:
            page = client.runs.list.sync(workflow="tree", limit=500, after=cursor)
            there |= {run.id: run for run in page.runs}
            cursor = page.next
            if cursor is None:
                break
        for run_id in self.started:
            self.check(run_id in there or run_id in self.deleted, f"{run_id} was acknowledged and is gone")
        for run in there.values():
            said = f"{run.reason} {(run.error or {}).get('type')}"
            self.check(not any(word in said for word in INSIDE), f"{run.id} ended {run.state}: {said}")
            if run.state == "succeeded" and run.output != ["by hand"]:
                depth, name = run.input["depth"], run.input["label"]
                right = expected(depth, name)
                tampered = "by hand" in str(run.output)
                self.check(tampered or run.output == right, f"{run.id} gave {run.output}, not {right}")
            if run.state == "failed" and run.reason is None:
                self.check(any(word in said for word in ANSWERS), f"{run.id} failed with {said}")
        self.stage.outcome.done["runs"] = len(there)
