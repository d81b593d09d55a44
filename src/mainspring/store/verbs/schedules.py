"""The verbs about schedules, ticks and backfills."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import asdict, astuple

from mainspring.errors import StoreError
from mainspring.model.clock import SECOND, SystemClock
from mainspring.model.schedules import Hook
from mainspring.store.bad_rows import readable, tick_key
from mainspring.store.schedules import Passed, Revision
from mainspring.store.sql import schedules as sql
from mainspring.store.sql.queues import HAS_QUEUE
from mainspring.store.verbs.planning import apply_plans, decide_all, lock_situations, read_situations, write_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainspring.model.schedules import Backfill, Schedule, Tick
    from mainspring.store.schedules import Decide, Plan, ScheduleFilter, SetAside, Situation, TickFilter
    from mainspring.store.transaction import Rows, Script, Transaction, Transactor

_CLOCK = SystemClock()
_LOCKED = SECOND // 4
"""The pause before due schedules that other transactions have locked are tried again. A rollback notifies no process."""


class LookFrom(Protocol):
    """Remembers the times from which to search for due schedules."""

    def begin(self) -> tuple[int, int]:
        """The times to search from: no schedule is due before the first, and no unprocessed end is before the second."""
        ...

    def looked(self, due: int | None, ended: int | None, now: int, took: float) -> None:
        """Remember the first due time and the first unprocessed end, found by a search that took so many seconds."""
        ...


class Schedules:
    """The schedules of a store, or of a user's transaction on it."""

    def __init__(self, transactor: Transactor, floors: LookFrom | None = None) -> None:
        self._transactor = transactor
        self._floors = floors
        self._read = transactor.read

    # -- writing -------------------------------------------------------------------------------------------------------
    def create(
        self, schedules: Sequence[Schedule], ticks: Sequence[Tick] = (), backfills: Sequence[Backfill] = ()
    ) -> list[str]:
        """Store new schedules in one transaction. Return the ids that were taken, whose schedules stay as they are.

        Ticks and backfills are stored for the schedules that are new. A schedule that the same run created at the same operation counts as
        created: the write is being repeated after a lost acknowledgement.
        """
        ordered = sorted(schedules, key=lambda each: each.id)

        def work(tx: Transaction) -> Script[list[str]]:
            new = sql.CREATE.rows(map(astuple, ordered))
            made = {row[0] for row in (yield from tx.execute(sql.CREATE, rows=new))}
            taken: list[str] = []
            if there := [each for each in schedules if each.id not in made]:
                rows = yield from tx.execute(sql.MADE_BY, ids=[each.id for each in there])
                makers = {row[0]: row[1] for row in rows}
                taken = [each.id for each in there if each.made_by is None or each.made_by != makers.get(each.id)]
            new_ticks = [astuple(tick) for tick in ticks if tick.schedule in made]
            yield from write_rows(tx, sql.WRITE_TICKS, new_ticks)
            asked = [astuple(each) for each in backfills if each.schedule in made]
            yield from write_rows(tx, sql.WRITE_BACKFILLS, asked)
            tx.changes.due = True
            return taken

        return self._transactor.change(work)

    def change(self, schedule: str, decide: Decide, now: int) -> Plan | None:
        """Lock one schedule, call `decide` to plan it, and apply the plan, in one transaction. Return None if there is no such schedule.

        If `decide` raises, the transaction is rolled back and the exception is raised.
        """

        def work(tx: Transaction) -> Script[Plan | None]:
            found = yield from lock_situations(tx, [schedule], sql.LOCK)
            if not found:
                return None
            (plan,) = yield from decide_all(tx, found, decide)
            yield from apply_plans(tx, [plan])
            tx.changes.due = True
            return plan

        return self._transactor.change(work, now)

    def fire(
        self,
        now: int,
        limit: int,
        decide: Decide,
        expect: Callable[[Sequence[str]], None] | None = None,
        set_aside: SetAside | None = None,
    ) -> Passed:
        """Plan the schedules that are due, about `limit` of them, and apply the plans, in one transaction.

        Before planning, `expect` is called with the functions of the schedules to plan. If the database refuses what a plan would
        store, the plan of `set_aside` is applied to that schedule, and the others are planned without it.

        A schedule is due if its `due` time has come, or if the end of one of its runs is unprocessed. Schedules that another transaction
        has locked are skipped. If all due schedules are locked, `next_due` is shortly after now, so that the caller does not spin.
        """
        planned: list[Plan | None] = []
        passed: list[str] = []
        due = self._due(now, limit, passed)
        while due.found and not planned:
            if expect is not None:
                expect(list(due.found.values()))
            planned = self._plan(list(due.found), now, decide, set_aside)
            passed += due.found  # a transaction that has locked many of them must not delay the rest
            due = self._due(now, limit, passed)
        next_due = due.next
        if due.left and not planned:
            next_due = now + _LOCKED if due.later is None else min(due.later, now + _LOCKED)
        owned = {start.run.id for plan in planned if plan for start in plan.starts if start.run.owner is not None}
        return Passed(
            len(planned), next_due, bool(planned) and due.left, frozenset(owned), [plan for plan in planned if plan]
        )

    def _due(self, now: int, limit: int, passed: Sequence[str]) -> _Due:
        due_floor, ended_floor = (0, 0) if self._floors is None else self._floors.begin()
        begun = _CLOCK.monotonic()
        rows = self._read(
            sql.DUE, now=now, limit=limit, passed=list(passed), due_floor=due_floor, ended_floor=ended_floor
        )
        if self._floors is not None:
            due, _, ended, *_ = rows[0]
            self._floors.looked(due, ended, now, _CLOCK.monotonic() - begun)
        return _Due(rows, now)

    def _plan(
        self, ids: list[str], now: int, decide: Decide, set_aside: SetAside | None, refusal: Exception | None = None
    ) -> list[Plan | None]:
        """Plan schedules, together if possible. If rows that one of them needs are locked, or refused, plan each alone.

        None stands for a schedule whose rows stayed locked. The next pass plans it. `refusal`: the database refused its last plan.
        """

        def work(tx: Transaction) -> Script[list[Plan] | None]:
            if tx.attempt > 1:
                return None
            found = yield from lock_situations(tx, ids, sql.LOCK_FREE)
            if refusal is not None and set_aside is not None:
                plans = [set_aside(situation, refusal) for situation in found]
            else:
                plans = [plan for plan in (yield from decide_all(tx, found, decide)) if not plan.empty]
            yield from apply_plans(tx, plans)
            tx.changes.due = False  # the pass continues with the others
            return plans

        try:
            plans = self._transactor.change(work, now)
        except StoreError:
            raise
        except Exception as error:
            if set_aside is None or refusal is not None:
                raise
            if len(ids) == 1:
                return self._plan(ids, now, decide, set_aside, error)
            plans = None
        if plans is not None:
            return list(plans)
        return (
            [None] if len(ids) == 1 else [plan for each in ids for plan in self._plan([each], now, decide, set_aside)]
        )

    def rewind(self, now: int) -> list[str]:
        """Set back schedules that a worker with a clock ahead has advanced into the future. Return their ids."""
        if not self._read(sql.ANY_AHEAD, ahead=now + sql.AHEAD):
            return []
        return self._transactor.change(_rewind, now)

    def prune(self, before: int, limit: int) -> int:
        """Delete at most so many ticks with an outcome older than a time. Return the number of deleted ticks."""
        old = self._read(
            sql.PRUNABLE, before=before, limit=limit
        )  # takes longer than to delete them, and locks nothing
        if old:
            self._transactor.change(lambda tx: tx.execute(sql.PRUNE, keys=json.dumps(old)))
        return len(old)

    def keep_hooks(self, app: str, hooks: Sequence[Hook], forget: Sequence[str]) -> None:
        """Store the hooks of an app. Delete other hooks of the app that a version in `forget` declared."""
        declared = {(hook.event, hook.function) for hook in hooks}

        def work(tx: Transaction) -> Script[None]:
            there = [Hook(*row) for row in (yield from tx.execute(sql.LIST_HOOKS))]
            for hook in hooks:
                yield from tx.execute(sql.KEEP_HOOK, **asdict(hook))
            for hook in there:
                if hook.app == app and hook.version in forget and (hook.event, hook.function) not in declared:
                    yield from tx.execute(sql.FORGET_HOOK, **asdict(hook))

        self._transactor.change(work)

    # -- reading -------------------------------------------------------------------------------------------------------
    def get(self, schedule: str) -> Schedule | None:
        """One schedule, or None."""
        rows = self._read(sql.GET_SCHEDULE, id=schedule)
        return sql.to_schedule(rows[0]) if rows else None

    def revisions(self) -> dict[str, Revision]:
        """All schedules by id, to compare with an earlier call."""
        return {row[0]: Revision(row[1], row[2], row[3], bool(row[4])) for row in self._read(sql.REVISIONS)}

    def page(self, wanted: ScheduleFilter) -> list[Schedule]:
        """A page of schedules, by id."""
        statement, values = sql.schedules_page(wanted)
        return [sql.to_schedule(row) for row in self._read(statement, **values)]

    def listed(self, entries: Sequence[str]) -> set[str]:
        """Those of these crontab entries that a live worker lists."""
        return {row[0] for row in self._read(sql.LISTED, ids=list(entries))}

    def situation(self, schedule: str) -> Situation | None:
        """The data that a plan would be made from, read without locks."""

        def look() -> Script[Situation | None]:
            rows = yield sql.LOOK, {"ids": [schedule]}
            return next(iter((yield from read_situations(rows, 0))), None)

        return self._transactor.snapshot(look())

    def ticks(self, wanted: TickFilter) -> list[Tick]:
        """A page of ticks, latest nominal time first."""
        statement, values = sql.ticks_page(wanted)
        return readable("ticks", self._read(statement, **values), sql.to_tick, tick_key)

    def oldest_tick(self, schedule: str) -> int | None:
        """The nominal time of the oldest stored tick of the clock, if there is one."""
        found: int | None = self._read(sql.OLDEST_TICK, schedule=schedule)[0][0]
        return found

    def backfill(self, backfill: str) -> Backfill | None:
        """One backfill, or None."""
        rows = self._read(sql.GET_BACKFILL, id=backfill)
        return sql.to_backfill(rows[0]) if rows else None

    def backfills(self, schedule: str) -> list[Backfill]:
        """The backfills of a schedule, newest first."""
        return readable("backfills", self._read(sql.LIST_BACKFILLS, schedule=schedule), sql.to_backfill)

    def hooks(self) -> list[Hook]:
        """Functions that receive alerts of schedules."""
        return [Hook(*row) for row in self._read(sql.LIST_HOOKS)]

    def has_queue(self, name: str) -> bool:
        """Whether this queue exists."""
        return bool(self._read(HAS_QUEUE, name=name))

    def functions(self) -> list[str]:
        """The functions that each worker executes, as JSON objects by name."""
        return [row[0] for row in self._read(sql.FUNCTIONS)]


