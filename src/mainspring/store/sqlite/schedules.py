"""Schedules on SQLite. Writers take turns, so the whole database is the lock that a schedule's row is elsewhere."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mainspring.model.schedules import MOVED, Hook
from mainspring.store import schedule_sql as sql
from mainspring.store.ops import Start
from mainspring.store.schedules import MOST_TAKEN, Passed, Situation
from mainspring.store.sql import run_values
from mainspring.store.sqlite import stops
from mainspring.store.sqlite.batch import Batch
from mainspring.store.sqlite.bulk import Bulk
from mainspring.store.sqlite.statements import INSERT_RUNS

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Sequence

    from mainspring.model.schedules import Backfill, Schedule, Tick
    from mainspring.store.schedules import Decide, Plan, ScheduleFilter, TickFilter
    from mainspring.store.sqlite.database import Database

_LIST = "(SELECT value FROM json_each(?))"
_DUE = f"""
  SELECT id FROM (
    SELECT id, due FROM (SELECT id, due FROM schedules WHERE due <= :now ORDER BY due LIMIT :limit)
    UNION ALL
    SELECT schedule, completed FROM (
      SELECT schedule, completed FROM runs WHERE unsettled = 1 AND state IN {sql.ENDED} ORDER BY completed LIMIT :limit))
  GROUP BY id ORDER BY min(due) LIMIT :limit
"""
_NEXT = f"""
  SELECT (SELECT min(due) FROM schedules), EXISTS (SELECT 1 FROM runs WHERE unsettled = 1 AND state IN {sql.ENDED})
"""
_SCHEDULES = f"SELECT {', '.join(sql.SCHEDULE)} FROM schedules WHERE id IN {_LIST}"
# There are other indexes on a schedule's runs and ticks, which its whole history would have to be read from.
_RUNS = f"""
  SELECT id, uid, state, reason, completed, CASE WHEN state IN {sql.ENDED} THEN output END,
    CASE WHEN state IN {sql.ENDED} THEN error END, coalesce(json_extract(tick, '$.request'), ''), schedule
  FROM runs INDEXED BY runs_unsettled WHERE unsettled = 1 AND schedule IN {_LIST} ORDER BY uid
"""
_WAITING = f"""
  SELECT {", ".join(sql.TICK)} FROM ticks INDEXED BY ticks_waiting
  WHERE outcome IN ('pending', 'buffered') AND schedule IN {_LIST}
  ORDER BY due, nominal, request
"""
_BACKFILLS = f"""
  SELECT {", ".join(sql.BACKFILL)} FROM backfills WHERE completed IS NULL AND schedule IN {_LIST} ORDER BY id
"""
_MADE = """
  SELECT DISTINCT nominal FROM ticks WHERE schedule = ? AND nominal > ? AND nominal <= ?
    AND source <> 'trigger' AND (run IS NOT NULL OR outcome IN ('pending', 'buffered')) ORDER BY nominal LIMIT ?
"""
_THERE = f"SELECT id FROM runs WHERE id IN {_LIST}"
_OF_SCHEDULE = "UPDATE runs SET schedule = ?, tick = ?, unsettled = 1 WHERE id = ?"
_RELEASE = "UPDATE runs SET state = 'queued', due = ?, tick = ? WHERE id = ? AND state = 'scheduled'"
_SETTLE = f"UPDATE runs SET unsettled = 0 WHERE id IN {_LIST}"
_HAS = """NOT EXISTS (
    SELECT 1 FROM json_each(:attributes) w
    WHERE NOT EXISTS (SELECT 1 FROM json_each(schedules.attributes) h WHERE h.key = w.key AND h.value IS w.value))"""

_INSERT = Bulk(
    f"INSERT INTO schedules ({', '.join(sql.SCHEDULE)}) VALUES {{rows}} ON CONFLICT (id) DO NOTHING", len(sql.SCHEDULE)
)
_TICKS = Bulk(
    f"""
  INSERT INTO ticks ({", ".join(sql.TICK)}) VALUES {{rows}}
  ON CONFLICT (schedule, nominal, request) DO UPDATE SET source = excluded.source, due = excluded.due,
    outcome = excluded.outcome, reason = excluded.reason, acted = excluded.acted, run = excluded.run,
    until = excluded.until, count = excluded.count
  WHERE ticks.outcome IN ('pending', 'buffered')
