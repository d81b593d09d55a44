"""Schedules on PostgreSQL. A schedule's row is locked from the look at it until its plan is committed.

Everything else that a plan is made from is read in later statements than the one that locks, so that it is at least as new. A
plan that ends runs needs their rows as well. If somebody has one of them, everything is let go, that row is waited for alone,
and the plan is made anew: nobody here waits for a run while they hold one that is wanted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.model.clock import SECOND
from mainspring.model.schedules import Hook
from mainspring.store import schedule_sql as sql
from mainspring.store.postgres import schedule_statements as text
from mainspring.store.postgres.claims import wait_for
from mainspring.store.postgres.database import LOCKED
from mainspring.store.postgres.news import News
from mainspring.store.postgres.one import Held
from mainspring.store.postgres.schedule_work import Taken, Work, backfill_rows, tick_rows
from mainspring.store.postgres.wire import to_json
from mainspring.store.rewinding import rewind
from mainspring.store.schedules import Passed, Situation
from mainspring.store.unreadable import readable, tick_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from psycopg import Cursor

    from mainspring.model.schedules import Backfill, Schedule, Tick
    from mainspring.store.postgres.database import Connection, Database
    from mainspring.store.postgres.dialect import Dialect
    from mainspring.store.schedules import Decide, Plan, ScheduleFilter, TickFilter

RETRIED = (Held, Taken, *LOCKED)
"""What was true when it was read is not any more, or another transaction is in the way: the plan can be made anew at once."""
_HELD = SECOND // 4
"""How soon to look again at due schedules that other transactions hold. A rollback notifies no one."""


class PostgresSchedules:
    """See `mainspring.store.schedules.ScheduleStore` for what each verb promises."""

    _retried: tuple[type[Exception], ...] = RETRIED

    def __init__(self, database: Database, dialect: Dialect, origin: str, tell: Callable[[News], None]) -> None:
        self._db = database
        self._sql = dialect
        self._origin = origin
        self._tell = tell

    # -- writing -------------------------------------------------------------------------------------------------------
    def create(
        self, schedules: Sequence[Schedule], ticks: Sequence[Tick] = (), backfills: Sequence[Backfill] = ()
    ) -> list[str]:
        news = News(due=True)
        ids = [schedule.id for schedule in schedules]
        rows = [dict(zip(sql.SCHEDULE, sql.schedule_values(schedule), strict=True)) for schedule in schedules]
        with self._db.transaction() as db:
            made = {row[0] for row in db.execute(self._sql(text.CREATE), {"rows": to_json(rows)})}
            look = "SELECT id, made_by FROM schedules WHERE id = ANY(:ids)"
            found: Iterable[tuple[str, str | None]] = db.execute(self._sql(look), {"ids": ids}).fetchall()
            there = {schedule: by for schedule, by in found if schedule not in made}
            for statement, more in (
                (text.TICKS, tick_rows(tick for tick in ticks if tick.schedule in made)),
                (text.KEEP_BACKFILLS, backfill_rows(each for each in backfills if each.schedule in made)),
            ):
                if more:
                    db.execute(self._sql(statement), {"rows": to_json(more)})
            news.notify(db, self._sql, self._origin)
        self._tell(news)
        return sql.taken(schedules, there)

    def change(self, schedule: str, decide: Decide, now: int) -> Plan | None:
        with self._db.connection() as db:
            while True:
                work = Work(db, self._sql, now)
                try:
                    with db.transaction():
                        found = work.situations([schedule], text.LOCK_AND_WAIT)
                        if not found:
                            return None
                        (plan,) = work.decided(found, decide)
                        work.apply([plan])
                        work.news.due = True
                        work.news.notify(db, self._sql, self._origin)
                except self._retried as held:
                    self._wait(db, held)
                else:
                    self._tell(work.news)
                    return plan

    def fire(self, now: int, limit: int, decide: Decide) -> Passed:
        with self._db.connection() as db:
            values: dict[str, Any] = {"now": now, "limit": limit, "held": []}
            planned: list[Plan | None] = []
            while not planned and (ids := [row[0] for row in db.execute(self._sql(text.DUE), values)]):
                planned = self._fire(db, ids, now, decide)
                values["held"] += ids  # one transaction that holds many of them does not keep the rest waiting
            due, later, ended = db.execute(self._sql(text.NEXT), values).fetchall()[0]
        left = ended or (due is not None and due <= now)
        if left and not planned:
            due = now + _HELD if later is None else min(later, now + _HELD)
        made = [plan for plan in planned if plan is not None]
        return Passed(len(planned), due, bool(planned) and left, frozenset(sql.in_hand(made)))

    def _fire(self, db: Connection, ids: list[str], now: int, decide: Decide) -> list[Plan | None]:
        """Plan these, together if possible; if one of them finds somebody in its way, each alone. None is one that had to wait."""
        work = Work(db, self._sql, now, together=db.pipeline)
        try:
            with db.transaction():
                found = work.situations(ids, text.LOCK_FREE)
                plans = [plan for plan in work.decided(found, decide) if not plan.empty]
                work.apply(plans)
                work.news.notify(db, self._sql, self._origin)
        except RETRIED as held:
            if len(ids) > 1:
                return [plan for each in ids for plan in self._fire(db, [each], now, decide)]
            self._wait(db, held)
            return [None]
        self._tell(work.news)
        return list(plans)

    def _wait(self, db: Connection, held: Exception) -> None:
        for run in held.runs if isinstance(held, Held) else ():
            wait_for(db, self._sql, run)

    def rewind(self, now: int) -> list[str]:
        with self._db.transaction() as db:

            def execute(text: str, values: dict[str, Any]) -> Cursor[tuple[Any, ...]]:
                return db.execute(self._sql(text), values)

            def rows(text: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
                return execute(text, values).fetchall()

            return rewind(rows, execute, now, " FOR NO KEY UPDATE SKIP LOCKED")

    def prune(self, before: int, limit: int) -> int:
        with self._db.connection() as db:
            return db.execute(self._sql(text.PRUNE), {"before": before, "limit": limit}).rowcount

    def keep_hooks(self, app: str, hooks: Sequence[Hook], forget: Sequence[str]) -> None:
        with self._db.transaction() as db:
            there = [Hook(*row) for row in db.execute(self._sql(sql.HOOKS)).fetchall()]
            for hook in hooks:
                db.execute(self._sql(sql.KEEP_HOOK), sql.hook_values(hook))
            for hook in sql.hooks_to_forget(there, app, hooks, forget):
                db.execute(self._sql(sql.FORGET_HOOK), sql.hook_values(hook))

    # -- reading -------------------------------------------------------------------------------------------------------
    def get(self, schedule: str) -> Schedule | None:
        rows = self._rows(sql.GET, id=schedule)
        return sql.to_schedule(rows[0]) if rows else None

    def page(self, wanted: ScheduleFilter) -> list[Schedule]:
        statement, values = sql.schedules_page(wanted, "attributes @> :attributes::jsonb", text.IS_LISTED)
        return [sql.to_schedule(row) for row in self._rows(statement, **values)]

    def listed(self, entries: Sequence[str]) -> set[str]:
        return {row[0] for row in self._rows(text.LISTED, ids=list(entries))}

    def situation(self, schedule: str) -> Situation | None:
        with self._db.snapshot() as db:
            found = Work(db, self._sql, 0).situations([schedule], text.LOOK)
        return found[0] if found else None

    def ticks(self, wanted: TickFilter) -> list[Tick]:
        statement, values = sql.ticks_page(wanted)
        return readable("ticks", self._rows(statement, **values), sql.to_tick, tick_key)

    def oldest_tick(self, schedule: str) -> int | None:
        found: int | None = self._rows(sql.OLDEST_TICK, schedule=schedule)[0][0]
        return found

    def backfill(self, backfill: str) -> Backfill | None:
        rows = self._rows(sql.BACKFILL_BY_ID, id=backfill)
        return sql.to_backfill(rows[0]) if rows else None

    def backfills(self, schedule: str) -> list[Backfill]:
        return readable("backfills", self._rows(sql.BACKFILLS, schedule=schedule), sql.to_backfill)

    def hooks(self) -> list[Hook]:
        return [Hook(*row) for row in self._rows(sql.HOOKS)]

    def has_queue(self, name: str) -> bool:
        return bool(self._rows(sql.HAS_QUEUE, name=name)[0][0])

    def functions(self) -> list[str]:
        return [row[0] for row in self._rows(sql.FUNCTIONS)]

    def first_seen(self, versions: Sequence[str]) -> dict[str, int]:
        look = "SELECT version, first_seen FROM versions WHERE version = ANY(:versions)"
        return dict(self._rows(look, versions=list(versions)))

    def _rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        with self._db.connection() as db:
            return db.execute(self._sql(statement), values).fetchall()