class _Due:
    """The rows that `DUE` found. `next` is the first due time of all schedules, `later` the first after now."""

    def __init__(self, rows: Rows, now: int) -> None:
        self.next, self.later, ended = rows[0][:3]
        self.left = bool(ended) or (self.next is not None and self.next <= now)
        self.found: dict[str, str] = {row[3]: row[4] for row in rows if row[3] is not None}
        """The schedules to plan, with their functions."""


def _rewind(tx: Transaction) -> Script[list[str]]:
    """Set back the schedules that have acted on future times because a clock was ahead.

    Started runs stay and are not started again: a run has the id of its time. Ticks without a run, such as missed ones, are deleted from
    the first such time on, and decided when that time comes.
    """
    found = yield from tx.execute(sql.LOCK_AHEAD, ahead=tx.now + sql.AHEAD)
    for schedule, skips, missed, skipped, dropped in found:
        at = {"schedule": schedule, "now": tx.now}
        ticks = yield from tx.execute(sql.TICKS_AHEAD, **at)
        yield from tx.execute(sql.FORGET_TICKS_AHEAD, **at)
        again = {*json.loads(skips), *(nominal for nominal, outcome, _ in ticks if outcome == "skipped_by_request")}
        values = {
            "cursor": min([tx.now, *(nominal - 1 for nominal, _, _ in ticks)]),
            "skips": json.dumps(sorted(again)),
            "missed": missed - _count(ticks, "missed"),
            "skipped": skipped - _count(ticks, "skipped_overlap"),
            "dropped": dropped - _count(ticks, "dropped"),
        }
        yield from tx.execute(sql.REWIND, **at, **values)
    return [row[0] for row in found]


def _count(ticks: Rows, outcome: str) -> int:
    return sum(count for _, each, count in ticks if each == outcome)
