"""One transaction about schedules on PostgreSQL: reading what plans are made from, and applying them."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from mainspring.model.schedules import MOVED, Hook, is_crontab_entry
from mainspring.store import schedule_sql as sql
from mainspring.store.ops import Start
from mainspring.store.postgres import schedule_statements as text
from mainspring.store.postgres import stops
from mainspring.store.postgres.news import News
from mainspring.store.postgres.one import Held, One
from mainspring.store.postgres.statements import LOCK
from mainspring.store.postgres.wire import to_json
from mainspring.store.schedules import MOST_TAKEN, Situation
from mainspring.store.sql import NEW_RUN_COLUMNS, run_values
from mainspring.store.unreadable import readable, tick_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager

    from mainspring.model.schedules import Backfill, Schedule, Tick
    from mainspring.store.postgres.database import Connection
    from mainspring.store.postgres.dialect import Dialect
    from mainspring.store.schedules import Decide, Plan


class Taken(Exception):
    """Another transaction has committed a run under an id that a plan starts one with."""


class Work:
    """One transaction: reading what plans are made from, and applying them.

    `together` is how several statements travel in one round trip. Somebody else's connection may know no such thing.
    """

    def __init__(
        self,
        connection: Connection,
        dialect: Dialect,
        now: int,
        together: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._db = connection
        self._sql = dialect
        self._now = now
        self._together = together
        self.news = News()

    def _all(self, statement: str, **values: object) -> list[tuple[Any, ...]]:
        return self._db.execute(self._sql(statement), values).fetchall()

    def situations(self, ids: list[str], lock: str) -> list[Situation]:
        locked, runs, present = self._look(ids, lock)
        found = {row[0]: Situation(sql.to_schedule(row)) for row in locked}
        got = list(found)
        if len(got) < len(ids):
            self._forget_strays([each for each in ids if each not in found], reading=lock is text.LOOK)
        if not got:
            return []
        for row in runs:
            if row[-1] in found:
                found[row[-1]].runs += readable("runs", [row], lambda row: sql.to_run_of(row[:-1]))
        ticks, backfills, hooks, ahead = present[0]
        for row in self._all(text.WAITING, ids=got) if ticks else ():
            found[row[0]].waiting += readable("ticks", [row], sql.to_tick, tick_key)
        if backfills:
            self._add_backfills(found)
        self._add_ahead([found[each] for each in ahead if each in found])
        if entries := [each for each in found.values() if is_crontab_entry(each.schedule)]:
            sql.mark_listed(entries, self._all(text.LISTED, ids=[each.schedule.id for each in entries]))
        if hooks:
            told = [Hook(*row) for row in self._all(sql.HOOKS)]
            for situation in found.values():
                situation.hooks = told
        return list(found.values())

    def _add_backfills(self, found: dict[str, Situation]) -> None:
        for backfill in readable("backfills", self._all(text.BACKFILLS, ids=list(found)), sql.to_backfill):
            there = found[backfill.schedule]
            there.backfills.append(backfill)
            span = {"schedule": backfill.schedule, "after": backfill.cursor, "until": backfill.until}
            there.made[backfill.id] = [row[0] for row in self._all(text.MADE, **span, most=MOST_TAKEN)]

    def _add_ahead(self, reaching: list[Situation]) -> None:
        for each in reaching:
            values = {"schedule": each.schedule.id, "cursor": each.schedule.cursor, "now": self._now}
            each.ahead = dict(self._all(sql.AHEAD, **values))

    def _look(self, ids: list[str], lock: str) -> list[list[tuple[Any, ...]]]:
        """The schedules, their runs, and what else is present.

        Each in a statement of its own, later than the one that locks: what they see is at least as new.
        """
        questions: tuple[tuple[str, dict[str, object]], ...] = (
            (lock, {"ids": ids}),
            (text.RUNS, {"ids": ids}),
            (text.PRESENT, {"ids": ids}),
        )
        if self._together is nullcontext:
            return [self._all(statement, **values) for statement, values in questions]
        with self._together():
            asked = [self._db.execute(self._sql(statement), values) for statement, values in questions]
            return [cursor.fetchall() for cursor in asked]

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
        ticks = tick_rows(tick for plan in plans for tick in plan.ticks)
        backfills = backfill_rows(each for plan in plans for each in plan.backfills)
        with self._together():
            started = self._db.execute(self._sql(text.START), {"rows": to_json(starts)}) if starts else None
            self._write(plans, alerts, ticks, backfills)
        if started is not None and len(started.fetchall()) < len(starts):
            raise Taken
        self.news.ready = self.news.ready or sql.to_claim(plans)

    def _write(self, plans: Sequence[Plan], *rows_of: list[dict[str, Any]]) -> None:
        alerts, ticks, backfills = rows_of
        for statement, rows in (
            (text.ALERT, alerts),
            (text.TICKS, ticks),
            (text.KEEP_BACKFILLS, backfills),
            (text.MOVE, [_part(plan.schedule, MOVED) for plan in plans if plan.moved]),
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
        ended: set[str] = set()
        for runs, verb in ((plan.cancels, self._cancel), (plan.terminates, self._terminate)):
            if runs:
                self._lock_trees(list(runs))
            for reason, ids in sql.by_reason(runs).items():
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


def tick_rows(ticks: Iterable[Tick]) -> list[dict[str, Any]]:
    return [dict(zip(sql.TICK, sql.tick_values(tick), strict=True)) for tick in ticks]


def backfill_rows(backfills: Iterable[Backfill]) -> list[dict[str, Any]]:
    return [dict(zip(sql.BACKFILL, sql.backfill_values(each), strict=True)) for each in backfills]
