"""Each auditor of the soak finds a promise that is broken: rows and a ledger in which one thing is wrong, made by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from mainspring.model.clock import SECOND
from mainspring.model.runs import Run, Step, StepKind
from mainspring.model.schedules import Schedule, Tick, TickOutcome, TickSource
from mainspring.model.states import State
from tests.soak.auditors import AUDITORS
from tests.soak.evidence import Evidence, UserRow
from tests.soak.functions.jobs import SCHEDULES
from tests.soak.ledger import BEGIN, END, Ledger, Writer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Forged:
    """Evidence in the making: at first one of a soak in which nothing has happened."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ledger = Writer(folder / "ledger")
        self.runs: dict[str, Run] = {}
        self.steps: dict[str, list[Step]] = {}
        self.ticks: dict[str, list[Tick]] = {name: [] for name in SCHEDULES}
        self.user_rows: list[UserRow] = []
        self.joined_rows: list[tuple[str, str]] = []

    def run(self, run_id: str, workflow: str = "job", state: str = "succeeded", **more: Any) -> None:
        values: dict[str, Any] = {
            "id": run_id,
            "uid": run_id,
            "workflow": workflow,
            "kind": "workflow",
            "state": State(state),
            "input": "{}",
            "due": 0,
            "created": 0,
            "completed": 9,
            "started": 1,
            "epoch": 1,
            "recoveries": 0,
            "fingerprint": "",
            "attributes": "{}",
        }
        empty = (
            "reason",
            "output",
            "error",
            "timeout",
            "deadline",
            "owner",
            "version",
            "parent",
            "scheduled_by",
            "blocked",
        )
        known: dict[str, Any] = dict.fromkeys(empty)
        self.runs[run_id] = Run(**(known | values | more))
        self.steps.setdefault(run_id, [])

    def effect(self, run: str, label: str, token: str, *, epoch: int = 1, end: bool = True, **more: Any) -> None:
        claim = {"token": token, "epoch": epoch, "attempt": 1}
        self.ledger.write(BEGIN, run, label, before=more.pop("before", ""), **claim, **more)
        if end:
            self.ledger.write(END, run, label, **claim)

    def record(self, run: str, label: str, token: str, *, kind: StepKind = "step", epoch: int = 1) -> None:
        steps = self.steps.setdefault(run, [])
        output = json.dumps(f"{label}|{token}")
        steps.append(Step(run, str(len(steps)), kind, label, len(steps), output, None, 1, 2, 1, epoch))

    def tick(
        self, schedule: str, second: int, outcome: TickOutcome = TickOutcome.SKIPPED_OVERLAP, run: str | None = None
    ) -> None:
        request = str(len(self.ticks[schedule]))
        self.ticks[schedule].append(
            Tick(schedule, second * SECOND, request, TickSource.CLOCK, second * SECOND, outcome, run=run)
        )

    def evidence(self) -> Evidence:
        schedules = {name: self._schedule(name) for name in SCHEDULES}
        return Evidence(
            "postgres",
            self._folder,
            Ledger(self._folder / "ledger"),
            self.runs,
            self.steps,
            schedules,
            self.ticks,
            self.user_rows,
            self.joined_rows,
        )

    def _schedule(self, name: str) -> Schedule:
        ticks = self.ticks[name]
        latest = max((tick.nominal for tick in ticks), default=0)
        skipped = sum(tick.outcome is TickOutcome.SKIPPED_OVERLAP for tick in ticks)
        starts = sum(tick.outcome.started for tick in ticks)
        texts: dict[str, Any] = dict.fromkeys(
            ("spec", "canonical", "workflow", "action", "input", "policy", "attributes"), ""
        )
        return Schedule(id=name, **texts, created=0, updated=0, cursor=latest, due=0, skipped=skipped, starts=starts)


# -- one broken promise each ------------------------------------------------------------------------------------------------
def a_promised_run_is_lost(forged: Forged) -> None:
    forged.ledger.write("promised", "lost", "job")


