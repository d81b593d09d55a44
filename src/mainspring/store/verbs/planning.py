"""Plan schedules in an open transaction: read the data, decide on plans, and apply them.

A schedule's row is locked before the data for its plan is read. Later statements read the data, so that they see the commit of the previous
holder of the lock.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from msgspec.structs import astuple

from mainspring.model.keys import KEEPING, KeyMode
from mainspring.model.schedules import LEARNED_FIELDS, PLANNED_FIELDS, Hook, TickOutcome, is_crontab_entry
from mainspring.store.bad_rows import readable, tick_key
from mainspring.store.schedules import MOST_TAKEN, Situation
from mainspring.store.sql import schedules as sql
from mainspring.store.sql.runs import DISCARD_STARTED, EXISTING, KEY_HOLDERS
from mainspring.store.transaction import Blocked
from mainspring.store.verbs.start import insert_scheduled, start
from mainspring.store.verbs.stop import cancel, terminate
from mainspring.store.writes import Start

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mainspring.model.runs import NewRun
    from mainspring.store.schedules import Beginning, Decide, Plan, Refusal
    from mainspring.store.sql.bulk import Bulk
    from mainspring.store.sql.dialect import Sql
    from mainspring.store.transaction import Rows, Script, Transaction


# -- data for plans ------------------------------------------------------------------------------------------------------
def lock_situations(tx: Transaction, ids: Sequence[str], lock: Sql) -> Script[list[Situation]]:
    """Lock schedules and read the data for their plans. Mark the ends of runs of deleted schedules as processed."""
    rows = yield from tx.lock(lock, ids=list(ids))
    found = {row[0] for row in rows}
    if missing := [each for each in ids if each not in found]:
        yield from tx.execute(sql.MARK_STRAYS_PROCESSED, ids=missing)
    return (yield from read_situations(rows, tx.now))


def read_situations(rows: Rows, now: int) -> Script[list[Situation]]:
    """Read the data for the plans of schedules. `rows` are the rows of the schedules."""
    found = {row[0]: Situation(sql.to_schedule(row)) for row in rows}
    if not found:
        return []
    present = yield sql.PRESENT, {"ids": list(found)}
    runs, ticks, backfills, ahead, hooks = ([row[0] for row in present if row[number]] for number in range(1, 6))
    since = min((found[each].schedule.runs_since or "" for each in runs), default="")
    for row in (yield sql.UNPROCESSED_ENDS, {"ids": runs, "since": since}) if runs else ():
        found[row[-1]].unprocessed[row[0]] = row[1]
        found[row[-1]].runs += readable("runs", [row], sql.to_run_of)
    for row in (yield sql.WAITING_TICKS, {"ids": ticks}) if ticks else ():
        found[row[0]].waiting += readable("ticks", [row], sql.to_tick, tick_key)
    yield from _add_backfills(found, backfills, ahead, now)
    yield from _add_listed(found)
    listeners = [Hook(*row) for row in (yield sql.LIST_HOOKS, {})] if hooks else []
    for schedule in hooks:
        found[schedule].hooks = listeners
    return list(found.values())


def _add_listed(found: dict[str, Situation]) -> Script[None]:
    entries = [each.schedule.id for each in found.values() if is_crontab_entry(each.schedule)]
    listed = {row[0] for row in (yield sql.LISTED, {"ids": entries})} if entries else set[str]()
    for entry in entries:
        found[entry].listed = entry in listed


def _add_backfills(found: dict[str, Situation], having: list[str], ahead: list[str], now: int) -> Script[None]:
    """Add the unfinished backfills of schedules, and the times after a schedule's cursor for which a backfill has a tick."""
    rows = (yield sql.OPEN_BACKFILLS, {"ids": having}) if having else []
    for backfill in readable("backfills", rows, sql.to_backfill):
        there = found[backfill.schedule]
        there.backfills.append(backfill)
        span = {"schedule": backfill.schedule, "after": backfill.cursor, "until": backfill.until, "most": MOST_TAKEN}
        there.made[backfill.id] = [row[0] for row in (yield sql.TAKEN_TIMES, span)]
    for each in (found[schedule] for schedule in ahead):
        reach = {"schedule": each.schedule.id, "cursor": each.schedule.cursor, "now": now}
        each.ahead = {row[0]: row[1] for row in (yield sql.BACKFILLED_AHEAD, reach)}


