"""Statements and row shapes about schedules that are the same in every store. Placeholders are written `:name`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.model.schedules import CRONTAB, Backfill, Hook, Outcome, Overlap, RunOf, Schedule, Source, Tick
from mainspring.model.states import State
from mainspring.store.sql import NEW_RUN_COLUMNS, run_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mainspring.store.schedules import Beginning, Plan, ScheduleFilter, Situation, TickFilter

SCHEDULE = Schedule.__struct_fields__
TICK = Tick.__struct_fields__
BACKFILL = Backfill.__struct_fields__
HOOK = Hook.__struct_fields__
SCHEDULED_RUN = (*NEW_RUN_COLUMNS, "schedule", "tick", "unsettled")

LEARNED = ("failures", "last_result", "last_failure")
REDEFINED = (
    "spec",
    "canonical",
    "workflow",
    "action",
    "input",
    "policy",
    "attributes",
    "note",
    "updated",
    "app",
    "version",
    "declared",
)

GET = f"SELECT {', '.join(SCHEDULE)} FROM schedules WHERE id = :id"
BACKFILL_BY_ID = f"SELECT {', '.join(BACKFILL)} FROM backfills WHERE id = :id"
BACKFILLS = f"SELECT {', '.join(BACKFILL)} FROM backfills WHERE schedule = :schedule ORDER BY created DESC, id DESC"
OLDEST_TICK = "SELECT min(nominal) FROM ticks WHERE schedule = :schedule AND request = ''"
PRUNABLE = """
  SELECT t.schedule, t.nominal, t.request FROM schedules s CROSS JOIN ticks t
  WHERE t.schedule = s.id AND t.nominal < :before AND coalesce(t.until, t.nominal) < :before AND coalesce(t.acted, 0) < :before
    AND t.outcome NOT IN ('pending', 'buffered')
  LIMIT :limit
"""
"""By schedule, where the index says at once what is old: a long history costs nothing while there is nothing to forget. SQLite
would read all ticks, if it were not told with CROSS JOIN where to begin."""
HOOKS = f"SELECT {', '.join(HOOK)} FROM hooks ORDER BY app, event, function"
REACHES_AHEAD = "EXISTS (SELECT 1 FROM backfills b WHERE b.schedule = s.id AND b.until > s.cursor)"
"""Whether a backfill of schedule `s` may have taken times that the clock has yet to come to."""
AHEAD = """
  SELECT nominal, request FROM ticks WHERE schedule = :schedule AND nominal > :cursor AND nominal <= :now
    AND source = 'backfill' AND (run IS NOT NULL OR outcome IN ('pending', 'buffered'))
"""
WILL_ACT = "(NOT paused OR resume_at IS NOT NULL) AND stopped IS NULL AND coalesce(remaining, 1) > 0"
"""Whether a schedule acts on its upcoming time without anybody's doing."""
HAS_QUEUE = "SELECT EXISTS (SELECT 1 FROM queues WHERE name = :name)"
FUNCTIONS = "SELECT functions FROM workers"
KEEP_HOOK = f"""
  INSERT INTO hooks ({", ".join(HOOK)}) VALUES ({", ".join(f":{column}" for column in HOOK)})
  ON CONFLICT (app, event, function) DO UPDATE SET kind = excluded.kind, parameter = excluded.parameter,
    after = excluded.after, version = excluded.version
"""
FORGET_HOOK = "DELETE FROM hooks WHERE app = :app AND event = :event AND function = :function AND version = :version"
ENDED = "('succeeded', 'failed', 'cancelled')"


def taken(schedules: Sequence[Schedule], there: dict[str, str | None]) -> list[str]:
    """The ids that belong to schedules made by others, of those that were there."""
    return [
        each.id for each in schedules if each.id in there and (each.made_by is None or each.made_by != there[each.id])
    ]


def schedule_values(schedule: Schedule, columns: Sequence[str] = SCHEDULE) -> tuple[Any, ...]:
    return tuple(getattr(schedule, column) for column in columns)


def tick_values(tick: Tick) -> tuple[Any, ...]:
    """The row of a tick, in the order of TICK."""
    return (
        tick.schedule,
        tick.nominal,
        tick.request,
        tick.source,
        tick.due,
        tick.outcome,
        tick.reason,
        tick.acted,
        tick.run,
        tick.overlap,
        tick.until,
        tick.count,
    )


def backfill_values(backfill: Backfill) -> tuple[Any, ...]:
    return tuple(getattr(backfill, column) for column in BACKFILL)


def beginning_values(schedule: str, beginning: Beginning) -> tuple[Any, ...]:
    """The row of a run that a tick starts, in the order of SCHEDULED_RUN."""
    return (*run_values(beginning.run), schedule, beginning.tick, True)


def in_hand(plans: Sequence[Plan]) -> list[str]:
    """The runs that plans start in the hand of a worker."""
    return [start.run.id for plan in plans for start in plan.starts if start.run.owner is not None]


