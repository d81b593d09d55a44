"""Figures for monitoring: the present state, and counters since the tables were created."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from mainspring.operations.figures import step_figures_of
from mainspring.operations.retention import Pruning
from mainspring.operations.workers import Workers
from mainspring.store.verbs.dashboard import CLASSES

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.model.clock import Clock
    from mainspring.store.protocol import Store
    from mainspring.store.verbs.dashboard import Amount

_LATEST = 100
_MOST_FUNCTIONS = 200
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with labels. The samples of a histogram are its buckets (label `le`), and with suffixes its sum and count."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    help: str
    samples: list[tuple[str, Labels, float]] = field(default_factory=list[tuple[str, Labels, float]])
    """Suffix of the name, labels, value."""

    def add(self, value: float, suffix: str = "", **labels: str) -> None:
        self.samples.append((suffix, tuple(labels.items()), value))


class Metrics:
    """Reads the figures. Blocks."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def families(self, shows_step: Callable[[str, str], bool] = lambda _workflow, _step: True) -> list[Family]:
        """Return all metrics. `shows_step` tells whether the name of a step of a workflow may be shown."""
        return [
            *self._now(),
            *self._queues(),
            *self._schedules(),
            *self._database(),
            *self._ended(self._store.dashboard.totals()),
            *self._steps(shows_step),
        ]

    def _now(self) -> list[Family]:
        dashboard, now = self._store.dashboard, self._clock.now()
        runs = Family(
            "mainspring_runs", "gauge", "Runs that have not ended, by state; at most 10,000 of each are counted."
        )
        for state, count in dashboard.live().items():
            runs.add(count, state=state)
        ready = dashboard.ready(now)
        late = Family("mainspring_runs_late", "gauge", "Runs that have been ready for more than ten seconds.")
        late.add(ready.late)
        oldest = Family(
            "mainspring_oldest_ready_seconds", "gauge", "How long the oldest ready run has waited for a worker."
        )
        oldest.add(max(0, now - ready.oldest) / 1e6 if ready.oldest is not None else 0)
        workers = Family("mainspring_worker_lease_age_seconds", "gauge", "How long ago each worker last showed life.")
        held = Family("mainspring_worker_runs", "gauge", "Runs that each worker owns.")
        loads = dashboard.loads()
        for worker in Workers(self._store, self._clock).list():
            workers.add(worker.silent, worker=worker.id, version=worker.version)
            held.add(loads.get(worker.id, 0), worker=worker.id)
        return [runs, late, oldest, workers, held]

    def _queues(self) -> list[Family]:
        depth = Family("mainspring_queue_runs", "gauge", "Runs in each queue: ready to begin, due later, under way.")
        for name, counts in self._store.queues.counts().items():
            depth.add(counts.ready, queue=name, state="ready")
            depth.add(counts.scheduled, queue=name, state="scheduled")
            depth.add(counts.under_way, queue=name, state="under_way")
        age = Family(
            "mainspring_queue_oldest_seconds", "gauge", "How long the oldest ready run of each queue has waited."
        )
        for name, due in self._store.dashboard.queue_ages().items():
            age.add(max(0, self._clock.now() - due) / 1e6, queue=name)
        return [depth, age]

    def _schedules(self) -> list[Family]:
        total = self._store.dashboard.schedule_totals()
        ticks = Family("mainspring_ticks", "counter", "Ticks of the schedules there are, by outcome.")
        for outcome in ("started", "missed", "skipped", "dropped"):
            ticks.add(getattr(total, outcome), "_total", outcome=outcome)
        schedules = Family("mainspring_schedules", "gauge", "Schedules, by state.")
        schedules.add(total.active, state="active")
        schedules.add(total.paused, state="paused")
        failing = Family("mainspring_schedules_failing", "gauge", "Schedules whose last run failed.")
        failing.add(total.failing)
        return [ticks, schedules, failing]

    def _database(self) -> list[Family]:
        behind = Family(
            "mainspring_retention_behind_seconds",
            "gauge",
            "For how long the oldest run that should be gone has been kept.",
        )
        behind.add(Pruning(self._store, self._clock).behind())
        server = self._store.server_state()
        if server is None:
            return [behind]
        used = Family("mainspring_database_connections", "gauge", "Connections to the database server, of all clients.")
        used.add(server.connections)
        allowed = Family("mainspring_database_connections_allowed", "gauge", "Connections that the server accepts.")
        allowed.add(server.allowed)
        oldest = Family(
            "mainspring_database_oldest_snapshot_seconds",
            "gauge",
            "How long the oldest transaction has been open that keeps dead rows from being removed.",
        )
        oldest.add(server.snapshot.seconds if server.snapshot is not None else 0)
        dead = Family("mainspring_database_dead_rows", "gauge", "Rows that vacuum has not removed yet, by table.")
        for each in server.dead_rows:
            dead.add(each.dead, table=each.table)
        return [behind, used, allowed, oldest, dead]

    def _ended(self, totals: list[Amount]) -> list[Family]:
        ended = Family("mainspring_runs_ended", "counter", "Runs that have ended, by function and how.")
        counts: dict[tuple[str, str], int] = {}
        for amount in totals:
            if amount.measure == "duration":
                key = amount.workflow, amount.state
                counts[key] = counts.get(key, 0) + amount.count
        for (workflow, state), count in sorted(counts.items()):
            ended.add(count, "_total", workflow=workflow, state=state)
        duration = Family("mainspring_run_duration_seconds", "histogram", "From the first claim of a run to its end.")
        lateness = Family(
            "mainspring_run_lateness_seconds", "histogram", "From the time a run was due to its first claim."
        )
        for family, measure in ((duration, "duration"), (lateness, "lateness")):
            _histogram(family, [amount for amount in totals if amount.measure == measure])
        return [ended, duration, lateness]

    def _steps(self, shows_step: Callable[[str, str], bool]) -> list[Family]:
        """Figures of steps, from the latest runs of each function, so that a scrape does not read all of history."""
        of_latest = f"in the latest {_LATEST} runs of each function that ended."
        took = Family("mainspring_step_seconds", "gauge", f"How long steps took, from the first attempt, {of_latest}")
        failed = Family(
            "mainspring_step_failure_ratio", "gauge", f"The part of the calls of steps that failed, {of_latest}"
        )
        attempts = Family("mainspring_step_attempts", "gauge", f"Attempts of a call of a step, on average, {of_latest}")
        dashboard = self._store.dashboard
        for workflow in dashboard.ended_functions()[:_MOST_FUNCTIONS]:
            for each in step_figures_of(dashboard.step_times(workflow, _LATEST)):
                if not shows_step(workflow, each.name):
                    continue
                labels = {"workflow": workflow, "step": each.name}
                took.add(each.p50, **labels, quantile="0.5")
                took.add(each.p95, **labels, quantile="0.95")
                failed.add(each.failure_rate, **labels)
                attempts.add(each.attempts, **labels)
        return [took, failed, attempts]


def _histogram(family: Family, amounts: list[Amount]) -> None:
    for workflow in sorted({amount.workflow for amount in amounts}):
        mine = [amount for amount in amounts if amount.workflow == workflow]
        below = 0
        for bucket, longest in enumerate((*CLASSES, float("inf"))):
            below += sum(amount.count for amount in mine if amount.bucket == bucket)
            family.add(below, "_bucket", workflow=workflow, le="+Inf" if longest == float("inf") else f"{longest:g}")
        family.add(sum(amount.micros for amount in mine) / 1e6, "_sum", workflow=workflow)
        family.add(below, "_count", workflow=workflow)


def as_text(families: list[Family]) -> str:
    """Return the metrics in the OpenMetrics text format."""
    lines: list[str] = []
    for family in families:
        lines += [f"# TYPE {family.name} {family.kind}", f"# HELP {family.name} {family.help}"]
        for suffix, labels, value in family.samples:
            listed = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels)
            number = str(int(value)) if value == int(value) else repr(value)
            lines.append(f"{family.name}{suffix}{'{' + listed + '}' if listed else ''} {number}")
    return "\n".join([*lines, "# EOF", ""])


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
