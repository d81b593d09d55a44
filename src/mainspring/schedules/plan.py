"""Plan a schedule: a pure function of the stored state and the time.

    plan(situation, now) -> ticks, starts, cancels, terminates, processed ends, when to plan again

In this order: process runs that have ended, end a pause whose time is over, collect the ticks whose time has come, let backfills make
more, decide on all of them by the overlap policy, and compute when to plan again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from msgspec import structs

from mainspring.model.clock import SECOND
from mainspring.model.runs import error_record
from mainspring.model.schedules import LEARNED_FIELDS, PLANNED_FIELDS, UNLISTED, Overlap, Tick, TickOutcome, TickSource
from mainspring.model.states import State
from mainspring.schedules import actions
from mainspring.schedules.alerts import alerts
from mainspring.schedules.backfill import PassLimits, advance
from mainspring.schedules.due_ticks import LATE, MOST_AT_ONCE, MOST_PASSED_BY, SkippedRanges, times_of
from mainspring.schedules.policies import OUT_OF_ACTIONS, STOPPING, Decisions, decide
from mainspring.schedules.policy import policy_of
from mainspring.store.schedules import Plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.model.schedules import Schedule, ScheduleRun
    from mainspring.store.schedules import Situation

BY_REQUEST = "requested"
_WAITING = (TickOutcome.PENDING, TickOutcome.BUFFERED)


def plan(situation: Situation, now: int, new_uid: Callable[[], str]) -> Plan:
    """Return the plan of a schedule at this time."""
    return Planning(situation, now, new_uid).run()


class Planning:
    """One plan in progress."""

    def __init__(self, situation: Situation, now: int, new_uid: Callable[[], str]) -> None:
        self.situation = situation
        self.now = now
        self._new_uid = new_uid
        self.before = situation.schedule
        self.schedule: Schedule = structs.replace(situation.schedule)
        if situation.listed and self.schedule.stopped == UNLISTED:
            self.schedule.stopped = (
                None  # ticks of that time are subject to the catch-up window, as when no worker was active
            )
        self.policy = policy_of(self.schedule.policy)
        self.times = times_of(self.schedule.spec, self.schedule.id)
        self.plan = Plan(self.schedule)
        self._paused_since: int | None = None
        self._paused_by: str | None = None
        """The run whose failure paused the schedule."""
        self.more = False
        """Whether another pass has to follow at once."""
        self._promised = {tick.run for tick in situation.waiting if tick.run is not None}
        """Runs that exist already for waiting ticks: the caller of a trigger has a handle to wait for."""
        self.skips: set[int] = set(json.loads(self.schedule.skips)) if self.schedule.skips != "[]" else set()
        self._due: list[Tick] = []
        self.buffered: list[Tick] = []
        self.present = False
        """Whether ticks before now are left out."""
        self.held: list[Tick] = []
        """Pending ticks whose time to act has not come."""

    def run(self, extra: Tick | None = None) -> Plan:
        """Make the plan. `extra` is a triggered tick."""
        self._process_ends()
        self._collect_waiting()
        self._collect_elapsed()
        self._end_pause()
        if not self.plan.unfinished:  # otherwise a later plan, which brings the schedule up to now, does this
            if extra is not None:
                self._due.append(extra)
            self._backfill()
        self._decide()
        self.look_ahead()
        return self.finished()

    def finished(self) -> Plan:
        """Return the plan, with whether the schedule has changed, and the alerts."""
        plan, before, after = self.plan, self.before, self.schedule
        # A transaction with an older snapshot must not plan from it: it fails on a row that was written.
        plan.moved = bool(plan.ticks or plan.backfills) or any(
            getattr(before, name) != getattr(after, name) for name in PLANNED_FIELDS
        )
        # Most runs end like the one before: a row that is not written leaves no version to pass over under an old snapshot.
        plan.learned = plan.learned and any(getattr(before, name) != getattr(after, name) for name in LEARNED_FIELDS)
        if self.situation.hooks:
            plan.alerts = alerts(plan, self.situation.hooks, self.now, self._new_uid, paused_by=self._paused_by)
        return plan

    # -- runs that have ended ------------------------------------------------------------------------------------------
    def _process_ends(self) -> None:
        ended = sorted(
            (run for run in self.situation.runs if run.state.ended), key=lambda run: (run.completed or 0, run.uid)
        )
        for run in ended:
            self.plan.processed.append(run.id)
            if run.id in self._promised:
                continue
            failed = remember(self.schedule, run)
            self.plan.learned = self.plan.learned or failed is not None
            allowed = self.policy.pause_on_failure
            # A pause that ends by itself would not outlast a failure, so the failure's own pause replaces it.
            open_ended = self.schedule.paused and self.schedule.resume_at is None
            if failed and allowed and self.schedule.failures >= allowed and not open_ended:
                self.schedule.paused = True
                self.schedule.resume_at = None
                self.schedule.revision += 1
                several = f" ({self.schedule.failures} in a row)" if allowed > 1 else ""
                self.schedule.pause_note = f"paused after failure{several}: run {run.id}: {run.reason or 'failed'}"
                self._paused_since, self._paused_by = run.completed or self.now, run.id

    # -- pauses --------------------------------------------------------------------------------------------------------
    def why_inactive(self, at: int) -> str | None:
        """Return why a tick of the clock with this time to act has no effect, or None."""
        if not self.situation.listed:
            return UNLISTED
        if self.schedule.stopped is not None:
            return self.schedule.stopped
        if self.before.paused and (self.before.resume_at is None or at < self.before.resume_at):
            return self._pause_reason(self.before)
        if self._paused_since is not None and at > self._paused_since:
            return self._pause_reason(self.schedule)
        return OUT_OF_ACTIONS if self.schedule.remaining == 0 else None

    @staticmethod
    def _pause_reason(schedule: Schedule) -> str:
        return f"the schedule was paused: {schedule.pause_note}" if schedule.pause_note else "the schedule was paused"

    def _end_pause(self) -> None:
        """End a pause whose time is over."""
        resume_at = self.schedule.resume_at
        if self.schedule.paused and resume_at is not None and resume_at <= self.now:
            self.schedule.paused, self.schedule.resume_at, self.schedule.pause_note = False, None, None
            self.schedule.revision += 1

    @property
    def active(self) -> bool:
        """Whether the clock has an effect from now on."""
        schedule = self.schedule
        return self.situation.listed and not schedule.paused and schedule.stopped is None and schedule.remaining != 0

    # -- ticks whose time has come -------------------------------------------------------------------------------------
    def _collect_waiting(self) -> None:
        for tick in self.situation.waiting:
            tick = structs.replace(tick)  # noqa: PLW2901  (a plan may be made twice from one situation)
            if tick.run is not None and tick.run in self.plan.processed:
                self.drop(tick, self._why_ended_waiting(tick.run))
            elif tick.outcome is TickOutcome.PENDING and tick.due > self.now:
                self.held.append(tick)
            else:
                self._due.append(tick)

    def _why_ended_waiting(self, run_id: str) -> str:
        """Return why the run of a waiting tick has ended. Only an operator can let it succeed, fail or begin before its turn."""
        state = next(run.state for run in self.situation.runs if run.id == run_id)
        if state is State.CANCELLED:
            return "its run was cancelled while it waited"
        return f"an operator has ended its run, or had it begin, before its turn; it has {state}"

    def drop(self, tick: Tick, reason: str) -> None:
        """Record that a waiting tick starts nothing."""
        tick.outcome, tick.reason, tick.acted = TickOutcome.DROPPED, reason, self.now
        self.schedule.dropped += 1
        self.plan.ticks.append(tick)

    def _elapsed_until(self) -> int | None:
        """Return until when ticks of the clock are decided. None for an entry that no worker lists: one that does decides how far to catch up."""
        if self.situation.listed:
            return self.now
        if not self.before.paused:
            return None
        # Paused time is not caught up, and the row does not know of a pause that is over.
        return self.now if self.before.resume_at is None else min(self.now, self.before.resume_at - 1)

    def _collect_elapsed(self) -> None:
        until = self._elapsed_until()
        if until is None:
            return
        left_out = SkippedRanges(self.schedule.id, self.now)
        due: list[Tick] = []
        apart: set[int] = set()
        """Due ticks that come after one that was left out: no range may extend from before that one to them."""
        between = False
        passed_by = 0
        begin: int | None = self.schedule.cursor
        while begin is not None:
            start, begin = begin, None
            for nominal, act in self.times.elapsed(start, until):
                if len(due) >= MOST_AT_ONCE:
                    self.more = self.plan.unfinished = True
                    break
                self.schedule.cursor = nominal
                left = self._why_left_out(nominal, act)
                if left is None:
                    source = TickSource.CLOCK if self.now - act <= LATE else TickSource.CATCHUP
                    due.append(Tick(self.schedule.id, nominal, "", source, act, TickOutcome.PENDING))
                    if between:
                        left_out.close()
                        apart.add(nominal)
                    between = False
                    passed_by = 0
                    continue
                outcome, reason, ends = left
                left_out.add(nominal, act, outcome, reason)
                between = True
                self.schedule.missed += outcome is TickOutcome.MISSED
                passed_by += 1
                if passed_by >= MOST_PASSED_BY and (last := self.times.last(min(ends, until))) is not None:
                    left_out.extend_to(last)
                    self.schedule.cursor = begin = max(last, nominal)
                    passed_by = 0
                    break
        if self.skips:
            self.skips -= {nominal for nominal in self.skips if nominal <= self.schedule.cursor}
        if self.policy.coalesce and len(due) > 1 and not self.more:
            self._coalesce(due, apart, left_out)
        left_out.close()
        self.plan.ticks += left_out.ticks
        self._due += due

    def _coalesce(self, due: list[Tick], apart: set[int], left_out: SkippedRanges) -> None:
        """Leave out all but the last tick."""
        reason = f"coalesced into the tick of {actions.stamp(due[-1].nominal)}"
        for tick in due[:-1]:
            if tick.nominal in apart:
                left_out.close()
            left_out.add(tick.nominal, tick.due, TickOutcome.REPLACED, reason)
        del due[:-1]

    def _why_left_out(self, nominal: int, act: int) -> tuple[TickOutcome, str, int] | None:
        """Return why a tick of the clock is left out, and until when that holds for later ones. None: it is not left out."""
        if nominal in self.skips:
            return TickOutcome.SKIPPED_BY_REQUEST, BY_REQUEST, act
        inactive = self.why_inactive(act)
        if inactive is not None:
            resume_at = self.before.resume_at if self.before.paused else None
            return TickOutcome.PAUSED, inactive, self.now if resume_at is None else resume_at - 1
        if nominal in self.situation.ahead:
            return TickOutcome.REPLACED, self._taken_by_backfill(nominal), act
        if self.present:
            return TickOutcome.MISSED, "no worker was active", self.now
        window = self.policy.window
        if window is not None and self.now - act > window:
            return TickOutcome.MISSED, "no worker was there before its catch-up window closed", self.now - window - 1
        return None

    def _taken_by_backfill(self, nominal: int) -> str:
        return f"backfill {self.situation.ahead[nominal]} has taken it"

    def hold(self, nominal: int) -> None:
        """Keep the clock's tick of a past nominal time whose time to act has not come, whatever the spec becomes."""
        tick = Tick(self.schedule.id, nominal, "", TickSource.CLOCK, self.times.act(nominal), TickOutcome.PENDING)
        if nominal in self.skips:
            tick.outcome, tick.reason, tick.acted = TickOutcome.SKIPPED_BY_REQUEST, BY_REQUEST, self.now
        elif nominal in self.situation.ahead:
            tick.outcome, tick.reason, tick.acted = TickOutcome.REPLACED, self._taken_by_backfill(nominal), self.now
        else:
            self.held.append(tick)
        self.plan.ticks.append(tick)

    # -- backfills -----------------------------------------------------------------------------------------------------
    def _backfill(self) -> None:
        undecided = [
            tick.nominal for tick in self._due if tick.outcome is TickOutcome.PENDING and not tick.source.manual
        ]
        made, progress = advance(
            self.situation,
            PassLimits(self.times, self.now, len(self._due) + len(self.held), min(undecided, default=None)),
            self.policy.buffer_limit,
            self._is_left_to_clock,
        )
        self.plan.backfills += progress
        self.more = self.more or any(each.completed is None for each in progress)
        self._due += made

    def _is_left_to_clock(self, nominal: int) -> bool:
        """Whether the clock is about to act on a nominal time that only waits for its jitter."""
        return self.active and self.schedule.cursor < nominal <= self.now and nominal not in self.skips

    # -- deciding ------------------------------------------------------------------------------------------------------
    def _decide(self) -> None:
        if not self._due:
            return
        standing: list[Tick] = []
        for tick in sorted(self._due, key=lambda tick: (tick.due, tick.nominal, tick.request)):
            why = None if tick.source.manual else self._why_not_now(tick)
            if why is None:
                standing.append(tick)
            else:
                tick.outcome, tick.reason, tick.acted = TickOutcome.PAUSED, why, self.now
                self.plan.ticks.append(tick)
        decisions = Decisions(
            [run for run in self.situation.runs if not run.state.ended and run.id not in self._promised],
            self._slots,
            buffer_limit=self.policy.buffer_limit,
            stopping=[tick for tick in standing if self._overlap(tick) in STOPPING],
            remaining=self.schedule.remaining,
        )
        decide(decisions, standing, self._overlap)
        self._take(decisions)

    def _why_not_now(self, tick: Tick) -> str | None:
        """Return why a tick may not start.

        A buffered tick of the clock is dropped when the schedule is paused, others look at their own time.
        """
        if tick.outcome is TickOutcome.BUFFERED:
            return None if self.active else (self.why_inactive(self.now) or self._pause_reason(self.schedule))
        return self.why_inactive(tick.due)

    def _overlap(self, tick: Tick) -> Overlap:
        return tick.overlap or self.policy.overlap

    def _slots(self, overlap: Overlap) -> int | None:
        if self.policy.max_running is not None:
            return self.policy.max_running
        return None if overlap is Overlap.ALLOW_ALL else 1

    def _take(self, decisions: Decisions) -> None:
        """Add the decisions to the plan."""
        schedule, plan = self.schedule, self.plan
        for tick in decisions.starts:
            self._start(tick)
        self.buffered = decisions.kept
        for tick in decisions.kept:
            if tick.outcome is not TickOutcome.BUFFERED:
                tick.outcome = TickOutcome.BUFFERED
                plan.ticks.append(tick)
                if tick.source is TickSource.TRIGGER:
                    self._create_waiting_run(tick)
        for tick in decisions.left:
            tick.acted = self.now
            if tick.run is not None:
                plan.cancels[tick.run] = f"by schedule {schedule.id}: {tick.reason}"
                tick.run = None
            schedule.skipped += tick.outcome is TickOutcome.SKIPPED_OVERLAP
            schedule.dropped += tick.outcome is TickOutcome.DROPPED
            plan.ticks.append(tick)
        reason = f"by schedule {schedule.id}, to make room for its next run"
        plan.cancels |= {run.id: reason for run in decisions.cancels}
        plan.terminates |= {run.id: reason for run in decisions.terminates}
        plan.processed += [run.id for run in decisions.terminates]

    def _create_waiting_run(self, tick: Tick) -> None:
        """Create the run of a tick that has to wait, without a due time, so that callers can wait for it and cancel it."""
        begin = actions.beginning(self.schedule, tick, self.times, self.now, self._new_uid)
        if begin.run.id not in self.situation.refused:
            begin.run.state, begin.run.due = State.SCHEDULED, None
            tick.run = begin.run.id
            self.plan.starts.append(begin)

    def _start(self, tick: Tick) -> None:
        schedule = self.schedule
        tick.acted = self.now
        self.plan.ticks.append(tick)
        begin = actions.beginning(schedule, tick, self.times, self.now, self._new_uid)
        if tick.run is not None:
            begin.run.id = tick.run  # as the caller knows it, whatever the action's id is by now
            self.plan.releases.append(begin)
        elif begin.run.id in self.situation.refused:
            tick.outcome, tick.reason = self.situation.refused[begin.run.id]
            schedule.skipped += tick.outcome is TickOutcome.SKIPPED_OVERLAP
            return
        else:
            self.plan.starts.append(begin)
        waited = self.now - tick.due
        tick.run = begin.run.id
        tick.outcome = TickOutcome.LATE if waited > LATE else TickOutcome.FIRED
        tick.reason = _why_late(tick, waited) if waited > LATE else None
        schedule.starts += 1
        if not tick.source.manual and schedule.remaining is not None:
            schedule.remaining -= 1

    # -- what comes next -----------------------------------------------------------------------------------------------
    def look_ahead(self) -> None:
        """Compute when the schedule has to be planned again."""
        schedule = self.schedule
        schedule.skips = json.dumps(sorted(self.skips)) if self.skips else "[]"
        first = self.times.next(schedule.cursor)
        schedule.upcoming = self._next_acted_on(first)
        due = None
        if self.active and first is not None:
            due = self.times.act(first)
        elif schedule.paused and schedule.stopped is None and schedule.resume_at is not None:
            due = schedule.resume_at
        times = [*([] if due is None else [due]), *(tick.due for tick in self.held)]
        schedule.due = self.now if self.more or self._has_idle_backfill() else min(times, default=None)
        schedule.fault = None

    def _has_idle_backfill(self) -> bool:
        """Whether a backfill has times left, and no waiting tick and no run of the schedule leads to the next plan.

        The ticks that left it no room in the buffer were dropped in this very plan.
        """
        progress = {each.id: each for each in self.plan.backfills}
        if all(progress.get(each.id, each).completed is not None for each in self.situation.backfills):
            return False
        waits = any(tick.outcome in _WAITING for tick in (*self.buffered, *self.held))
        return not (waits or self.plan.starts or any(not run.state.ended for run in self.situation.runs))

    def _next_acted_on(self, nominal: int | None) -> int | None:
        """Return the next nominal time that is not skipped and comes after a pause that ends by itself."""
        resume_at = (self.schedule.resume_at or 0) if self.schedule.paused else 0
        if resume_at:
            jitter = round(self.times.spec.jitter.total_seconds()) * SECOND
            nominal = self.times.next(max(self.schedule.cursor, resume_at - jitter - SECOND))
        while nominal is not None and (nominal in self.skips or self.times.act(nominal) < resume_at):
            nominal = self.times.next(nominal)
        return nominal


def _why_late(tick: Tick, waited: int) -> str:
    if tick.source is TickSource.CATCHUP:
        return "caught up: no worker was active at its time"
    return f"waited {waited // 1_000_000} s for its turn"


def remember(schedule: Schedule, run: ScheduleRun) -> bool | None:
    """Record the end of a run in the schedule. Return whether it failed, or None if it does not count.

    A success replaces the last result and clears the failure. A failure keeps the result. A cancelled run changes neither, unless its own
    timeout cancelled it: that is a failure.
    """
    if run.state is State.SUCCEEDED:
        schedule.last_result, schedule.last_failure, schedule.failures = run.output, None, 0
        return False
    timed_out = run.state is State.CANCELLED and run.reason == "timeout"
    if run.state is not State.FAILED and not timed_out:
        return None
    schedule.last_failure = _timed_out(run.id) if timed_out else run.error
    schedule.failures += 1
    return True


def _timed_out(run_id: str) -> str:
    message = f"run {run_id!r} did not end before its timeout"
    return error_record("RunTimedOut", message)