def to_claim(plans: Sequence[Plan]) -> bool:
    """Whether plans make runs that are anybody's to take."""
    return any(plan.releases or plan.alerts or any(start.run.owner is None for start in plan.starts) for plan in plans)


def became(plan: Plan, asked: str, run: str) -> None:
    """A start has become the run that had its key: the tick points to that one."""
    for tick in plan.ticks:
        if run and tick.run == asked:
            tick.run = run


def mark_listed(entries: Iterable[Situation], listed: Iterable[Sequence[Any]]) -> None:
    """Say of crontab entries whether they are among the ids that live workers list."""
    ids = {row[0] for row in listed}
    for entry in entries:
        entry.listed = entry.schedule.id in ids


def by_reason(runs: dict[str, str]) -> dict[str, list[str]]:
    """Runs that are to be stopped, by the reason that they are given."""
    found: dict[str, list[str]] = {}
    for run, reason in runs.items():
        found.setdefault(reason, []).append(run)
    return found


def to_schedule(row: Sequence[Any]) -> Schedule:
    made = Schedule(*row)
    made.paused = bool(made.paused)
    return made


def to_tick(row: Sequence[Any]) -> Tick:
    made = Tick(*row)
    made.source, made.outcome = Source(made.source), Outcome(made.outcome)
    made.overlap = None if made.overlap is None else Overlap(made.overlap)
    return made


def to_backfill(row: Sequence[Any]) -> Backfill:
    made = Backfill(*row)
    made.overlap, made.again, made.stopped = Overlap(made.overlap), bool(made.again), bool(made.stopped)
    return made


def hook_values(hook: Hook) -> dict[str, Any]:
    return {column: getattr(hook, column) for column in HOOK}


def hooks_to_forget(there: Sequence[Hook], app: str, kept: Sequence[Hook], versions: Sequence[str]) -> list[Hook]:
    """Those that the code of the app declared in one of the versions, and does not any more."""
    declared = {(hook.event, hook.function) for hook in kept}
    return [
        hook
        for hook in there
        if hook.app == app and hook.version in versions and (hook.event, hook.function) not in declared
    ]


def to_run_of(row: Sequence[Any]) -> RunOf:
    run_id, uid, state, *rest = row
    return RunOf(run_id, uid, State(state), *rest)


def schedules_page(wanted: ScheduleFilter, has: str, listed: str) -> tuple[str, dict[str, Any]]:
    """The statement and its parameters for a page of schedules.

    `has` is how a store finds pairs in a JSON object, `listed` how it finds the workers that list a crontab entry.
    """
    where: list[str] = []
    values: dict[str, Any] = {"limit": wanted.limit}
    if wanted.id_prefix is not None:
        where.append("id >= :prefix AND id < :prefix_end")
        values["prefix"] = wanted.id_prefix
        values["prefix_end"] = wanted.id_prefix + "\U0010ffff"
    if wanted.paused is not None:
        where.append("paused" if wanted.paused else "NOT paused")
    if wanted.workflow is not None:
        where.append("workflow = :workflow")
        values["workflow"] = wanted.workflow
    if wanted.attributes is not None:
        where.append(has)
        values["attributes"] = wanted.attributes
    if wanted.due_before is not None:
        where.append(f"upcoming < :due_before AND {WILL_ACT} AND (app IS NULL OR app <> '{CRONTAB}' OR {listed})")
        values["due_before"] = wanted.due_before
    if wanted.app is not None:
        where.append("app = :app")
        values["app"] = wanted.app
    if wanted.after is not None:
        where.append("id > :after")
        values["after"] = wanted.after
    condition = f"WHERE {' AND '.join(where)}" if where else ""
    return f"SELECT {', '.join(SCHEDULE)} FROM schedules {condition} ORDER BY id LIMIT :limit", values


def ticks_page(wanted: TickFilter) -> tuple[str, dict[str, Any]]:
    """The statement and its parameters for a page of ticks."""
    where = ["schedule = :schedule"]
    values: dict[str, Any] = {"schedule": wanted.schedule, "limit": wanted.limit}
    if wanted.since is not None:
        where.append("coalesce(until, nominal) >= :since")
        values["since"] = wanted.since
    if wanted.until is not None:
        where.append("nominal <= :until")
        values["until"] = wanted.until
    if wanted.outcomes:
        names = {f"outcome{number}": str(outcome) for number, outcome in enumerate(wanted.outcomes)}
        where.append(f"outcome IN ({', '.join(f':{name}' for name in names)})")
        values |= names
    if wanted.request is not None:
        where.append("request = :request")
        values["request"] = wanted.request
    if wanted.runs_only:
        where.append("run IS NOT NULL")
    if wanted.before is not None:
        where.append("(nominal < :before OR (nominal = :before AND request < :before_request))")
        values["before"], values["before_request"] = wanted.before
    condition = " AND ".join(where)
    order = "ORDER BY nominal DESC, request DESC"
    return f"SELECT {', '.join(TICK)} FROM ticks WHERE {condition} {order} LIMIT :limit", values