def a_run_does_not_end(forged: Forged) -> None:
    forged.run("left", state="waiting")


def a_run_fails_without_reason(forged: Forged) -> None:
    forged.run("failed", state="failed", reason="why")


def a_recorded_step_is_executed_under_a_later_claim(forged: Forged) -> None:
    forged.run("r")
    forged.effect("r", "work", "first")
    forged.effect("r", "work", "second", epoch=2)
    forged.record("r", "work", "first")


def a_step_is_executed_after_the_next_had_its_outcome(forged: Forged) -> None:
    forged.run("r")
    forged.effect("r", "a", "1", end=False)
    forged.effect("r", "b", "2", before="a|1")
    forged.effect("r", "a", "3", epoch=2)


def a_step_that_succeeded_is_executed_under_the_same_claim(forged: Forged) -> None:
    forged.run("r")
    forged.effect("r", "work", "first")
    forged.effect("r", "work", "second")


def a_message_is_received_twice(forged: Forged) -> None:
    forged.run("listener", "listener", output='[["s",0],["s",0],["s",1]]')
    forged.ledger.write("expects", "listener", counts={"s": 2})


def messages_are_received_in_another_order(forged: Forged) -> None:
    forged.run("listener", "listener", output='[["s",1],["s",0]]')
    forged.ledger.write("expects", "listener", counts={"s": 2})


def a_message_to_itself_is_lost(forged: Forged) -> None:
    forged.run("p", "program", input='{"operations":[["mail",2]]}', output="[[0]]")


def what_may_begin_once_begins_twice(forged: Forged) -> None:
    forged.run("o", "with_once")
    forged.effect("o", "once 0", "1", end=False)
    forged.effect("o", "once 0", "2", epoch=2)


def a_compensation_is_left_out(forged: Forged) -> None:
    forged.run("t", "trip", "failed", input='{"plan":[["book",0],["book",0],["fail",null]]}')
    for label in ("book 0", "book 1", "~book 1"):
        forged.record("t", label, label)


def a_trip_that_went_well_is_undone(forged: Forged) -> None:
    forged.run("t", "trip", input='{"plan":[["book",0]]}')
    for label in ("book 0", "~book 0"):
        forged.record("t", label, label)


def a_queue_has_too_many_at_work(forged: Forged) -> None:
    for name in ("a", "b"):
        forged.run(name, queue="serial")
        forged.effect(name, "work", name, end=False)
        forged.record(name, "work", name)
    for name in ("a", "b"):
        forged.ledger.write(END, name, "work", token=name, epoch=1, attempt=1)


def a_rate_is_exceeded(forged: Forged) -> None:
    for number in range(5):
        forged.run(f"r{number}", queue="rated", attempt_started=number + 1)


def a_time_has_no_tick(forged: Forged) -> None:
    for second in (3, 6, 12):
        forged.tick("skip", second)


def a_time_has_two_runs(forged: Forged) -> None:
    for run in ("a", "b"):
        forged.run(run, "tick_job", schedule="skip")
        forged.tick("skip", 3, TickOutcome.FIRED, run)


def a_transaction_is_committed_twice(forged: Forged) -> None:
    forged.user_rows += [UserRow("r", "s1", "s1|a"), UserRow("r", "s1", "s1|b")]


def a_recorded_transaction_has_no_row(forged: Forged) -> None:
    forged.run("r", "program", input='{"operations":[]}')
    forged.record("r", "s1", "a", kind="transaction")


def a_link_of_a_chain_is_missing(forged: Forged) -> None:
    forged.run("c", "link", kind="transaction")
    forged.ledger.write("promised", "c", "chain", function="link", length=2)
    forged.user_rows.append(UserRow("c", "link 0", "link 0|a"))


def half_of_a_joined_transaction_is_there(forged: Forged) -> None:
    forged.run("listener", "nobody_writes", output='"the end"')
    forged.run("j")
    forged.ledger.write("tries", "j", "joined", listener="listener")
    forged.ledger.write("committed", "j", "joined")


