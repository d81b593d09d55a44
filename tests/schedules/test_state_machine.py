"""Whatever happens to a schedule, in whatever order: every time of it gets exactly one outcome, and no policy is broken.

Hypothesis plays the fleet, the clock, the runs and the people. A simple model says which times there are; the rest is checked on
what is stored. `SAMPLES=all` looks for longer.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from mainspring import Overlap, Policy, Spec
from mainspring.errors import InvalidInput
from mainspring.model.clock import SECOND, to_datetime, to_micros
from mainspring.model.ids import IdMaker
from mainspring.model.schedules import TickOutcome, TickSource
from mainspring.model.states import State
from mainspring.operations.schedules.actions import Schedules
from mainspring.schedules.definition import Definition
from mainspring.schedules.due_ticks import Times
from mainspring.schedules.plan import plan
from mainspring.schedules.policy import policy_of
from mainspring.store.open import open_store
from mainspring.store.schedules import TickFilter
from mainspring.store.writes import Finish
from tests.store.build import StoreSettings, request, worker
from tests.support.samples import of

if TYPE_CHECKING:
    from mainspring.model.schedules import Schedule, ScheduleRun, Tick
    from mainspring.store.protocol import Store

BEGIN = to_micros(datetime(2026, 3, 1, tzinfo=UTC))
OVERLAPS = st.sampled_from(list(Overlap))
SPECS = st.sampled_from(
    [
        Spec(intervals=["1m"]),
        Spec(intervals=["5m"]),
        Spec(intervals=["7m/2m", "10m"]),
        Spec(intervals=["5m"], jitter="4m"),
        Spec(cron=["*/15 * * * *"], exclude=["30 * * * *"]),
        Spec(intervals=["3m"], end=to_datetime(BEGIN + 3600 * SECOND)),
    ]
)
POLICIES = st.builds(
    Policy,
    OVERLAPS,
    catchup=st.sampled_from([10, "2m", "1h", None]),
    pause_on_failure=st.sampled_from([0, 0, 1, 2]),
    max_running=st.sampled_from([None, None, 1, 2]),
    buffer_limit=st.sampled_from([None, None, 0, 2]),
    coalesce=st.booleans(),
)


class _Crash(Exception):
    """The process died before it could commit."""


class _Clock:
    def __init__(self) -> None:
        self.time = BEGIN

    def now(self) -> int:
        return self.time


class ScheduleMachine(RuleBasedStateMachine):
    """One schedule, and everything that can happen to it."""

    store: ClassVar[Store]
    numbers: ClassVar[Any] = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        self.clock = _Clock()
        self.ids = IdMaker(self.clock, seed=next(self.numbers))  # type: ignore[arg-type]
        self.id = f"s{next(self.numbers)}"
        self.schedules = Schedules(self.store, self.clock, self.ids)  # type: ignore[arg-type]
        self.segments: list[tuple[int, Spec]] = []
        """The specs it has had, and since which nominal time."""
        self.seen: dict[tuple[int, str], Tick] = {}
        self.before: Schedule
        self.unfinished_before = 0
        self.backfilled: list[str] = []
        self.latest = BEGIN

    # -- what happens --------------------------------------------------------------------------------------------------
    @initialize(spec=SPECS, policy=POLICIES, limit=st.sampled_from([None, None, 0, 3]), paused=st.booleans())
    def create(self, spec: Spec, policy: Policy, limit: int | None, *, paused: bool) -> None:
        limited = Policy.from_dict(policy.to_dict() | {"limit": limit})
        self.schedules.create(Definition(self.id, "wf", "{}", spec, limited), paused=paused)
        self.segments.append((BEGIN, spec))
        self.before = self.row()

    @rule(seconds=st.sampled_from([1, 20, 60, 60, 300, 300, 1800, 7200]))
    def time_passes(self, seconds: int) -> None:
        self.clock.time += seconds * SECOND

    @rule(seconds=st.sampled_from([1, 59, 600]))
    def the_clock_is_set_back(self, seconds: int) -> None:
        self.latest = max(self.latest, self.clock.time)
        self.clock.time -= seconds * SECOND

    @rule()
    def a_worker_looks(self) -> None:
        self.fire()

    @rule(seconds=st.sampled_from([60, 300]), times=st.integers(1, 5))
    def time_passes_under_the_eyes_of_a_worker(self, seconds: int, times: int) -> None:
        for _ in range(times):
            self.clock.time += seconds * SECOND
            self.fire()

    @rule()
    def a_worker_dies_before_it_commits(self) -> None:
        def die(situation: Any) -> Any:
            plan(situation, self.clock.time, self.ids.new)
            raise _Crash

        try:
            self.store.schedules.fire(self.clock.time, 10, die)
        except _Crash:
            assert self.row() == self.before

    @rule(how=st.sampled_from(["succeeded", "succeeded", "failed", "cancelled"]), number=st.integers(0, 5))
    def a_run_ends(self, how: str, number: int) -> None:
        self.store.claim(request(limit=1000, now=self.clock.time + 86_400 * SECOND))
        runs = self.unfinished()
        if runs:
            self.end(runs[number % len(runs)], State(how))

    @rule(until=st.sampled_from([None, 90, 1000]))
    def somebody_pauses(self, until: int | None) -> None:
        when = None if until is None else to_datetime(self.clock.time + until * SECOND)
        self.schedules.pause(self.id, "p", when)

    @rule()
    def somebody_resumes(self) -> None:
        self.schedules.resume(self.id)

    @rule(overlap=st.none() | OVERLAPS)
    def somebody_triggers(self, overlap: Overlap | None) -> None:
        tick = self.schedules.trigger(self.id, overlap)
        assert (tick.run is None) == (
            tick.outcome in {TickOutcome.SKIPPED_OVERLAP, TickOutcome.DROPPED, TickOutcome.REPLACED}
        )

    @rule(undo=st.booleans())
    def somebody_skips(self, *, undo: bool) -> None:
        with contextlib.suppress(InvalidInput):  # there may be none to skip
            (self.schedules.unskip if undo else self.schedules.skip)(self.id)

    @rule(spec=SPECS)
    def somebody_changes_the_times(self, spec: Spec) -> None:
        before = self.row()
        try:
            self.update(Definition(self.id, "wf", "{}", spec).columns(), "spec", "canonical")
        except InvalidInput:  # it would be over
            assert spec.next(self.clock.time / 1e6) is None
            assert self.row() == before
            return
        if spec != self.segments[-1][1]:
            self.segments.append((self.row().cursor, spec))

    @rule(policy=POLICIES)
    def somebody_changes_the_policy(self, policy: Policy) -> None:
        kept = {"limit": policy_of(self.row().policy).limit}
        changed = Policy.from_dict(policy.to_dict() | kept)
        self.update(Definition(self.id, "wf", "{}", Spec(), changed).columns(), "policy")

    @rule(back=st.integers(0, 3000), length=st.integers(0, 3000), overlap=st.none() | OVERLAPS, again=st.booleans())
    @precondition(lambda self: len(self.backfilled) < 3)
    def somebody_backfills(self, back: int, length: int, overlap: Overlap | None, *, again: bool) -> None:
        start = to_datetime(self.clock.time) - timedelta(seconds=back)
        made = self.schedules.backfill(self.id, start, start + timedelta(seconds=length), overlap=overlap, again=again)
        self.backfilled.append(made.id)

    @rule()
    @precondition(lambda self: bool(self.backfilled))
    def somebody_stops_a_backfill(self) -> None:
        self.schedules.stop_backfill(self.backfilled[-1])

    # -- means ---------------------------------------------------------------------------------------------------------
    def fire(self) -> None:
        now = self.clock.time
        for _ in range(50):
            if not self.store.schedules.fire(now, 10, lambda each: plan(each, now, self.ids.new)).more:
                return
        raise AssertionError("there is always more to do")

    def update(self, columns: dict[str, Any], *names: str) -> None:
        self.schedules.update(self.id, {name: columns[name] for name in names})

    def row(self) -> Schedule:
        found = self.store.schedules.get(self.id)
        assert found is not None
        return found

    def ticks(self) -> list[Tick]:
        return self.store.schedules.ticks(TickFilter(self.id, limit=1_000_000))

    def unfinished(self) -> list[ScheduleRun]:
        """Its runs that have begun to count: those of ticks that wait do not."""
        situation = self.store.schedules.situation(self.id)
        assert situation is not None
        promised = {tick.run for tick in situation.waiting}
        return [run for run in situation.runs if not run.state.ended and run.id not in promised]

    def end(self, run: ScheduleRun, how: State) -> None:
        stored = self.store.run(run.id)
        assert stored is not None
        if how is State.CANCELLED and stored.state is not State.CANCELLING:
            self.store.cancel([run.id], "asked", self.clock.time)
            stored = self.store.run(run.id)
            assert stored is not None
        if stored.state.ended or stored.owner is None:
            return
        if stored.state is State.CANCELLING:
            how = State.CANCELLED
        finish = Finish(stored.owner, run.id, stored.epoch, how, self.clock.time)
        finish.output, finish.error = (
            ('"ok"', None) if how is State.SUCCEEDED else (None, '{"type": "x:Y", "message": "m"}')
        )
        self.store.apply([finish], self.clock.time)

    # -- what must hold ------------------------------------------------------------------------------------------------
    @invariant()
    def every_time_has_exactly_one_outcome(self) -> None:
        if not self.segments:
            return
        row, ticks = self.row(), self.ticks()
        covered: dict[int, Tick] = {}
        for tick in ticks:
            if tick.source.manual:
                continue
            for nominal in self._times(tick.nominal - 1, tick.until or tick.nominal):
                assert nominal not in covered, f"{to_datetime(nominal)} twice"
                covered[nominal] = tick
        expected = self._times(BEGIN, row.cursor)
        held = {tick.nominal for tick in ticks if not tick.source.manual} - set(expected)
        assert set(expected) <= set(covered), "a time has no outcome"
        assert set(covered) == set(expected) | held
        for tick in ticks:
            if tick.until is not None:
                assert tick.count == len(self._times(tick.nominal - 1, tick.until))

    def _times(self, after: int, until: int) -> list[int]:
        """All nominal times in a stretch, as the specs in force said."""
        found: list[int] = []
        ends = [since for since, _ in self.segments[1:]] + [until]
        for (since, spec), end in zip(self.segments, ends, strict=True):
            times, stop = Times(spec, self.id), min(end, until)
            nominal = times.next(max(since, after))
            while nominal is not None and nominal <= stop:
                found.append(nominal)
                nominal = times.next(nominal)
        return found

    @invariant()
    def what_is_decided_stays_and_obeys_the_policies(self) -> None:
        if not self.segments:
            return
        row, ticks, unfinished = self.row(), self.ticks(), len(self.unfinished())
        fresh: list[Tick] = []
        for tick in ticks:
            key = tick.nominal, tick.request
            old = self.seen.get(key)
            if old is not None and not old.outcome.waiting:
                assert tick == old, "an outcome was changed"
            elif old is None or old.outcome is not tick.outcome:
                fresh.append(tick)
            self.seen[key] = tick
        self._obeys(row, fresh, unfinished)
        self.before, self.unfinished_before = row, unfinished

    def _obeys(self, row: Schedule, fresh: list[Tick], unfinished: int) -> None:
        policies = [policy_of(self.before.policy), policy_of(row.policy)]
        windows = [policy.window for policy in policies]
        inactive = self.before.paused or row.paused or 0 in {self.before.remaining, row.remaining}
        inactive = inactive or any(policy.pause_on_failure for policy in policies)
        for tick in fresh:
            late = (tick.acted or 0) - tick.due
            if tick.outcome is TickOutcome.MISSED:
                assert any(window is not None and late > window for window in windows), "missed within the window"
            elif tick.outcome is TickOutcome.PAUSED:
                assert inactive, "left out as paused, and was not"
            elif tick.outcome.started and tick.source is TickSource.CATCHUP:
                assert any(window is None or late <= window or tick.reason for window in windows)
        started = [tick for tick in fresh if tick.outcome.started]
        effective = {tick.overlap or policy.overlap for tick in started for policy in policies}
        if started and Overlap.ALLOW_ALL not in effective:
            slots = max(policy.max_running or 1 for policy in policies)
            stopping = effective <= {Overlap.TERMINATE_OTHER, Overlap.CANCEL_OTHER}
            most = slots if stopping else max(slots, self.unfinished_before)
            assert unfinished <= most, "more runs at once than the policy allows"

    @invariant()
    def the_books_balance(self) -> None:
        if not self.segments:
            return
        row, ticks = self.row(), self.ticks()

        def count(*outcomes: TickOutcome) -> int:
            return sum(tick.count for tick in ticks if tick.outcome in outcomes)

        assert row.starts == count(TickOutcome.FIRED, TickOutcome.LATE)
        assert row.missed == count(TickOutcome.MISSED)
        assert row.skipped == count(TickOutcome.SKIPPED_OVERLAP)
        assert row.dropped == count(TickOutcome.DROPPED)
        runs = [tick.run for tick in ticks if tick.outcome.started]
        assert len(set(runs)) == len(runs), "one run for two ticks"
        again = {each.id for each in self.store.schedules.backfills(self.id) if each.again}
        taken = [
            tick.nominal
            for tick in ticks
            if tick.run is not None and tick.source is not TickSource.TRIGGER and tick.request not in again
        ]
        assert len(set(taken)) == len(taken), "one time has two runs"
        assert all(
            run is not None and self.store.run(run) is not None
            for run in random.Random(1).sample(runs, min(3, len(runs)))
        )
        limit = policy_of(row.policy).limit
        if limit is not None:
            by_clock = sum(tick.outcome.started and not tick.source.manual for tick in ticks)
            assert by_clock + (row.remaining or 0) == limit

    def teardown(self) -> None:
        """In the end nothing waits: once runs end, everything that waited has its turn."""
        if not self.segments:
            return
        situation = self.store.schedules.situation(self.id)
        assert situation is not None
        # What waits for its jitter has a place in the buffer until then.
        self.clock.time = max(self.latest, self.clock.time, *(tick.due for tick in situation.waiting))
        for _ in range(500):
            self.fire()
            self.store.claim(request(limit=1000, now=self.clock.time + 86_400 * SECOND))
            running = self.unfinished()
            for run in running:
                self.end(run, State.SUCCEEDED)
            situation = self.store.schedules.situation(self.id)
            assert situation is not None
            waits = [tick for tick in situation.waiting if tick.due <= self.clock.time]
            if not running and not waits and not situation.backfills:
                break
        else:
            raise AssertionError("something waits for ever")
        self.fire()
        self.every_time_has_exactly_one_outcome()
        self.the_books_balance()
        self.schedules.delete(self.id)


@pytest.mark.sampled
def test_whatever_happens_every_time_is_accounted_for(store_url: str) -> None:
    store = open_store(store_url, StoreSettings())
    store.open()
    store.register(worker())
    ScheduleMachine.store = store
    examples = of(2_000, 20 if store_url.startswith("sqlite") else 4)
    try:
        run_state_machine_as_test(
            ScheduleMachine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=30,
                deadline=None,
                suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
            ),
        )
    finally:
        store.close()
