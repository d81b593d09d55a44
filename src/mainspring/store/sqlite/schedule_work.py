"""One transaction about schedules on SQLite: reading what plans are made from, and applying them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mainspring.model.schedules import MOVED, Hook, is_crontab_entry
from mainspring.store import schedule_sql as sql
from mainspring.store.ops import Start
from mainspring.store.schedules import MOST_TAKEN, Situation
from mainspring.store.sql import run_values
from mainspring.store.sqlite import stops
from mainspring.store.sqlite.batch import Batch
from mainspring.store.sqlite.bulk import Bulk
from mainspring.store.sqlite.statements import INSERT_RUNS
from mainspring.store.unreadable import readable, tick_key

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from mainspring.store.schedules import Decide, Plan

LIST = "(SELECT value FROM json_each(?))"
# There are other indexes on a schedule's runs and ticks, which its whole history would have to be read from.
_LOOK = f"""
  SELECT
    EXISTS (SELECT 1 FROM runs INDEXED BY runs_unsettled WHERE unsettled = 1 AND schedule = s.id),
    EXISTS (SELECT 1 FROM ticks INDEXED BY ticks_waiting WHERE outcome IN ('pending', 'buffered') AND schedule = s.id),
    EXISTS (SELECT 1 FROM backfills WHERE completed IS NULL AND schedule = s.id),
    EXISTS (SELECT 1 FROM hooks), {sql.REACHES_AHEAD}, {", ".join(f"s.{column}" for column in sql.SCHEDULE)}
  FROM schedules s
"""
"""Schedules, and whether there is any of what most of them have none of: one question instead of six."""
_ID = 5
"""Where in such a row the schedule begins."""
_BY_ID = f"{_LOOK} WHERE s.id IN {LIST}"
_DUE = f"{_LOOK} WHERE s.due <= :now ORDER BY s.due LIMIT :limit"
_ENDED = f"""
  SELECT schedule FROM runs WHERE unsettled = 1 AND state IN {sql.ENDED} ORDER BY completed LIMIT :limit
"""
_RUNS = f"""
  SELECT id, uid, state, reason, completed, CASE WHEN state IN {sql.ENDED} THEN output END,
    CASE WHEN state IN {sql.ENDED} THEN error END, coalesce(CASE WHEN json_valid(tick) THEN json_extract(tick, '$.request') END, ''), schedule
  FROM runs INDEXED BY runs_unsettled WHERE unsettled = 1 AND schedule IN {LIST} ORDER BY uid
"""
_WAITING = f"""
  SELECT {", ".join(sql.TICK)} FROM ticks INDEXED BY ticks_waiting
  WHERE outcome IN ('pending', 'buffered') AND schedule IN {LIST}
  ORDER BY due, nominal, request
"""
_BACKFILLS = f"""
  SELECT {", ".join(sql.BACKFILL)} FROM backfills WHERE completed IS NULL AND schedule IN {LIST}
  ORDER BY created, id
"""
_MADE = """
  SELECT DISTINCT nominal FROM ticks WHERE schedule = ? AND nominal > ? AND nominal <= ?
    AND source <> 'trigger' AND (run IS NOT NULL OR outcome IN ('pending', 'buffered')) ORDER BY nominal LIMIT ?
"""
LISTED = f"SELECT DISTINCT e.key FROM workers, json_each(workers.crontab) e WHERE e.key IN {LIST}"
_THERE = f"SELECT id, uid FROM runs WHERE id IN {LIST}"
_TAKE_BACK = f"DELETE FROM runs WHERE uid IN {LIST}"
_OF_SCHEDULE = "UPDATE runs SET schedule = ?, tick = ?, unsettled = 1 WHERE id = ?"
_RELEASE = "UPDATE runs SET state = 'queued', due = ?, tick = ? WHERE id = ? AND state = 'scheduled'"
_SETTLE = f"UPDATE runs SET unsettled = 0 WHERE id IN {LIST}"
TICKS = Bulk(
    f"""
  INSERT INTO ticks ({", ".join(sql.TICK)}) VALUES {{rows}}
  ON CONFLICT (schedule, nominal, request) DO UPDATE SET source = excluded.source, due = excluded.due,
    outcome = excluded.outcome, reason = excluded.reason, acted = excluded.acted, run = excluded.run,
    until = excluded.until, count = excluded.count
  WHERE ticks.outcome IN ('pending', 'buffered')