def a_client_is_told_another_result(forged: Forged) -> None:
    forged.run("p", "program", input='{"operations":[]}', output='["a"]')
    forged.ledger.write("result", "p", "succeeded", value=["b"])


def a_step_of_a_succeeded_run_has_no_record(forged: Forged) -> None:
    forged.run("p", "program", input='{"operations":[["step","act","s1",0,0]]}', output='["s1|x"]')


def a_value_of_a_stream_is_lost(forged: Forged) -> None:
    forged.ledger.write("read", "reporter", "lines", values=[0, 2], count=3)


def an_answer_is_wrong(forged: Forged) -> None:
    forged.run("asker", "asker", input='{"to":"o","values":[4]}', output="[9]")


BROKEN: list[tuple[str, Callable[[Forged], None]]] = [
    ("every run ended as it must", a_promised_run_is_lost),
    ("every run ended as it must", a_run_does_not_end),
    ("every run ended as it must", a_run_fails_without_reason),
    ("nothing recorded was executed again", a_recorded_step_is_executed_under_a_later_claim),
    ("nothing recorded was executed again", a_step_is_executed_after_the_next_had_its_outcome),
    ("nothing recorded was executed again", a_step_that_succeeded_is_executed_under_the_same_claim),
    ("each message once and in order", a_message_is_received_twice),
    ("each message once and in order", messages_are_received_in_another_order),
    ("each message once and in order", a_message_to_itself_is_lost),
    ("at most once", what_may_begin_once_begins_twice),
    ("every compensation was made", a_compensation_is_left_out),
    ("every compensation was made", a_trip_that_went_well_is_undone),
    ("limits of queues", a_queue_has_too_many_at_work),
    ("rates of queues", a_rate_is_exceeded),
    ("every tick accounted for", a_time_has_no_tick),
    ("every tick accounted for", a_time_has_two_runs),
    ("transactions exactly once", a_transaction_is_committed_twice),
    ("transactions exactly once", a_recorded_transaction_has_no_row),
    ("transactions exactly once", a_link_of_a_chain_is_missing),
    ("joined: all or nothing", half_of_a_joined_transaction_is_there),
    ("those who wait are told what is stored", a_client_is_told_another_result),
    ("those who wait are told what is stored", a_step_of_a_succeeded_run_has_no_record),
    ("streams, events and answers", a_value_of_a_stream_is_lost),
    ("streams, events and answers", an_answer_is_wrong),
]


@pytest.mark.parametrize(("promise", "break_it"), BROKEN, ids=[break_it.__name__ for _, break_it in BROKEN])
def test_a_broken_promise_is_found_by_its_auditor(
    tmp_path: Path, promise: str, break_it: Callable[[Forged], None]
) -> None:
    forged = Forged(tmp_path)
    break_it(forged)
    assert [*AUDITORS[promise](forged.evidence())]


def test_every_auditor_has_a_promise_that_it_was_seen_to_find_broken() -> None:
    assert {promise for promise, _ in BROKEN} == set(AUDITORS)


@pytest.mark.parametrize("promise", list(AUDITORS))
def test_nothing_is_found_where_everything_went_well(tmp_path: Path, promise: str) -> None:
    forged = Forged(tmp_path)
    forged.run("r", queue="serial")
    forged.effect("r", "work", "cut", end=False)
    forged.effect("r", "work", "again", epoch=2)
    forged.record("r", "work", "again", epoch=2)
    forged.run("t", "trip", "failed", input='{"plan":[["book",0],["fail",null]]}')
    for label in ("book 0", "~book 0"):
        forged.effect("t", label, label)
        forged.record("t", label, label)
    forged.run("listener", "listener", output='[["s",0],["s",1]]')
    forged.ledger.write("expects", "listener", counts={"s": 2})
    forged.tick("skip", 3)
    forged.tick("skip", 6)
    assert not [*AUDITORS[promise](forged.evidence())]
