"""Actions of operators on schedules. Each verb is described once: its summary and its answer."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mainspring.errors import Conflict, InvalidInput, NotFound
from mainspring.model.clock import SECOND, to_datetime, to_micros
from mainspring.model.given import check_text
from mainspring.model.schedules import CRONTAB, Backfill, Overlap, Tick, TickOutcome, TickSource
from mainspring.operations.actions import Actions, Answer
from mainspring.operations.schedules.info import ScheduleInfo, backfill_info, schedule_info, tick_info
from mainspring.operations.schedules.views import ScheduleViews, missing, schedules_of, wanted_id
from mainspring.schedules.actions import action_of
from mainspring.schedules.control import Control, check_declared, just_before
from mainspring.schedules.definition import check_note, check_schedule_id, spec_json
from mainspring.schedules.policy import policy_of, read_overlap
from mainspring.store.schedules import TickFilter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from mainspring.model.clock import Clock
    from mainspring.model.ids import IdMaker
    from mainspring.model.schedules import Schedule
    from mainspring.operations.schedules.info import BackfillInfo, TickInfo
    from mainspring.operations.schedules.views import HasSchedules
    from mainspring.schedules.definition import Definition
    from mainspring.schedules.policy import Policy
    from mainspring.store.schedules import Decide, Plan

_EARLIEST_YEAR = 2
_AT_ONCE = 500
_SHORT = 10
SCHEDULE_ACTIONS = Actions("schedules")


def _paused(schedule: str, info: ScheduleInfo) -> Answer:
    until = f" until {info.resume_at:%Y-%m-%d %H:%M %Z}" if info.resume_at else ""
    return Answer(f"{schedule} is paused{until}")


def _resumed(schedule: str, info: ScheduleInfo) -> Answer:
    ended = f", but {info.stopped}" if info.stopped else ""
    return Answer(f"{schedule} is active again{ended}")


def _triggered(schedule: str, tick: TickInfo) -> Answer:
    text = f"{schedule} was triggered: {tick.run}" if tick.run else f"{schedule} started nothing: {tick.reason}"
    return Answer(text, {"run": tick.run, "outcome": str(tick.outcome), "reason": tick.reason}, tick.run)


def _skipped(schedule: str, when: datetime) -> Answer:
    return Answer(f"{schedule} will skip {when:%Y-%m-%d %H:%M:%S %Z}", {"when": when.isoformat()})


def _not_skipped(schedule: str, when: datetime) -> Answer:
    return Answer(f"{schedule} will not skip {when:%Y-%m-%d %H:%M:%S %Z}", {"when": when.isoformat()})


def _filled_in(schedule: str, made: BackfillInfo) -> Answer:
    return Answer(f"{schedule}: backfill {made.id} has begun", {"backfill": made.id})


def _backfill_stopped(_: str, made: BackfillInfo) -> Answer:
    return Answer(f"backfill {made.id} is {made.state}", {"backfill": made.id, "state": made.state})


def _defined(words: str) -> Callable[[str, ScheduleInfo], Answer]:
    return lambda schedule, info: Answer(f"{schedule} {words} {info.description}", {"revision": info.revision})


def _applied(_: str, done: dict[str, str]) -> Answer:
    text = [f"{count} {what}" for what in sorted({*done.values()}) if (count := [*done.values()].count(what))]
    return Answer(f"schedules: {', '.join(text) or 'none'}", dict(done))


class Schedules(ScheduleViews):
    """The queries and actions of schedules. `origin` is the run and operation on whose behalf they are called, if any."""

    def __init__(
        self,
        store: HasSchedules,
        clock: Clock,
        ids: IdMaker,
        origin: str | None = None,
        queues: Collection[str] = (),
    ) -> None:
        super().__init__(store, clock)
        self._queues = set(queues)
        """The queues that the caller's code declares. They exist once a worker has started."""
        self._ids = ids
        self._origin = origin

    # -- creating ------------------------------------------------------------------------------------------------------
    @SCHEDULE_ACTIONS(_defined("is created:"))
    def create(
        self,
        definition: Definition,
        *,
        paused: bool = False,
        trigger: bool = False,
        backfill: Sequence[tuple[datetime, datetime]] = (),
    ) -> ScheduleInfo:
        """Create a schedule that starts a run of a function at the times of a spec.

        `trigger` also starts a run at once. `backfill` also starts the runs of past spans of time. Raises `Conflict` if
        the id is taken, and `InvalidInput` for a wrong id or an unknown queue.
        """
        for start, end in backfill:
            _check_span(start, end)
        row = self._row(definition, paused=paused)
        request, now = self._request(), row.created
        second = now // SECOND * SECOND
        ticks = [Tick(row.id, second, request, TickSource.TRIGGER, now, TickOutcome.PENDING)] if trigger else []
        how = _backfill_overlap(definition.policy)
        backfills = [
            _new_backfill(f"{request}-{number}", row.id, (to_micros(start), to_micros(end)), how, now + number)
            for number, (start, end) in enumerate(backfill)
        ]
        if ticks or backfills:
            row.due = now
        self._insert([row], ticks, backfills)
        return schedule_info(ScheduleInfo, self._get(definition.id), now)

    def _row(self, definition: Definition, *, paused: bool = False) -> Schedule:
        check_schedule_id(definition.id)
        check_note(definition.note)
        self._check_queue(definition.id, definition.action.queue)
        check_declared(definition.id, definition.policy)
        return definition.row(self._clock.now(), paused=paused, made_by=self._origin)

    def _check_queue(self, schedule: str, queue: str | None) -> None:
        if queue is not None and queue not in self._queues:
            if not self._store.has_queue(queue):
                raise InvalidInput(
                    f"schedule {schedule!r}: there is no queue {queue!r}; declare it with app.queue({queue!r}) first"
                )
            self._queues.add(queue)

    def _insert(self, rows: list[Schedule], ticks: Sequence[Tick] = (), backfills: Sequence[Backfill] = ()) -> None:
        taken = self._store.create(rows, ticks, backfills)
        if taken:
            raise Conflict(f"there is a schedule {taken[0]!r} already; update it, or delete it first")

    @SCHEDULE_ACTIONS(_defined("is now"))
    def update(self, schedule: str, changes: Mapping[str, Any], *, revision: int | None = None) -> ScheduleInfo:
        """Change the named parts of a schedule, from now on. `changes` are columns, and others stay. Raises `Conflict` for a stale revision."""
        values = dict(changes)
        if "action" in values:
            self._check_queue(schedule, action_of(values["action"]).queue)
        return self._info(self._change(schedule, lambda control: control.update(values, revision, over=False)))

    @SCHEDULE_ACTIONS(_defined("is as declared again:"))
    def reset(self, schedule: str) -> ScheduleInfo:
        """Reset a schedule to its declaration in the code or crontab: changes made at run time are undone. A pause stays."""
        return self._info(self._change(schedule, lambda control: control.reset()))

    @SCHEDULE_ACTIONS(_applied)
    def apply(
        self, definitions: Sequence[Definition], *, prune: bool = False, group: str = "applied"
    ) -> dict[str, str]:
        """Make the schedules of a group exactly these, keeping pauses and counters.

        Returns `created`, `updated`, `unchanged` or `deleted` by id. With `prune`, other schedules of the group are deleted.
        """
        done: dict[str, str] = {}
        for part in parts_to_apply(definitions, prune=prune, group=group):
            done |= part(self)
        return done

    def apply_some(self, definitions: Sequence[Definition], others: Sequence[Definition], group: str) -> dict[str, str]:
        """Create or update some schedules of a group, unless one of these or of the `others` is invalid."""
        rows = [row for definition in definitions if (row := self._row_to_apply(definition)) is not None]
        for definition in others:
            self._row_to_apply(definition)
        for row in rows:
            row.app = group
        there = self._store.create(rows) if rows else []
        done = {row.id: "created" for row in rows if row.id not in there}
        return done | {each.id: self._bring_in(each, group) for each in definitions if each.id not in done}

    def _bring_in(self, definition: Definition, group: str) -> str:
        """Update an existing schedule to the definition. Return what happened."""
        values = {**definition.columns(), "app": group, "version": None, "declared": None}
        try:
            plan = self._change(definition.id, lambda control: control.update(values, None))
        except NotFound:  # it was deleted at this moment
            row = self._row(definition)
            row.app = group
            return "created" if not self._store.create([row]) else self._bring_in(definition, group)
        return "updated" if plan.redefined else "unchanged"

    def prune(self, kept: set[str], group: str) -> dict[str, str]:
        """Delete the schedules of a group that are not in `kept`."""
        gone = self._of_group(group, kept)
        for schedule in gone:
            with suppress(NotFound):  # another process applies the same group
                self.delete(schedule)
        return dict.fromkeys(gone, "deleted")

    def _row_to_apply(self, definition: Definition) -> Schedule | None:
        """Return the row of a definition. None if the spec has no more times and the existing schedule has the same spec."""
        try:
            return self._row(definition)
        except InvalidInput:
            there = self._store.get(definition.id)
            if there is None or (there.spec != spec_json(definition.spec) and not there.paused):
                raise
            return None

    def _of_group(self, group: str, kept: set[str]) -> list[str]:
        rows = schedules_of(self._store, group)
        return [row.id for row in rows if row.version is None and row.id not in kept]

    @SCHEDULE_ACTIONS(lambda schedule, _: Answer(f"{schedule} is deleted; its runs continue"), role="admin")
    def delete(self, schedule: str) -> None:
        """Delete a schedule and its ticks. Runs that it has started continue, and those that wait for their turn are cancelled."""
        self._change(schedule, lambda control: control.delete())

    # -- control -------------------------------------------------------------------------------------------------------
    @SCHEDULE_ACTIONS(_paused)
    def pause(self, schedule: str, note: str | None = None, until: datetime | None = None) -> ScheduleInfo:
        """Pause a schedule until it is resumed, or until a time: the clock starts no runs. Triggers and backfills still start runs."""
        check_note(note)
        when = None if until is None else to_micros(until)
        if when is not None and when <= self._clock.now():
            raise InvalidInput(f"a pause until {until} would be over already")
        return self._info(self._change(schedule, lambda control: control.pause(note, when)))

    @SCHEDULE_ACTIONS(_resumed)
    def resume(self, schedule: str, note: str | None = None) -> ScheduleInfo:
        """Resume a paused schedule. Times of the pause are not started: use a backfill for them."""
        check_note(note)
        return self._info(self._change(schedule, lambda control: control.resume(note)))

    def _info(self, plan: Plan) -> ScheduleInfo:
        return schedule_info(ScheduleInfo, plan.schedule, self._clock.now())

    @SCHEDULE_ACTIONS(_triggered)
    def trigger(self, schedule: str, overlap: Overlap | str | None = None) -> TickInfo:
        """Start a run of a schedule now. Return the tick, with its outcome."""
        request = self._request()
        policy = None if overlap is None else read_overlap(overlap)
        made = self._store.ticks(TickFilter(wanted_id(schedule), request=request)) if self._origin else []
        if not made:
            plan = self._change(schedule, lambda control: control.trigger(request, policy))
            made = [tick for tick in plan.ticks if tick.request == request]
        return tick_info(made[0])

    @SCHEDULE_ACTIONS(_skipped)
    def skip(self, schedule: str, when: datetime | None = None) -> datetime:
        """Skip the next tick, or that of a nominal time. Return the time of the tick."""
        return self._skip(schedule, when, undo=False)

    @SCHEDULE_ACTIONS(_not_skipped)
    def unskip(self, schedule: str, when: datetime | None = None) -> datetime:
        """Undo the first skip, or that of a nominal time. Return the time of the tick."""
        return self._skip(schedule, when, undo=True)

    def _skip(self, schedule: str, when: datetime | None, *, undo: bool) -> datetime:
        moment = None if when is None else to_micros(when)
        plan = self._change(schedule, lambda control: control.skip(moment, undo=undo))
        return to_datetime(plan.nominal)

    # -- backfills -----------------------------------------------------------------------------------------------------
    @SCHEDULE_ACTIONS(_filled_in)
    def backfill(
        self,
        schedule: str,
        start: datetime,
        end: datetime,
        *,
        overlap: Overlap | str | None = None,
        again: bool = False,
    ) -> BackfillInfo:
        """Start the runs of a span of time, both ends included, a few at a time.

        `again` also starts runs for times that already have one. Raises `NotFound`, and `InvalidInput` if the end is before the start.
        """
        _check_span(start, end)
        request = self._request()
        there = self._store.backfill(request)
        if there is None:
            own = policy_of(self._get(schedule).policy)
            how = _backfill_overlap(own) if overlap is None else read_overlap(overlap)
            span = to_micros(start), to_micros(end)
            there = _new_backfill(request, schedule, span, how, self._clock.now(), again=again)
            self._change(schedule, lambda control, new=there: control.backfill(new))  # type: ignore[misc]
        return backfill_info(there)

    @SCHEDULE_ACTIONS(_backfill_stopped)
    def stop_backfill(self, backfill: str) -> BackfillInfo:
        """Stop a backfill, and drop its waiting ticks. Runs that it has started continue."""
        found = self._backfill(backfill)
        if not found.stopped:
            self._change(found.schedule, lambda control: control.stop_backfill(found))
        return self.get_backfill(backfill)

    # -- access to the store -------------------------------------------------------------------------------------------
    def _request(self) -> str:
        """Return an id for a request: the same when a run repeats the request because a response was lost."""
        return self._origin.replace("/", "-") if self._origin else self._ids.new()[-_SHORT:]

    def _change(self, schedule: str, choose: Callable[[Control], Decide]) -> Plan:
        while True:
            now = self._clock.now()
            plan = self._store.change(wanted_id(schedule), choose(Control(now, self._ids.new)), now)
            if plan is None:
                raise missing(schedule)
            if not plan.unfinished:
                return plan


