"""Schedules on PostgreSQL. A schedule's row is locked from the look at it until its plan is committed.

Everything else that a plan is made from is read in later statements than the one that locks, so that it is at least as new. A
plan that ends runs needs their rows as well. If somebody has one of them, everything is let go, that row is waited for alone,
and the plan is made anew: nobody here waits for a run while they hold one that is wanted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg import errors as pg

from mainspring.model.schedules import Hook
from mainspring.store import schedule_sql as sql
from mainspring.store.ops import Start
from mainspring.store.postgres import schedule_statements as text
from mainspring.store.postgres import stops
from mainspring.store.postgres.claims import wait_for
from mainspring.store.postgres.database import LOCKED
from mainspring.store.postgres.news import News
from mainspring.store.postgres.one import Held, One
from mainspring.store.postgres.statements import LOCK
from mainspring.store.postgres.wire import to_json
from mainspring.store.schedules import MOST_TAKEN, Passed, Situation
from mainspring.store.sql import NEW_RUN_COLUMNS, run_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mainspring.model.schedules import Backfill, Schedule, Tick
    from mainspring.store.postgres.database import Connection, Database
    from mainspring.store.postgres.dialect import Dialect
    from mainspring.store.schedules import Decide, Plan, ScheduleFilter, TickFilter

AGAIN = (*LOCKED, pg.UniqueViolation)
"""What was true when it was looked at is not any more, or somebody is in the way: it can be made again at once."""


class PostgresSchedules:
    """See `mainspring.store.schedules.ScheduleStore` for what each verb promises."""

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
                (text.TICKS, _tick_rows(tick for tick in ticks if tick.schedule in made)),
                (text.KEEP_BACKFILLS, _backfill_rows(each for each in backfills if each.schedule in made)),
            ):
                if more:
                    db.execute(self._sql(statement), {"rows": to_json(more)})
            news.notify(db, self._sql, self._origin)
        self._tell(news)
        return sql.taken(schedules, there)

    def change(self, schedule: str, decide: Decide, now: int) -> Plan | None:
        with self._db.connection() as db:
            while True:
                work = _Work(db, self._sql, now)
                try:
                    with db.transaction():
                        found = work.situations([schedule], text.LOCK_AND_WAIT)
                        if not found:
                            return None
                        (plan,) = work.decided(found, decide)
                        work.apply([plan])
                        work.news.due = True
                        work.news.notify(db, self._sql, self._origin)
                except (Held, *AGAIN) as held:
                    self._wait(db, held)
                else:
                    self._tell(work.news)
                    return plan

    def fire(self, now: int, limit: int, decide: Decide) -> Passed:
        with self._db.connection() as db:
            values: dict[str, Any] = {"now": now, "limit": limit}
            ids = [row[0] for row in db.execute(self._sql(text.DUE), values)]
            planned = self._fire(db, ids, now, decide) if ids else 0
            due, ended = db.execute(self._sql(text.NEXT), values).fetchall()[0]
        # What somebody else is planning stays due until they are done. They look again after that; so need we not.
        more = planned > 0 and ((due is not None and due <= now) or bool(ended))
        return Passed(planned, due, more)

    def _fire(self, db: Connection, ids: list[str], now: int, decide: Decide) -> int:
        """Plan these, together if possible; if one of them finds somebody in its way, each alone."""
        work = _Work(db, self._sql, now)
        try:
            with db.transaction():
                found = work.situations(ids, text.LOCK_FREE)
                plans = [plan for plan in work.decided(found, decide) if not plan.empty]
                work.apply(plans)
                work.news.notify(db, self._sql, self._origin)
        except (Held, *AGAIN) as held:
            if len(ids) > 1:
                return sum(self._fire(db, [each], now, decide) for each in ids)
            self._wait(db, held)
            return 1
        self._tell(work.news)
        return len(plans)

    def _wait(self, db: Connection, held: Exception) -> None:
        for run in held.runs if isinstance(held, Held) else ():
            wait_for(db, self._sql, run)

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
        statement, values = sql.schedules_page(wanted, "attributes @> :attributes::jsonb")
        return [sql.to_schedule(row) for row in self._rows(statement, **values)]

    def situation(self, schedule: str) -> Situation | None:
        with self._db.snapshot() as db:
            found = _Work(db, self._sql, 0).situations([schedule], text.LOOK)
        return found[0] if found else None

    def ticks(self, wanted: TickFilter) -> list[Tick]:
        statement, values = sql.ticks_page(wanted)
        return [sql.to_tick(row) for row in self._rows(statement, **values)]

    def oldest_tick(self, schedule: str) -> int | None:
        found: int | None = self._rows(sql.OLDEST_TICK, schedule=schedule)[0][0]
        return found

    def backfill(self, backfill: str) -> Backfill | None:
        rows = self._rows(sql.BACKFILL_BY_ID, id=backfill)
        return sql.to_backfill(rows[0]) if rows else None

    def backfills(self, schedule: str) -> list[Backfill]:
        return [sql.to_backfill(row) for row in self._rows(sql.BACKFILLS, schedule=schedule)]

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


class _Work:
    """One transaction: reading what plans are made from, and applying them."""

    def __init__(self, connection: Connection, dialect: Dialect, now: int) -> None:
        self._db = connection
        self._sql = dialect
        self._now = now
        self.news = News()

    def _all(self, statement: str, **values: object) -> list[tuple[Any, ...]]:
        return self._db.execute(self._sql(statement), values).fetchall()

    def situations(self, ids: list[str], lock: str) -> list[Situation]:
        found = {row[0]: Situation(sql.to_schedule(row)) for row in self._all(lock, ids=ids)}
        got = list(found)
        if len(got) < len(ids):
            self._forget_strays([each for each in ids if each not in found], reading=lock is text.LOOK)
        if not got:
            return []
        for row in self._all(text.RUNS, ids=got):
            found[row[-1]].runs.append(sql.to_run_of(row[:-1]))
        ticks, backfills, hooks = self._all(sql.PRESENT)[0]
        for row in self._all(text.WAITING, ids=got) if ticks else ():
            found[row[0]].waiting.append(sql.to_tick(row))
        for row in self._all(text.BACKFILLS, ids=got) if backfills else ():
            backfill = sql.to_backfill(row)
            there = found[backfill.schedule]
            there.backfills.append(backfill)
            span = {"schedule": backfill.schedule, "after": backfill.cursor, "until": backfill.until}
            there.made[backfill.id] = [row[0] for row in self._all(text.MADE, **span, most=MOST_TAKEN)]
        if hooks:
            told = [Hook(*row) for row in self._all(sql.HOOKS)]
            for situation in found.values():
                situation.hooks = told
        return list(found.values())

    def _forget_strays(self, ids: list[str], *, reading: bool) -> None:
        """Runs whose schedule was deleted have nobody who would take note of their end."""
        if not reading:
            self._all(text.FORGET, ids=ids)

    def decided(self, situations: list[Situation], decide: Decide) -> list[Plan]:
        """The plans; one that wants to start a run under an id that is taken is made again, knowing that."""
        plans = [decide(situation) for situation in situations]
        ids = [start.run.id for plan in plans for start in plan.starts]
        taken = (
            frozenset(row[0] for row in self._all("SELECT id FROM runs WHERE id = ANY(:ids)", ids=ids)) if ids else None
        )
        if not taken:
            return plans
        for number, (situation, plan) in enumerate(zip(situations, plans, strict=True)):
            if any(start.run.id in taken for start in plan.starts):
                situation.taken = taken
                plans[number] = decide(situation)
        return plans

    def apply(self, plans: Sequence[Plan]) -> None:
        for plan in plans:
            self._stop(plan)
        starts = [
            dict(zip(sql.SCHEDULED_RUN, sql.beginning_values(plan.schedule.id, start), strict=True))
            for plan in plans
            for start in plan.starts
            if start.run.key is None
        ]
        self._start_keyed(plans)
        alerts = [dict(zip(NEW_RUN_COLUMNS, run_values(run), strict=True)) for plan in plans for run in plan.alerts]
        ticks = _tick_rows(tick for plan in plans for tick in plan.ticks)
        backfills = _backfill_rows(each for plan in plans for each in plan.backfills)
        for statement, rows in (
            (text.START, starts),
            (text.ALERT, alerts),
            (text.TICKS, ticks),
            (text.KEEP_BACKFILLS, backfills),
            (text.MOVE, [_part(plan.schedule, sql.MOVED) for plan in plans if plan.moved]),
            (text.LEARN, [_part(plan.schedule, sql.LEARNED) for plan in plans if plan.learned]),
            (text.REDEFINE, [_part(plan.schedule, sql.REDEFINED) for plan in plans if plan.redefined]),
        ):
            if rows:
                self._db.execute(self._sql(statement), {"rows": to_json(rows)})
        settled = [run for plan in plans for run in plan.settled]
        if settled:
            self._db.execute(self._sql("UPDATE runs SET unsettled = false WHERE id = ANY(:ids)"), {"ids": settled})
        deleted = [plan.schedule.id for plan in plans if plan.deleted]
        for statement in text.DELETE if deleted else ():
            self._db.execute(self._sql(statement), {"ids": deleted})
        for plan in plans:
            for start in plan.releases:
                values = {"id": start.run.id, "due": start.run.due, "tick": start.tick}
                self._db.execute(self._sql(text.RELEASE), values)
                self.news.ready = True
        self.news.ready = self.news.ready or bool(starts or alerts)

    def _start_keyed(self, plans: Sequence[Plan]) -> None:
        """Runs with keys may become others, which have these."""
        one = One(self._db, self._sql, self._now, self.news)
        for plan in plans:
            for start in plan.starts:
                if start.run.key is not None:
                    started = one.start(Start(start.run))
                    sql.became(plan, start.run.id, started.id)
                    values = {"schedule": plan.schedule.id, "tick": start.tick, "id": started.id or start.run.id}
                    self._db.execute(self._sql(text.OF_SCHEDULE), values)

    def _stop(self, plan: Plan) -> None:
        if not plan.cancels and not plan.terminates:
            return
        reason = f"by schedule {plan.schedule.id}, to make room for its next run"
        ended: set[str] = set()
        for ids, verb in ((plan.cancels, self._cancel), (plan.terminates, self._terminate)):
            if ids:
                self._lock_trees(ids)
                ended |= verb({"ids": ids, "reason": reason, "now": self._now})
        if ended:
            self.news.ended |= ended
            One(self._db, self._sql, self._now, self.news).unblock(ended)

    def _lock_trees(self, ids: list[str]) -> None:
        locked: set[str] = set()
        while fresh := {row[0] for row in self._all(stops.TREE_FIND, ids=ids)} - locked:
            got = {row[0] for row in self._all(LOCK, ids=list(fresh))}
            if got != fresh:
                raise Held(fresh - got)
            locked |= got

    def _cancel(self, values: dict[str, Any]) -> set[str]:
        self.news.poked |= {row[1] for row in self._all(stops.CANCEL_IN_HAND, **values)}
        self.news.ready = bool(self._all(stops.CANCEL_UNDOABLE, **values)) or self.news.ready
        return {row[0] for row in self._all(stops.CANCEL_AT_ONCE, **values)}

    def _terminate(self, values: dict[str, Any]) -> set[str]:
        rows = self._all(stops.TERMINATE, **values)
        self.news.poked |= {row[1] for row in rows if row[1] is not None}
        return {row[0] for row in rows}


def _part(schedule: Schedule, columns: Sequence[str]) -> dict[str, Any]:
    names = ("id", *columns)
    return dict(zip(names, sql.schedule_values(schedule, names), strict=True))


def _tick_rows(ticks: Iterable[Tick]) -> list[dict[str, Any]]:
    return [dict(zip(sql.TICK, sql.tick_values(tick), strict=True)) for tick in ticks]


def _backfill_rows(backfills: Iterable[Backfill]) -> list[dict[str, Any]]:
    return [dict(zip(sql.BACKFILL, sql.backfill_values(each), strict=True)) for each in backfills]