""",
    len(sql.TICK),
)
_START = Bulk(
    f"INSERT INTO runs ({', '.join(sql.SCHEDULED_RUN)}) VALUES {{rows}} ON CONFLICT (id) DO NOTHING",
    len(sql.SCHEDULED_RUN),
)


def _update(columns: Sequence[str]) -> Bulk:
    values = ", ".join(f"{column} = v.column{number + 2}" for number, column in enumerate(columns))
    return Bulk(f"UPDATE schedules SET {values} FROM (VALUES {{rows}}) v WHERE id = v.column1", len(columns) + 1)


_MOVE, _LEARN, _REDEFINE = _update(MOVED), _update(sql.LEARNED), _update(sql.REDEFINED)
KEEP_BACKFILL = f"""
  INSERT INTO backfills ({", ".join(sql.BACKFILL)}) VALUES ({", ".join("?" * len(sql.BACKFILL))})
  ON CONFLICT (id) DO UPDATE SET cursor = excluded.cursor, completed = excluded.completed, stopped = excluded.stopped,
    started = excluded.started, skipped = excluded.skipped
"""


def due(db: sqlite3.Connection, now: int, limit: int, *, ended: bool) -> list[Situation]:
    """What plans are made from, for schedules that are due and, if runs have ended, for theirs: at most so many of each."""
    values = {"now": now, "limit": limit}
    rows = db.execute(_DUE, values).fetchall()
    if ended:
        with_ends = {row[0] for row in db.execute(_ENDED, values)} - {row[_ID] for row in rows}
        found = db.execute(_BY_ID, (json.dumps(sorted(with_ends)),)).fetchall()
        _forget_strays(db, with_ends - {row[_ID] for row in found})
        rows += found
    return _situations(db, rows, now)


def situation(db: sqlite3.Connection, schedule: str, now: int = 0) -> Situation | None:
    """What a plan of one schedule is made from."""
    found = _situations(db, db.execute(_BY_ID, (json.dumps([schedule]),)).fetchall(), now)
    return found[0] if found else None


def _situations(db: sqlite3.Connection, rows: Sequence[Sequence[Any]], now: int) -> list[Situation]:
    """What plans are made from, for the schedules that `_LOOK` has found."""
    found = {row[_ID]: Situation(sql.to_schedule(row[_ID:])) for row in rows}
    if with_runs := [row[_ID] for row in rows if row[0]]:
        for row in db.execute(_RUNS, (json.dumps(with_runs),)):
            found[row[-1]].runs += readable("runs", [row], lambda row: sql.to_run_of(row[:-1]))
    if with_ticks := [row[_ID] for row in rows if row[1]]:
        for row in db.execute(_WAITING, (json.dumps(with_ticks),)):
            found[row[0]].waiting += readable("ticks", [row], sql.to_tick, tick_key)
    if with_backfills := [row[_ID] for row in rows if row[2]]:
        _add_backfills(db, with_backfills, found)
    for ahead in (found[row[_ID]] for row in rows if row[4]):
        values = {"schedule": ahead.schedule.id, "cursor": ahead.schedule.cursor, "now": now}
        ahead.ahead = dict(db.execute(sql.AHEAD, values).fetchall())
    if entries := [each for each in found.values() if is_crontab_entry(each.schedule)]:
        sql.mark_listed(entries, db.execute(LISTED, (json.dumps([each.schedule.id for each in entries]),)))
    if rows and rows[0][3]:
        told = [Hook(*row) for row in db.execute(sql.HOOKS)]
        for each in found.values():
            each.hooks = told
    return list(found.values())


def _add_backfills(db: sqlite3.Connection, schedules: list[str], found: dict[str, Situation]) -> None:
    for backfill in readable("backfills", db.execute(_BACKFILLS, (json.dumps(schedules),)).fetchall(), sql.to_backfill):
        there = found[backfill.schedule]
        there.backfills.append(backfill)
        span = (backfill.schedule, backfill.cursor, backfill.until, MOST_TAKEN)
        there.made[backfill.id] = [nominal for (nominal,) in db.execute(_MADE, span)]


def _forget_strays(db: sqlite3.Connection, schedules: Iterable[str]) -> None:
    """Runs whose schedule was deleted have nobody who would take note of their end."""
    for schedule in schedules:
        db.execute("UPDATE runs SET unsettled = 0 WHERE unsettled = 1 AND schedule = ?", (schedule,))


def decided(db: sqlite3.Connection, situations: list[Situation], decide: Decide) -> list[Plan]:
    """The plans, with their runs stored; one that wants to start a run under an id that is taken is made again, knowing that."""
    plans = [decide(situation) for situation in situations]
    if _begin(db, plans):
        return plans
    uids = dict(db.execute(_THERE, (json.dumps([start.run.id for plan in plans for start in plan.starts]),)).fetchall())
    db.execute(_TAKE_BACK, (json.dumps([start.run.uid for plan in plans for start in plan.starts]),))
    for number, (situation, plan) in enumerate(zip(situations, plans, strict=True)):
        taken = {start.run.id for start in plan.starts if uids.get(start.run.id, start.run.uid) != start.run.uid}
        if taken:
            situation.taken = frozenset(taken)
            plans[number] = decide(situation)
    _begin(db, plans)
    return plans


def _begin(db: sqlite3.Connection, plans: Sequence[Plan]) -> bool:
    """Store the runs that plans start, as far as no other has their ids; whether none has."""
    rows = [
        sql.beginning_values(plan.schedule.id, start)
        for plan in plans
        for start in plan.starts
        if start.run.key is None
    ]
    if _START.run(db, rows) < len(rows):
        return False
    keyed = [start.run.id for plan in plans for start in plan.starts if start.run.key is not None]
    return not keyed or db.execute(_THERE, (json.dumps(keyed),)).fetchone() is None


def apply(db: sqlite3.Connection, plans: Sequence[Plan], now: int) -> Batch:
    batch = Batch(db, now)
    batch.due = True
    for plan in plans:
        _stop(db, batch, plan, now)
    _begin_others(db, batch, plans)
    TICKS.run(db, [sql.tick_values(tick) for plan in plans for tick in plan.ticks])
    settled = [run for plan in plans for run in plan.settled]
    if settled:
        db.execute(_SETTLE, (json.dumps(settled),))
    for plan in plans:
        for backfill in plan.backfills:
            db.execute(KEEP_BACKFILL, sql.backfill_values(backfill))
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


def _begin_others(db: sqlite3.Connection, batch: Batch, plans: Sequence[Plan]) -> None:
    """The runs that are not new ones under ids of their own: those with keys, those that waited, those that tell of something."""
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
    for reason, ids in sql.by_reason(plan.cancels).items():
        values: dict[str, Any] = {"ids": json.dumps(ids), "reason": reason, "now": now}
        batch.poked.update(row[1] for row in db.execute(stops.CANCEL_IN_HAND, values).fetchall())
        batch.ready = bool(db.execute(stops.CANCEL_UNDOABLE, values).fetchall()) or batch.ready
        batch.ended.update(row[0] for row in db.execute(stops.CANCEL_AT_ONCE, values).fetchall())
    for reason, ids in sql.by_reason(plan.terminates).items():
        values = {"ids": json.dumps(ids), "reason": reason, "now": now}
        for run, owner, _ in db.execute(stops.TERMINATE, values).fetchall():
            batch.ended.add(run)
            if owner is not None:
                batch.poked.add(owner)


def _delete(db: sqlite3.Connection, schedule: str) -> None:
    db.execute("DELETE FROM schedules WHERE id = ?", (schedule,))
    db.execute("DELETE FROM ticks WHERE schedule = ?", (schedule,))
    db.execute("DELETE FROM backfills WHERE schedule = ?", (schedule,))
    db.execute("UPDATE runs SET unsettled = 0 WHERE unsettled = 1 AND schedule = ?", (schedule,))
