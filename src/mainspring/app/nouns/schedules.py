"""`app.schedules`: creating, changing and listing schedules at run time."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from mainspring.app.caller.current import current_caller, runtime_here
from mainspring.app.coroutines import Mapped
from mainspring.app.declarations.schedules import columns, define, definition_of, known_call, span_of
from mainspring.app.dual import dual
from mainspring.app.functions.options import moment
from mainspring.app.handle import Handle
from mainspring.engine.replay.context import branch
from mainspring.errors import InvalidInput
from mainspring.model.clock import to_datetime
from mainspring.model.given import check_flag, check_several, check_whole
from mainspring.operations.schedules.actions import SCHEDULE_ACTIONS, Schedules, parts_to_apply
from mainspring.operations.schedules.audit import ScheduleAudit
from mainspring.operations.schedules.info import (
    BackfillInfo,
    ScheduleDescription,
    ScheduleInfo,
    SchedulePage,
    TickInfo,
    TickPage,
)
from mainspring.recurrence import Cron, Spec

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

    from mainspring.app.caller.current import Home
    from mainspring.app.declarations.schedules import Declaration
    from mainspring.app.functions.functions import Call
    from mainspring.app.functions.options import Moment
    from mainspring.app.runtime import Runtime
    from mainspring.model.schedules import Overlap
    from mainspring.operations.filters import ScheduleFilters, Texts
    from mainspring.schedules.policy import Policy

R = TypeVar("R")
_KEEP: Any = object()


class ScheduleVerbs:
    """Verbs on the schedules in the app's database. Inside a run each is recorded, and happens once. An unknown schedule raises `NotFound`."""

    _spelled = "app.schedules"

    def __init__(self, home: Home) -> None:
        self._home = home

    @property
    def _runtime(self) -> Runtime:
        return runtime_here(self._home)

    def _ask(self, verb: str, kind: Any, question: Callable[[Schedules], R]) -> Coroutine[Any, Any, R]:
        """Carry out a verb. Inside a run an action is one transaction with the record of its answer."""
        runtime = self._runtime
        queues = [queue.name for queue in runtime.queues]
        caller = current_caller(runtime)
        act = caller.change if verb in SCHEDULE_ACTIONS else caller.read_inside
        return act(
            f"schedules.{verb}",
            kind,
            lambda store, origin: question(Schedules(store, runtime.clock, runtime.ids, origin, queues)),
        )

    # -- making --------------------------------------------------------------------------------------------------------
    @dual
    def create(
        self,
        /,
        schedule: str,
        call: Call[Any],
        spec: Spec,
        policy: Policy | None = None,
        *,
        paused: bool = False,
        trigger: bool = False,
        backfill: Sequence[tuple[Moment, Moment]] = (),
        note: str | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> Coroutine[Any, Any, ScheduleInfo]:
        """Create a schedule that starts a run of a function at the times of a spec.

        `create("nightly", report.bind("eu"), Spec(cron=["0 2 * * *"]))`.

        `trigger` starts one run at once, `backfill` also starts the runs of spans of time in the past. Raises `Conflict` if the id exists.
        """
        definition = define(schedule, known_call(self._runtime, call), spec, policy, note=note, attributes=attributes)
        spans = [span_of(each) for each in check_several("backfill", backfill)]
        check_flag("paused", paused)
        check_flag("trigger", trigger)
        return self._ask(
            "create",
            ScheduleInfo,
            lambda schedules: schedules.create(definition, paused=paused, trigger=trigger, backfill=spans),
        )

    @dual
    def update(
        self,
        /,
        schedule: str,
        *,
        call: Call[Any] = _KEEP,
        spec: Spec = _KEEP,
        policy: Policy = _KEEP,
        note: str | None = _KEEP,
        attributes: Mapping[str, Any] = _KEEP,
        remaining: int | None = _KEEP,
        revision: int | None = None,
    ) -> Coroutine[Any, Any, ScheduleInfo]:
        """Change the named parts of a schedule, from now on. The rest stays. Raises `Conflict` if `revision` is no longer current."""
        named = {
            name: value
            for name, value in (
                ("call", call),
                ("spec", spec),
                ("policy", policy),
                ("note", note),
                ("attributes", attributes),
                ("remaining", remaining),
            )
            if value is not _KEEP
        }
        if "call" in named:
            known_call(self._runtime, call)
        values = columns(schedule, named)
        if revision is not None:
            check_whole("revision", revision)
        return self._ask(
            "update", ScheduleInfo, lambda schedules: schedules.update(schedule, values, revision=revision)
        )

    @dual
    def reset(self, /, schedule: str) -> Coroutine[Any, Any, ScheduleInfo]:
        """Reset a schedule to its declaration in the code or crontab: changes made at run time are undone. A pause stays."""
        return self._ask("reset", ScheduleInfo, lambda schedules: schedules.reset(schedule))

    @dual
    def apply(
        self, /, declarations: Iterable[Declaration], *, prune: bool = False, group: str = "applied"
    ) -> Coroutine[Any, Any, dict[str, str]]:
        """Make the schedules of a group exactly these, keeping pauses and counters. With `prune`, delete those of the group that are not
        listed. Returns for each id: created, updated, unchanged or deleted.
        """
        runtime = self._runtime
        definitions = [definition_of(runtime, each) for each in check_several("what apply takes", declarations)]
        check_flag("prune", prune)
        queues = [queue.name for queue in runtime.queues]
        return current_caller(runtime).change_in_parts(
            "schedules.apply",
            lambda store, origin: Schedules(store, runtime.clock, runtime.ids, origin, queues),
            parts_to_apply(definitions, prune=prune, group=group),
        )

    @dual
    def delete(self, /, schedule: str) -> Coroutine[Any, Any, None]:
        """Delete a schedule and its ticks. Runs that have begun continue; buffered runs are cancelled, with a reason."""
        return self._ask("delete", None, lambda schedules: schedules.delete(schedule))

    # -- steering ------------------------------------------------------------------------------------------------------
    @dual
    def pause(
        self, /, schedule: str, note: str | None = None, until: Moment | None = None
    ) -> Coroutine[Any, Any, None]:
        """Pause a schedule until it is resumed, or until a time: the clock starts no runs. Triggers and backfills still do."""
        when = _moment(until)
        return self._ask("pause", None, lambda schedules: _no_answer(schedules.pause(schedule, note, when)))

    @dual
    def resume(self, /, schedule: str, note: str | None = None) -> Coroutine[Any, Any, None]:
        """Resume a paused schedule. Ticks of the paused time are not caught up; use a backfill for them."""
        return self._ask("resume", None, lambda schedules: _no_answer(schedules.resume(schedule, note)))

    @dual
    def trigger(
        self, /, schedule: str, overlap: Overlap | str | None = None
    ) -> Coroutine[Any, Any, Handle[Any] | None]:
        """Start a run of a schedule now. Returns its handle, also if the run is buffered; None if the overlap policy skips it: the
        tick has the reason.
        """
        runtime = self._runtime
        asked: Coroutine[Any, Any, TickInfo] = self._ask(
            "trigger", TickInfo, lambda schedules: schedules.trigger(schedule, overlap)
        )
        return Mapped(asked, lambda tick: _handle_of(runtime, tick))

    @dual
    def skip(self, /, schedule: str, when: Moment | None = None) -> Coroutine[Any, Any, datetime]:
        """Skip the next tick, or that of a nominal time. Returns the time of the tick."""
        nominal = _moment(when)
        return self._ask("skip", datetime, lambda schedules: schedules.skip(schedule, nominal))

    @dual
    def unskip(self, /, schedule: str, when: Moment | None = None) -> Coroutine[Any, Any, datetime]:
        """Undo the first skip, or that of a nominal time. Returns the time of the tick."""
        nominal = _moment(when)
        return self._ask("unskip", datetime, lambda schedules: schedules.unskip(schedule, nominal))

    # -- backfills -----------------------------------------------------------------------------------------------------
    @dual
    def backfill(
        self,
        /,
        schedule: str,
        start: Moment,
        end: Moment,
        overlap: Overlap | str | None = None,
        *,
        again: bool = False,
    ) -> Coroutine[Any, Any, BackfillInfo]:
        """Start the runs of a span of time, both ends included, a few at a time.

        The runs follow one after the other, unless `overlap` is `allow_all`. Times that have a run already are left out unless `again`, and
        so is a time that the clock is about to act on. Several backfills of one schedule run in the order of the requests.
        """
        span = span_of((start, end))
        check_flag("again", again)
        return self._ask(
            "backfill",
            BackfillInfo,
            lambda schedules: schedules.backfill(schedule, *span, overlap=overlap, again=again),
        )

    @dual
    def backfills(self, /, schedule: str) -> Coroutine[Any, Any, list[BackfillInfo]]:
        """List the backfills of a schedule, newest first, with their progress."""
        return self._ask("backfills", list[BackfillInfo], lambda schedules: schedules.backfills(schedule))

    @dual
    def stop_backfill(self, /, backfill: str) -> Coroutine[Any, Any, BackfillInfo]:
        """Stop a backfill, and drop its waiting ticks. Runs that it has started continue."""
        return self._ask("stop_backfill", BackfillInfo, lambda schedules: schedules.stop_backfill(backfill))

    # -- seeing --------------------------------------------------------------------------------------------------------
    @dual
    def describe(self, /, schedule: str) -> Coroutine[Any, Any, ScheduleDescription]:
        """Look up a schedule: definition, state, counters, the latest ticks and the next times. Raises `NotFound`."""
        return self._ask("describe", ScheduleDescription, lambda schedules: schedules.describe(schedule))

    @dual
    def list(
        self, /, *, after: str | None = None, limit: int = 50, **filters: Unpack[ScheduleFilters]
    ) -> Coroutine[Any, Any, SchedulePage]:
        """List a page of schedules, by id. Pass `next` of a page as `after` to get the following page."""
        return self._ask("list", SchedulePage, lambda schedules: schedules.list(after=after, limit=limit, **filters))

    @dual
    def ticks(
        self,
        /,
        schedule: str,
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        outcome: Texts = (),
        after: str | None = None,
        limit: int = 50,
    ) -> Coroutine[Any, Any, TickPage]:
        """List a page of ticks, latest first, of all outcomes or of some."""
        first, last = _moment(since), _moment(until)
        return self._ask(
            "ticks",
            TickPage,
            lambda schedules: schedules.ticks(
                schedule, since=first, until=last, outcome=outcome, after=after, limit=limit
            ),
        )

    @dual
    def audit(self, /, schedule: str, since: Moment, until: Moment | None = None) -> Coroutine[Any, Any, ScheduleAudit]:
        """Account for all times of a period: how many were on time, late, delayed, missed, skipped or paused."""
        first, last = to_datetime(moment(since)), _moment(until)
        return self._ask("audit", ScheduleAudit, lambda schedules: schedules.audit(schedule, first, last))

    @dual
    def tick(self, /, schedule: str, request: str) -> Coroutine[Any, Any, TickInfo]:
        """The latest tick of a trigger or backfill."""
        return self._ask("tick", TickInfo, lambda schedules: schedules.tick(schedule, request))

    def preview(self, spec: Spec | Cron | str, after: Moment | None = None, count: int = 10) -> Sequence[datetime]:
        """Compute the first times of a spec or cron expression after a time (default: now). Needs no database.

        A string is read as in `Spec(cron=…)`. Inside a run, now is the time of the last recorded outcome, so that a replay agrees.
        """
        if after is None:
            here = branch()
            after = to_datetime(self._runtime.clock.now() if here is None else here.execution.history.last_time)
        if not isinstance(spec, (Spec, Cron, str)):
            raise InvalidInput(f"preview takes a Spec, a Cron or a cron expression, not {spec!r}")
        return (spec if isinstance(spec, Spec) else Spec(cron=spec)).upcoming(after, check_whole("count", count))


def _moment(when: Moment | None) -> datetime | None:
    return None if when is None else to_datetime(moment(when))


def _handle_of(runtime: Runtime, tick: TickInfo) -> Handle[Any] | None:
    return None if tick.run is None else Handle(runtime, tick.run, None)


def _no_answer(info: ScheduleInfo) -> None:
    """The recorded answer of verbs that return nothing."""
    del info
