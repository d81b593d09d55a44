"""Check the promises of the library after every action of a simulated fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.engine.residency.phases import STORED_AS_WAITING, Phase
from mainspring.model.runs import RunFilter
from mainspring.model.states import State, is_legal

if TYPE_CHECKING:
    from mainspring.engine.engine import Engine
    from mainspring.engine.replay.execution import Execution
    from mainspring.model.runs import Run, Step
    from mainspring.store.sqlite.store import SqliteStore


class Broken(AssertionError):
    """A promise was broken."""


class Auditor:
    """Compares the state before the last action with the state after it."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._runs: dict[str, Run] = {}
        self._steps: dict[tuple[str, str], Step] = {}
        self.acknowledged: set[str] = set()
        self._changes = -1
        self.executions = 0
        self.repeated = 0

    def check(self) -> None:
        """Compare the database with its state before the last action."""
        changes = self._store.changes()
        if changes == self._changes:
            return
        self._changes = changes
        runs = {run.id: run for run in self._store.runs(RunFilter(limit=10_000))}
        for run_id in self.acknowledged - runs.keys():
            raise Broken(f"run {run_id} was acknowledged and is gone")
        for run in runs.values():
            before = self._runs.get(run.id)
            if before is not None:
                self._compare(before, run)
        self._runs = runs

    def _compare(self, before: Run, now: Run) -> None:
        if before == now:
            return
        if before.state is not now.state and not is_legal(before.state, now.state):
            raise Broken(f"run {now.id} went from {before.state} to {now.state}")
        if before.state.ended and (before.state, before.output, before.error) != (now.state, now.output, now.error):
            raise Broken(f"run {now.id} had ended as {before.state} and was changed afterwards")
        if now.epoch < before.epoch and not self._was_released_unbegun(before, now):
            raise Broken(f"run {now.id} went back from epoch {before.epoch} to {now.epoch}")
        if now.state is State.WAITING and now.owner is None:
            self._check_wakes(now)
        if (
            before.owner is not None
            and now.owner is not None
            and before.owner != now.owner
            and now.epoch == before.epoch
        ):
            raise Broken(f"run {now.id} changed hands within epoch {now.epoch}")
        self._compare_steps(now.id)

    def _was_released_unbegun(self, before: Run, now: Run) -> bool:
        """Whether a claim was released under which nothing was recorded."""
        written = any(step.epoch == before.epoch for step in self._store.steps(now.id))
        return now.owner is None and now.epoch == before.epoch - 1 and not written

    def _check_wakes(self, run: Run) -> None:
        """Check that a time, a message or the end of another run will wake a suspended run."""
        waits = [step for step in self._store.steps(run.id) if step.completed is None]
        due = min((step.due for step in waits if step.due is not None), default=None)
        if due is not None and (run.due is None or run.due > due):
            raise Broken(f"run {run.id} waits until {run.due}, though one of its waits is over at {due}")
        if run.due is None and not any(step.child is not None for step in waits):
            raise Broken(f"run {run.id} waits for nothing that is recorded: nothing will wake it")

    def check_engine(self, engine: Engine) -> None:
        """Compare the runs of a worker with its counters, and with the database."""
        waiting = sum(ex.phase in STORED_AS_WAITING for ex in engine.executions.values())
        if engine.residency.waiting != waiting:
            raise Broken(f"{engine.worker_id} counts {engine.residency.waiting} waiting runs and has {waiting}")
        for ex in engine.executions.values():
            self._check_execution(ex)

    def _check_execution(self, ex: Execution) -> None:
        def broken(what: str) -> Broken:
            return Broken(f"run {ex.id} is {ex.phase.value}, and {what}")

        if ex.phase in {Phase.SUSPENDING, Phase.PARKING} and ex.held_wakes is None:
            raise broken("wake-ups are not held")
        if ex.phase is Phase.WAITING and ex.held_wakes is not None:
            raise broken("wake-ups are held")
        if ex.phase is Phase.HALTED and ex.signal is None:
            raise broken("there is no signal that halted it")
        if (
            ex.suspended and not ex.waits and ex.tasks.is_busy() is False
        ):  # a task whose wait is over is about to continue
            raise broken("it is suspended without waiting for anything")
        if ex.acting < 0 or ex.invoking < 0 or ex.outstanding < 0:
            raise broken("it has counted more ends than beginnings")
        run = self._runs.get(ex.id)
        if run is None or (run.owner, run.epoch) != (ex.engine.worker_id, ex.epoch):
            return  # recovered by another worker; this one will find out
        if ex.suspended and run.state not in {State.WAITING, State.CANCELLING}:
            raise broken(f"the database has it as {run.state}")

    def _compare_steps(self, run_id: str) -> None:
        for step in self._store.steps(run_id):
            before = self._steps.get((run_id, step.position))
            if before is not None and before.completed is not None:
                voided = step.output is None and step.error is None
                if not voided and (before.seq, before.output, before.error) != (step.seq, step.output, step.error):
                    raise Broken(f"run {run_id}: the outcome at {step.position} was changed after it was recorded")
            self._steps[run_id, step.position] = step

    def executing(self, run_id: str, position: str, epoch: int) -> None:
        """Check a step that begins to execute: its outcome must not be recorded yet, except in a worker that lost the run."""
        self.executions += 1
        run = self._store.run(run_id)
        if run is None or run.epoch != epoch or run.owner is None:
            self.repeated += 1
            return
        recorded = {step.position: step for step in self._store.steps(run_id)}.get(position)
        if recorded is not None and recorded.completed is not None:
            raise Broken(
                f"run {run_id}: {recorded.kind} {recorded.name!r} at {position} is executed again after it was recorded"
            )

    def finish(self) -> None:
        """Check that every run has ended."""
        left = [run for run in self._runs.values() if not run.state.ended]
        if left:
            listed = ", ".join(f"{run.id} ({run.state}, owner {run.owner})" for run in left[:5])
            raise Broken(f"{len(left)} runs never ended: {listed}")