# -- plans ---------------------------------------------------------------------------------------------------------------
def decide_all(tx: Transaction, situations: Sequence[Situation], decide: Decide) -> Script[list[Plan]]:
    """Decide on plans and store the runs that they start. A plan whose runs cannot start is decided again without them."""
    plans = [decide(situation) for situation in situations]
    fresh = list(range(len(plans)))
    while True:
        refused = yield from _start(tx, [plans[number] for number in fresh])
        refused |= yield from _find_held_keys(tx, plans)
        refused = refused or (yield from _take_keys(tx, plans))
        if not refused:
            for plan, situation in zip(plans, situations, strict=True):
                _note_unprocessed(plan, situation)
            return plans
        fresh = [number for number, plan in enumerate(plans) if any(start.run.uid in refused for start in plan.starts)]
        discarded = [start.run for number in fresh for start in plans[number].starts]
        yield from tx.execute(DISCARD_STARTED, ids=[run.id for run in discarded], uids=[run.uid for run in discarded])
        for number in fresh:
            runs = (start.run for start in plans[number].starts)
            situations[number].refused |= {run.id: refused[run.uid] for run in runs if run.uid in refused}
            plans[number] = decide(situations[number])


def _note_unprocessed(plan: Plan, situation: Situation) -> None:
    """Let a schedule that is written remember the oldest run whose end it has not processed."""
    earlier = (uid for run, uid in situation.unprocessed.items() if run not in plan.processed)
    plan.schedule.runs_since = min((*earlier, *(start.run.uid for start in plan.starts)), default=None)
    plan.moved = plan.moved or bool(plan.starts)


def _start(tx: Transaction, plans: Iterable[Plan]) -> Script[dict[str, Refusal]]:
    """Store the runs without keys that plans start. Return, by uid, the runs with or without keys whose ids belong to other runs."""
    starts = [(start, plan.schedule.id) for plan in plans for start in plan.starts]
    plain = [(start.run, schedule, start.tick) for start, schedule in starts if start.run.key is None]
    made = (yield from insert_scheduled(tx, plain)) if plain else set[str]()
    taken = [run for run, _, _ in plain if run.uid not in made]
    if keyed := {start.run.id: start.run for start, _ in starts if start.run.key is not None}:
        taken += [keyed[row[0]] for row in (yield from tx.execute(EXISTING, ids=list(keyed)))]
    return {run.uid: _id_taken(run) for run in taken}


def _find_held_keys(tx: Transaction, plans: Iterable[Plan]) -> Script[dict[str, Refusal]]:
    """Return, by uid, the runs that do not start because another run has their key and stays as it is."""
    starts = [start.run for plan in plans for start in plan.starts if start.run.key is not None]
    keys = sorted({run.key for run in starts if run.key is not None and run.key_mode in KEEPING})
    if not keys:
        return {}
    holders: dict[str | None, str] = {row[0]: row[1] for row in (yield from tx.execute(KEY_HOLDERS, keys=keys))}
    refused: dict[str, Refusal] = {}
    for run in starts:
        holder = holders.setdefault(run.key, run.id)
        if holder != run.id and run.key_mode in KEEPING:
            refused[run.uid] = _refusal(run, holder)
    return refused


def _take_keys(tx: Transaction, plans: Iterable[Plan]) -> Script[dict[str, Refusal]]:
    """Start the runs that must not change the holder of their key. Return, by uid, those whose key was taken a moment ago.

    Such a start changes nothing else, so that it can be discarded and decided again, also in a transaction that cannot be repeated.
    """
    for run in (each.run for plan in plans for each in plan.starts):
        if run.key is None or run.key_mode not in KEEPING:
            continue
        started = (yield from start(tx, [Start(run)]))[0]
        if not started.created:
            return {run.uid: _refusal(run, started.id) if started.id else _id_taken(run)}
    return {}


