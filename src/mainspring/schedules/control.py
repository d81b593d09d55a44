"""Requests to a schedule: pause, resume, trigger, skip, change, backfill, delete.

Each request first plans the schedule up to now with its old state, and then makes its change. So the new state never decides about
earlier times. Each returns a function from a situation to a plan, which the store applies in one transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import structs

from mainspring.errors import Conflict, InvalidInput
from mainspring.model.clock import SECOND
from mainspring.model.schedules import Tick, TickOutcome, TickSource
from mainspring.schedules.actions import stamp
from mainspring.schedules.backfill import due_behind
from mainspring.schedules.definition import declared_columns, declared_json, same_declaration
from mainspring.schedules.due_ticks import Times, spec_of
from mainspring.schedules.plan import Planning
from mainspring.schedules.policy import policy_of
from mainspring.store.schedules import Plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.model.schedules import Backfill, Overlap, Schedule
    from mainspring.schedules.policy import Policy
    from mainspring.store.schedules import Decide, Situation

_DECLARED_BY = {"app", "version", "declared"}
"""Columns that record the source of the definition, not its content."""


class Outdated(Exception):
    """The schedule has changed since the decision. The caller reads it again and decides again."""


class Control:
    """Makes the decisions, at one time."""

    def __init__(self, now: int, new_uid: Callable[[], str]) -> None:
        self._now = now
        self._new_uid = new_uid

    def _after_now(self, change: Callable[[Planning], None]) -> Decide:
        def decide(situation: Situation) -> Plan:
            planning = Planning(situation, self._now, self._new_uid)
            plan = planning.run()
            if not plan.unfinished:
                change(planning)
                planning.look_ahead()
                planning.finished()
            return plan

        return decide

    def pause(self, note: str | None, until: int | None) -> Decide:
        """Pause the schedule, and drop the clock's ticks that wait."""

        def change(planning: Planning) -> None:
            schedule = planning.schedule
            schedule.paused, schedule.resume_at, schedule.pause_note = True, until, note
            schedule.revision += 1
            for tick in planning.buffered:
                if not tick.source.manual:
                    tick.outcome, tick.acted = TickOutcome.PAUSED, self._now
                    tick.reason = "the schedule was paused while it waited" + (f": {note}" if note else "")
                    _once(planning.plan.ticks, tick)

        return self._after_now(change)

    def resume(self, note: str | None) -> Decide:
        """Resume the schedule."""

        def change(planning: Planning) -> None:
            schedule = planning.schedule
            schedule.paused, schedule.resume_at, schedule.pause_note = False, None, note
            schedule.revision += 1

        return self._after_now(change)

    def start_at_present(self) -> Decide:
        """Leave out the ticks of the time in which no worker was active."""

        def decide(situation: Situation) -> Plan:
            planning = Planning(situation, self._now, self._new_uid)
            planning.present = True
            return planning.run()

        return decide

    def trigger(self, request: str, overlap: Overlap | None) -> Decide:
        """Make a tick now, on request."""

        def decide(situation: Situation) -> Plan:
            tick = Tick(
                situation.schedule.id,
                self._now // SECOND * SECOND,
                request,
                TickSource.TRIGGER,
                due_behind(situation.waiting, request, self._now),
                TickOutcome.PENDING,
                overlap=overlap,
            )
            return Planning(situation, self._now, self._new_uid).run(tick)

        return decide

    def skip(self, when: int | None, *, undo: bool = False) -> Decide:
        """Skip the next tick or that of a nominal time, or with `undo` no longer."""

        def change(planning: Planning) -> None:
            nominal = _to_unskip(planning, when) if undo else _to_skip(planning, when, self._now)
            planning.plan.nominal = nominal
            if undo or nominal not in planning.skips:
                planning.skips ^= {nominal}
                planning.schedule.revision += 1

        return self._after_now(change)

    def update(
        self, values: dict[str, Any], revision: int | None, *, over: bool = True, seen: Schedule | None = None
    ) -> Decide:
        """Change the definition: `values` are columns of the schedule. `over`: it may have no future time.

        With `seen`, raise `Outdated` if the schedule has changed since then.
        """

        def change(planning: Planning) -> None:
            schedule = planning.schedule
            if seen is not None and _identity(planning.before) != _identity(seen):
                raise Outdated
            if revision is not None and revision != planning.before.revision:
                raise Conflict(
                    f"schedule {schedule.id!r} is at revision {planning.before.revision}, not {revision} any more: "
                    "it was changed meanwhile; describe it and decide again"
                )
            changed = _changed(schedule, values)
            if not changed:
                return
            if "policy" in changed and schedule.declared is None:
                check_declared(schedule.id, policy_of(changed["policy"]))
            redefine(planning, changed)
            spec = planning.times.spec
            if "spec" in changed and not (over or schedule.paused or spec.is_empty or planning.times.next(self._now)):
                raise InvalidInput(
                    f"schedule {schedule.id!r} would have no time after {stamp(self._now)} ({spec.describe()}); pause it "
                    "first if that is meant, or delete it"
                )

        return self._after_now(change)

    def declare(self, seen: Schedule, columns: dict[str, Any], values: dict[str, Any]) -> Decide:
        """Update the definition to `columns`, unless the same was declared last: an operator's change since then stays.

        `values` are columns beside the definition, which are always set. Raises `Outdated` if the schedule has changed
        since it was `seen`.
        """

        def change(planning: Planning) -> None:
            if _identity(planning.before) != _identity(seen):
                raise Outdated
            declared = declared_json(columns)
            wanted = {**values, "declared": declared}
            if not same_declaration(planning.before.declared, declared):
                wanted |= columns
            if changed := _changed(planning.schedule, wanted):
                redefine(planning, changed)

        return self._after_now(change)

    def reset(self) -> Decide:
        """Restore the last declaration."""

        def change(planning: Planning) -> None:
            schedule = planning.schedule
            if schedule.declared is None:
                raise InvalidInput(
                    f"schedule {schedule.id!r} was made at run time: no code declares what it could go back to; update it"
                )
            if changed := _changed(schedule, declared_columns(schedule.declared)):
                redefine(planning, changed)

        return self._after_now(change)

    def backfill(self, new: Backfill) -> Decide:
        """Store a backfill. The following passes make its ticks."""

        def change(planning: Planning) -> None:
            latest = max((each.created for each in planning.situation.backfills), default=new.created - 1)
            planning.plan.backfills.append(structs.replace(new, created=max(new.created, latest + 1)))
            planning.more = True

        return self._after_now(change)

    def stop_backfill(self, backfill: Backfill) -> Decide:
        """Stop a backfill, and drop its waiting ticks, also when it has made its last one."""

        def decide(situation: Situation) -> Plan:
            active = [each for each in situation.backfills if each.id == backfill.id]
            dropped = [tick for tick in situation.waiting if tick.request == backfill.id]
            others = structs.replace(  # a plan may be made twice from one situation, so the situation must not change
                situation,
                backfills=[each for each in situation.backfills if each.id != backfill.id],
                waiting=[tick for tick in situation.waiting if tick.request != backfill.id],
            )
            planning = Planning(others, self._now, self._new_uid)
            planning.run()
            for tick in dropped:
                planning.drop(structs.replace(tick), "its backfill was stopped")
            for each in active or ([backfill] if dropped else []):
                ended = each.completed if each.completed is not None else self._now
                planning.plan.backfills.append(structs.replace(each, completed=ended, stopped=True))
            return planning.finished()

        return decide

    def delete(self) -> Decide:
        """Delete the schedule. Runs of its waiting ticks would never begin, so they are cancelled."""

        def decide(situation: Situation) -> Plan:
            reason = f"schedule {situation.schedule.id} was deleted before its turn came"
            promised = {tick.run: reason for tick in situation.waiting if tick.run is not None}
            return Plan(situation.schedule, cancels=promised, deleted=True)

        return decide