def _check_span(start: datetime, end: datetime) -> None:
    if start.year < _EARLIEST_YEAR:
        raise InvalidInput(
            f"backfill: the start {start.isoformat()} is before the year {_EARLIEST_YEAR}, and no schedule"
        )
    if end < start:
        raise InvalidInput(f"backfill: the end {end.isoformat()} is before the start {start.isoformat()}")


def _backfill_overlap(policy: Policy) -> Overlap:
    """Return the default overlap policy of a backfill: parallel only where the schedule's own runs may be."""
    return policy.overlap if policy.overlap is Overlap.ALLOW_ALL else Overlap.BUFFER_ALL


def _new_backfill(
    request: str, schedule: str, span: tuple[int, int], overlap: Overlap, now: int, *, again: bool = False
) -> Backfill:
    since, until = span
    return Backfill(request, schedule, since, until, overlap, again, now, just_before(since))


def parts_to_apply(
    definitions: Sequence[Definition], *, prune: bool, group: str
) -> list[Callable[[Schedules], dict[str, str]]]:
    """Return the parts of `apply`, each of which may be a transaction of its own. The first part checks all definitions."""
    if not check_text("the name of a group of schedules", group).strip():
        raise InvalidInput("the name of a group of schedules must not be blank")
    if group == CRONTAB:
        raise InvalidInput(f"the group {CRONTAB!r} belongs to crontab files; give this one another name")
    ids = [check_schedule_id(definition.id) for definition in definitions]
    if len(set(ids)) < len(ids):
        raise InvalidInput(f"two schedules are called {next(each for each in ids if ids.count(each) > 1)!r}")
    parts: list[Callable[[Schedules], dict[str, str]]] = []
    for first in range(0, len(definitions), _AT_ONCE):
        some, others = definitions[first : first + _AT_ONCE], definitions[_AT_ONCE:] if first == 0 else ()
        parts.append(lambda schedules, some=some, others=others: schedules.apply_some(some, others, group))  # type: ignore[misc]
    if prune:
        parts.append(lambda schedules: schedules.prune(set(ids), group))
    return parts