def _id_taken(run: NewRun) -> Refusal:
    return TickOutcome.START_FAILED, f"there is a run {run.id} already"


def _refusal(run: NewRun, holder: str) -> Refusal:
    """What becomes of the tick of a run whose key another run has."""
    outcome = TickOutcome.START_FAILED if run.key_mode == KeyMode.REJECT else TickOutcome.SKIPPED_OVERLAP
    return outcome, f"run {holder} has the key {run.key!r}"


def apply_plans(tx: Transaction, plans: Sequence[Plan]) -> Script[None]:
    """Apply the plans that `decide_all` returned."""
    for plan in plans:
        yield from _stop(tx, plan)
        for each in plan.starts:
            if each.run.key is not None:
                yield from _start_keyed(tx, plan, each)
        for each in plan.releases:
            yield from tx.execute(sql.RELEASE_PROMISED, id=each.run.id, due=each.run.due, tick=each.tick)
    if alerts := [Start(run) for plan in plans for run in plan.alerts]:
        yield from start(tx, alerts)
    yield from write_rows(tx, sql.WRITE_TICKS, (astuple(tick) for plan in plans for tick in plan.ticks))
    backfills = [backfill for plan in plans for backfill in plan.backfills]
    yield from write_rows(tx, sql.WRITE_BACKFILLS, map(astuple, backfills))
    for statement, columns, changed in (
        (sql.MOVE, PLANNED_FIELDS, [plan.schedule for plan in plans if plan.moved]),
        (sql.LEARN, LEARNED_FIELDS, [plan.schedule for plan in plans if plan.learned]),
        (sql.REDEFINE, sql.REDEFINED, [plan.schedule for plan in plans if plan.redefined]),
    ):
        yield from write_rows(tx, statement, map(attrgetter("id", *columns), changed))
    if processed := [run for plan in plans for run in plan.processed]:
        yield from tx.execute(sql.MARK_PROCESSED, ids=processed)
    if deleted := [plan.schedule.id for plan in plans if plan.deleted]:
        for delete in sql.DELETE:
            yield from tx.execute(delete, ids=deleted)
    tx.changes.ready = tx.changes.ready or any(_has_runs_to_claim(plan) for plan in plans)


def write_rows(tx: Transaction, statement: Bulk, tuples: Iterable[tuple[Any, ...]]) -> Script[None]:
    """Write rows with one statement, if there are any."""
    rows = statement.rows(tuples)
    if rows.tuples:
        yield from tx.execute(statement, rows=rows)


def _has_runs_to_claim(plan: Plan) -> bool:
    return bool(plan.releases) or any(start.run.owner is None for start in plan.starts)


def _start_keyed(tx: Transaction, plan: Plan, beginning: Beginning) -> Script[None]:
    """Start a run with a key, unless `_take_keys` has. If another run takes over its request, the tick records that run."""
    run = beginning.run
    holder = run.id
    if run.key_mode not in KEEPING:
        started = (yield from start(tx, [Start(run)]))[0]
        if not started.created and not started.id:  # the id was taken a moment ago
            if not tx.users:
                raise Blocked([run.id])
            for tick in plan.ticks:
                if tick.run == run.id:
                    tick.outcome, tick.reason = _id_taken(run)
            return
        holder = started.id or run.id
    for tick in plan.ticks:
        if tick.run == run.id:
            tick.run = holder
    if holder != run.id:  # it may be older than the other runs of the schedule
        plan.schedule.runs_since = ""
    yield from tx.execute(sql.OF_SCHEDULE, schedule=plan.schedule.id, tick=beginning.tick, id=holder)


def _stop(tx: Transaction, plan: Plan) -> Script[None]:
    for verb, runs in ((cancel, plan.cancels), (terminate, plan.terminates)):
        by_reason: dict[str, list[str]] = {}
        for run, reason in runs.items():
            by_reason.setdefault(reason, []).append(run)
        for reason, ids in by_reason.items():
            yield from verb(tx, ids, reason)