def redefine(planning: Planning, changed: dict[str, Any]) -> None:
    """Change the definition of a schedule that is planned up to now. It takes effect from now on."""
    schedule, now = planning.schedule, planning.now
    respecified = "spec" in changed and spec_of(changed["spec"]) != planning.times.spec
    if respecified and planning.situation.listed:
        # A tick whose nominal time has passed, and that only waits for its jitter, is kept.
        nominal = planning.times.next(schedule.cursor)
        if nominal is not None and nominal <= now:
            planning.hold(nominal)
        schedule.cursor = max(schedule.cursor, now)
        # A time that the new spec does not have stays skipped too: the next change may bring it back.
        planning.skips = {nominal for nominal in planning.skips if nominal > schedule.cursor}
    # The cursor of an entry that no worker lists stays: the worker that lists it next catches up by the new pattern, within `fill`.
    planning.more = planning.more or ("policy" in changed and bool(planning.buffered))  # they are decided again
    limit = policy_of(schedule.policy).limit
    for name, value in changed.items():
        setattr(schedule, name, value)
    if policy_of(schedule.policy).limit != limit:
        schedule.remaining = policy_of(schedule.policy).limit
    planning.times = Times(spec_of(schedule.spec), schedule.id)
    planning.policy = policy_of(schedule.policy)
    if changed.keys() - _DECLARED_BY:
        schedule.updated = now
        schedule.revision += 1
    planning.plan.redefined = True


def _identity(schedule: Schedule) -> tuple[object, ...]:
    """Return columns that change whenever an operator or a worker changes the definition."""
    return schedule.created, schedule.revision, schedule.app, schedule.version, schedule.declared, schedule.stopped


def _changed(schedule: Schedule, values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if getattr(schedule, name) != value}


def _to_skip(planning: Planning, when: int | None, now: int) -> int:
    """Return the nominal time to skip: the given one, or the next one that is not skipped yet."""
    spec = planning.times.spec
    if when is not None:
        if not spec.matches(when / SECOND):
            raise InvalidInput(f"schedule {planning.schedule.id!r} has no tick at {stamp(when)}: nothing to skip there")
        if when <= planning.schedule.cursor:
            raise InvalidInput(f"the tick of {stamp(when)} is over: it is now {stamp(now)}")
        return when
    found = planning.times.next(planning.schedule.cursor)
    while found is not None and found in planning.skips:
        found = planning.times.next(found)
    if found is None:
        raise InvalidInput(f"schedule {planning.schedule.id!r} has no further tick to skip")
    return found


def _to_unskip(planning: Planning, when: int | None) -> int:
    if when is None and planning.skips:
        return min(planning.skips)
    if when is None or when not in planning.skips:
        which = "" if when is None else f" for the tick of {stamp(when)}"
        raise InvalidInput(f"schedule {planning.schedule.id!r} has no skip to undo{which}")
    return when


def check_declared(schedule: str, policy: Policy) -> None:
    """Raise `InvalidInput` for `when_active`: only workers whose code declares the schedule apply it."""
    if policy.when_active:
        raise InvalidInput(
            f"schedule {schedule!r}: when_active is for schedules that the code declares, because their workers apply it when they start; "
            "use catchup= to choose which missed times are caught up"
        )


def just_before(moment: int) -> int:
    """Return a time after which a nominal time at `moment` is the next."""
    return (moment + SECOND - 1) // SECOND * SECOND - SECOND


def _once(ticks: list[Tick], tick: Tick) -> None:
    if not any(each is tick for each in ticks):
        ticks.append(tick)
