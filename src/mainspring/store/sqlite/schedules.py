"""Schedules on SQLite. Writers take turns, so the whole database is the lock that a schedule's row is elsewhere."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from mainspring.model.schedules import Hook
from mainspring.store import schedule_sql as sql
from mainspring.store.rewinding import AHEAD, ANY_AHEAD, rewind
from mainspring.store.schedules import Passed, Situation
from mainspring.store.sqlite import schedule_work as work
from mainspring.store.sqlite.batch import Batch
from mainspring.store.sqlite.bulk import Bulk
from mainspring.store.unreadable import readable, tick_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainspring.model.schedules import Backfill, Schedule, Tick
    from mainspring.store.schedules import Decide, Plan, ScheduleFilter, TickFilter
    from mainspring.store.sqlite.database import Database

_NEXT = f"""
  SELECT (SELECT min(due) FROM schedules), EXISTS (SELECT 1 FROM runs WHERE unsettled = 1 AND state IN {sql.ENDED})
"""
_HAS = """NOT EXISTS (
    SELECT 1 FROM json_each(:attributes) w
    WHERE NOT EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(schedules.attributes) THEN schedules.attributes END) h WHERE h.key = w.key AND h.value IS w.value))"""
_IS_LISTED = "EXISTS (SELECT 1 FROM workers, json_each(workers.crontab) e WHERE e.key = schedules.id)"

_INSERT = Bulk(
    f"INSERT INTO schedules ({', '.join(sql.SCHEDULE)}) VALUES {{rows}} ON CONFLICT (id) DO NOTHING", len(sql.SCHEDULE)
)


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
            there = dict(db.execute(f"SELECT id, made_by FROM schedules WHERE id IN {work.LIST}", (ids,)).fetchall())
            _INSERT.run(db, [sql.schedule_values(each) for each in schedules if each.id not in there])
            work.TICKS.run(db, [sql.tick_values(tick) for tick in ticks if tick.schedule not in there])
            for backfill in backfills:
                if backfill.schedule not in there:
                    db.execute(work.KEEP_BACKFILL, sql.backfill_values(backfill))
            batch = Batch(db, 0)
            batch.due = True
        self._tell(batch)
        return sql.taken(schedules, there)

    def change(self, schedule: str, decide: Decide, now: int) -> Plan | None:
        with self._db.write() as db:
            found = work.situation(db, schedule, now)
            if found is None:
                return None
            (plan,) = work.decided(db, [found], decide)
            batch = work.apply(db, [plan], now)
        self._tell(batch)
        return plan

    def fire(self, now: int, limit: int, decide: Decide) -> Passed:
        if not self._db.prompt:  # else it costs less to look while it is our turn
            with self._db.read() as db:
                next_due, ended = db.execute(_NEXT).fetchone()
                if not ended and (next_due is None or next_due > now):
                    return Passed(0, next_due, more=False)
        with self._db.write() as db:
            _, ended = db.execute(_NEXT).fetchone()
            found = work.due(db, now, limit, ended=bool(ended))
            plans = [plan for plan in work.decided(db, found, decide) if not plan.empty]
            batch = work.apply(db, plans, now)
            batch.due = False  # it was this very pass, which goes on by itself
            next_due, ended = db.execute(_NEXT).fetchone()
        self._tell(batch)
        more = bool(plans) and (bool(ended) or (next_due is not None and next_due <= now))
        return Passed(len(plans), next_due, more, frozenset(sql.in_hand(plans)))

    def rewind(self, now: int) -> list[str]:
        with self._db.read() as db:
            if db.execute(ANY_AHEAD, {"ahead": now + AHEAD}).fetchone() is None:
                return []
        with self._db.write() as db:
            return rewind(lambda text, values: db.execute(text, values).fetchall(), db.execute, now)

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
        statement, values = sql.schedules_page(wanted, _HAS, _IS_LISTED)
        with self._db.read() as db:
            return [sql.to_schedule(row) for row in db.execute(statement, values)]

    def listed(self, entries: Sequence[str]) -> set[str]:
        with self._db.read() as db:
            return {row[0] for row in db.execute(work.LISTED, (json.dumps(list(entries)),))}

    def situation(self, schedule: str) -> Situation | None:
        with self._db.snapshot() as db:
            return work.situation(db, schedule)

    def ticks(self, wanted: TickFilter) -> list[Tick]:
        statement, values = sql.ticks_page(wanted)
        with self._db.read() as db:
            return readable("ticks", db.execute(statement, values), sql.to_tick, tick_key)

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
            return readable("backfills", db.execute(sql.BACKFILLS, {"schedule": schedule}), sql.to_backfill)

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
            look = f"SELECT version, first_seen FROM versions WHERE version IN {work.LIST}"
            return dict(db.execute(look, (json.dumps(list(versions)),)).fetchall())