""",
    len(sql.TICK),
)
_START = Bulk(f"INSERT INTO runs ({', '.join(sql.SCHEDULED_RUN)}) VALUES {{rows}}", len(sql.SCHEDULED_RUN))


def _update(columns: Sequence[str]) -> Bulk:
    values = ", ".join(f"{column} = v.column{number + 2}" for number, column in enumerate(columns))
    return Bulk(f"UPDATE schedules SET {values} FROM (VALUES {{rows}}) v WHERE id = v.column1", len(columns) + 1)


_MOVE, _LEARN, _REDEFINE = _update(MOVED), _update(sql.LEARNED), _update(sql.REDEFINED)
_KEEP_BACKFILL = f"""
  INSERT INTO backfills ({", ".join(sql.BACKFILL)}) VALUES ({", ".join("?" * len(sql.BACKFILL))})
  ON CONFLICT (id) DO UPDATE SET cursor = excluded.cursor, completed = excluded.completed, stopped = excluded.stopped,
    started = excluded.started, skipped = excluded.skipped
"""


class SqliteSchedules:
    """See `mainspring.store.schedules.ScheduleStore` for what each verb promises."""

    def __init__(self, database: Database, tell: Callable[[Batch], None]) -> None:
        self._db = database
        self._tell = tell

    # -- writing -------------------------------------------------------------------------------------------------------
    def create(
        self, schedules: Sequence[Schedule], ticks: Sequence[Tick] = (), backfills: Sequence[Backfill] = ()
    ) -> list[str]:
        with self._db.write() as db:
            ids = json.dumps([schedule.id for schedule in schedules])
            there = dict(db.execute(f"SELECT id, made_by FROM schedules WHERE id IN {_LIST}", (ids,)).fetchall())
            _INSERT.run(db, [sql.schedule_values(each) for each in schedules if each.id not in there])
            _TICKS.run(db, [sql.tick_values(tick) for tick in ticks if tick.schedule not in there])
            for backfill in backfills:
                if backfill.schedule not in there:
                    db.execute(_KEEP_BACKFILL, sql.backfill_values(backfill))
            batch = Batch(db, 0)
            batch.due = True
        self._tell(batch)
        return sql.taken(schedules, there)

    def change(self, schedule: str, decide: Decide, now: int) -> Plan | None:
        with self._db.write() as db:
            found = _situations(db, [schedule])
            if not found:
                return None
            (plan,) = _decided(db, found, decide)
            batch = _apply(db, [plan], now)
        self._tell(batch)
        return plan

    def fire(self, now: int, limit: int, decide: Decide) -> Passed:
        if not self._db.prompt:  # else it costs less to look while it is our turn
            with self._db.read() as db:
                next_due, ended = db.execute(_NEXT).fetchone()
                if not ended and (next_due is None or next_due > now):
                    return Passed(0, next_due, more=False)
        with self._db.write() as db:
            ids = [row[0] for row in db.execute(_DUE, {"now": now, "limit": limit})]
            found = _situations(db, ids)
            _forget_strays(db, set(ids) - {situation.schedule.id for situation in found})
            plans = [plan for plan in _decided(db, found, decide) if not plan.empty]
            batch = _apply(db, plans, now)
            batch.due = False  # it was this very pass, which goes on by itself
            next_due, ended = db.execute(_NEXT).fetchone()
        self._tell(batch)
        more = bool(plans) and (bool(ended) or (next_due is not None and next_due <= now))
        return Passed(len(plans), next_due, more, frozenset(sql.in_hand(plans)))

    def prune(self, before: int, limit: int) -> int:
        with self._db.read() as db:  # looking takes longer than forgetting, and keeps nobody from writing
            old = db.execute(sql.PRUNABLE, {"before": before, "limit": limit}).fetchall()
        if old:
            with self._db.write() as db:
                db.executemany("DELETE FROM ticks WHERE schedule = ? AND nominal = ? AND request = ?", old)
        return len(old)

    def keep_hooks(self, app: str, hooks: Sequence[Hook], forget: Sequence[str]) -> None:
        with self._db.write() as db:
            there = [Hook(*row) for row in db.execute(sql.HOOKS)]
            for hook in hooks:
                db.execute(sql.KEEP_HOOK, sql.hook_values(hook))
            for hook in sql.hooks_to_forget(there, app, hooks, forget):
                db.execute(sql.FORGET_HOOK, sql.hook_values(hook))

    # -- reading -------------------------------------------------------------------------------------------------------
    def get(self, schedule: str) -> Schedule | None:
        with self._db.read() as db:
            row = db.execute(sql.GET, {"id": schedule}).fetchone()
            return sql.to_schedule(row) if row else None

    def page(self, wanted: ScheduleFilter) -> list[Schedule]:
        statement, values = sql.schedules_page(wanted, _HAS)
        with self._db.read() as db:
            return [sql.to_schedule(row) for row in db.execute(statement, values)]

    def situation(self, schedule: str) -> Situation | None:
        with self._db.snapshot() as db:
            found = _situations(db, [schedule])
            return found[0] if found else None

    def ticks(self, wanted: TickFilter) -> list[Tick]:
        statement, values = sql.ticks_page(wanted)
        with self._db.read() as db:
            return [sql.to_tick(row) for row in db.execute(statement, values)]

    def oldest_tick(self, schedule: str) -> int | None:
        with self._db.read() as db:
            found: int | None = db.execute(sql.OLDEST_TICK, {"schedule": schedule}).fetchone()[0]
            return found

    def backfill(self, backfill: str) -> Backfill | None:
        with self._db.read() as db:
            row = db.execute(sql.BACKFILL_BY_ID, {"id": backfill}).fetchone()
            return sql.to_backfill(row) if row else None

    def backfills(self, schedule: str) -> list[Backfill]:
        with self._db.read() as db:
            return [sql.to_backfill(row) for row in db.execute(sql.BACKFILLS, {"schedule": schedule})]

    def hooks(self) -> list[Hook]:
        with self._db.read() as db:
            return [Hook(*row) for row in db.execute(sql.HOOKS)]

    def has_queue(self, name: str) -> bool:
        with self._db.read() as db:
            return bool(db.execute(sql.HAS_QUEUE, {"name": name}).fetchone()[0])

    def functions(self) -> list[str]:
        with self._db.read() as db:
            return [row[0] for row in db.execute(sql.FUNCTIONS)]

    def first_seen(self, versions: Sequence[str]) -> dict[str, int]:
        with self._db.read() as db:
            look = f"SELECT version, first_seen FROM versions WHERE version IN {_LIST}"
            return dict(db.execute(look, (json.dumps(list(versions)),)).fetchall())


# -- inside a transaction ------------------------------------------------------------------------------------------------
def _situations(db: sqlite3.Connection, ids: Sequence[str]) -> list[Situation]:
    wanted = (json.dumps(list(ids)),)
    found = {row[0]: Situation(sql.to_schedule(row)) for row in db.execute(_SCHEDULES, wanted)}
    for row in db.execute(_RUNS, wanted):
        if row[-1] in found:
            found[row[-1]].runs.append(sql.to_run_of(row[:-1]))
    ticks, backfills, hooks = db.execute(sql.PRESENT).fetchone()
    for row in db.execute(_WAITING, wanted) if ticks else ():
        if row[0] in found:
            found[row[0]].waiting.append(sql.to_tick(row))
    for row in db.execute(_BACKFILLS, wanted).fetchall() if backfills else ():
        backfill = sql.to_backfill(row)
        if backfill.schedule in found:
            there = found[backfill.schedule]
            there.backfills.append(backfill)
            span = (backfill.schedule, backfill.cursor, backfill.until, MOST_TAKEN)
            there.made[backfill.id] = [nominal for (nominal,) in db.execute(_MADE, span)]
    if hooks:
        told = [Hook(*row) for row in db.execute(sql.HOOKS)]
        for situation in found.values():
            situation.hooks = told
    return [found[each] for each in ids if each in found]


def _forget_strays(db: sqlite3.Connection, schedules: Iterable[str]) -> None:
    """Runs whose schedule was deleted have nobody who would take note of their end."""
    for schedule in schedules:
        db.execute("UPDATE runs SET unsettled = 0 WHERE unsettled = 1 AND schedule = ?", (schedule,))


def _decided(db: sqlite3.Connection, situations: list[Situation], decide: Decide) -> list[Plan]:
    """The plans; one that wants to start a run under an id that is taken is made again, knowing that."""
    plans = [decide(situation) for situation in situations]
    ids = json.dumps([start.run.id for plan in plans for start in plan.starts])
    taken = {row[0] for row in db.execute(_THERE, (ids,))} if ids != "[]" else set[str]()
    if not taken:
        return plans
    for number, (situation, plan) in enumerate(zip(situations, plans, strict=True)):
        if any(start.run.id in taken for start in plan.starts):
            situation.taken = frozenset(taken)
            plans[number] = decide(situation)
    return plans


def _apply(db: sqlite3.Connection, plans: Sequence[Plan], now: int) -> Batch:
    batch = Batch(db, now)
    batch.due = True
    for plan in plans:
        _stop(db, batch, plan, now)
    _begin(db, batch, plans)
    _TICKS.run(db, [sql.tick_values(tick) for plan in plans for tick in plan.ticks])
    settled = [run for plan in plans for run in plan.settled]
    if settled:
        db.execute(_SETTLE, (json.dumps(settled),))
    for plan in plans:
        for backfill in plan.backfills:
            db.execute(_KEEP_BACKFILL, sql.backfill_values(backfill))
    for statement, columns, concerned in (
        (_MOVE, MOVED, [plan for plan in plans if plan.moved]),
        (_LEARN, sql.LEARNED, [plan for plan in plans if plan.learned]),
        (_REDEFINE, sql.REDEFINED, [plan for plan in plans if plan.redefined]),
    ):
        statement.run(db, [sql.schedule_values(plan.schedule, ("id", *columns)) for plan in concerned])
    for plan in plans:
        if plan.deleted:
            _delete(db, plan.schedule.id)
    if batch.ended:
        batch.unblock(batch.ended)
    return batch


def _begin(db: sqlite3.Connection, batch: Batch, plans: Sequence[Plan]) -> None:
    _START.run(
        db,
        [
            sql.beginning_values(plan.schedule.id, start)
            for plan in plans
            for start in plan.starts
            if start.run.key is None
        ],
    )
    for plan in plans:
        for start in plan.starts:
            if start.run.key is not None:
                started = batch.start(Start(start.run))
                sql.became(plan, start.run.id, started.id)
                db.execute(_OF_SCHEDULE, (plan.schedule.id, start.tick, started.id or start.run.id))
    for plan in plans:
        for start in plan.releases:
            db.execute(_RELEASE, (start.run.due, start.tick, start.run.id))
    INSERT_RUNS.run(db, [run_values(alert) for plan in plans for alert in plan.alerts])
    batch.ready = sql.to_claim(plans)


def _stop(db: sqlite3.Connection, batch: Batch, plan: Plan, now: int) -> None:
    reason = f"by schedule {plan.schedule.id}, to make room for its next run"
    if plan.cancels:
        values: dict[str, Any] = {"ids": json.dumps(plan.cancels), "reason": reason, "now": now}
        batch.poked.update(row[1] for row in db.execute(stops.CANCEL_IN_HAND, values).fetchall())
        batch.ready = bool(db.execute(stops.CANCEL_UNDOABLE, values).fetchall()) or batch.ready
        batch.ended.update(row[0] for row in db.execute(stops.CANCEL_AT_ONCE, values).fetchall())
    if plan.terminates:
        values = {"ids": json.dumps(plan.terminates), "reason": reason, "now": now}
        for run, owner in db.execute(stops.TERMINATE, values).fetchall():
            batch.ended.add(run)
            if owner is not None:
                batch.poked.add(owner)


def _delete(db: sqlite3.Connection, schedule: str) -> None:
    db.execute("DELETE FROM schedules WHERE id = ?", (schedule,))
    db.execute("DELETE FROM ticks WHERE schedule = ?", (schedule,))
    db.execute("DELETE FROM backfills WHERE schedule = ?", (schedule,))
    db.execute("UPDATE runs SET unsettled = 0 WHERE unsettled = 1 AND schedule = ?", (schedule,))
