"""The last outcome of a run and its end, handed over together: one commit, and never the end without the outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mainspring.model.states import State
from mainspring.store.writes import Recorded, RecordStep, Verdict, layers
from tests.store.build import NOW, finish, owned, run, start, state, step

if TYPE_CHECKING:
    from mainspring.store.protocol import Store
    from mainspring.store.writes import Op


def both(run_id: str = "a") -> list[Op]:
    return [RecordStep("w1", step(run_id)), finish(run_id)]


def test_they_are_one_part_of_a_batch() -> None:
    ops = [*both("a"), *both("b")]
    assert layers(ops) == [ops]


@pytest.mark.parametrize(
    "before",
    [
        [RecordStep("w1", step("a"), run_state=State.RUNNING)],
        [RecordStep("w1", step("a"), starts=[run("a/0")])],
        [RecordStep("w1", step("a")), RecordStep("w1", step("a", "1"))],
        [RecordStep("w1", step("a")), finish("a")],
    ],
)
def test_what_is_more_than_an_outcome_comes_in_a_part_before_the_end(before: list[Op]) -> None:
    assert layers([*before, finish("a")])[-1] == [finish("a")]


@pytest.mark.parametrize("runs", [["a"], ["a", "b", "c"]])
def test_both_are_made(store: Store, runs: list[str]) -> None:
    start(store, *[owned(each) for each in runs])
    answers = store.apply([op for each in runs for op in both(each)], NOW)
    assert answers == [Recorded(), Verdict.DONE] * len(runs)
    assert [(state(store, each), store.steps(each)) for each in runs] == [
        (State.SUCCEEDED, [step(each)]) for each in runs
    ]


@pytest.mark.parametrize("runs", [["a"], ["a", "b", "c"]])
def test_made_again_after_a_lost_acknowledgement_they_answer_the_same(store: Store, runs: list[str]) -> None:
    start(store, *[owned(each) for each in runs])
    ops = [op for each in runs for op in both(each)]
    assert store.apply(ops, NOW) == store.apply(ops, NOW)


def test_an_outcome_that_was_never_made_is_not_taken_for_made_when_its_run_has_ended(store: Store) -> None:
    start(store, owned("a"))
    assert store.apply(both(), NOW) == [Recorded(), Verdict.DONE]
    (answer,) = store.apply([RecordStep("w1", step("a", "1"))], NOW)
    assert answer == Recorded(Verdict.FENCED)
    assert store.steps("a") == [step("a")]


def test_of_a_run_that_is_no_longer_in_hand_neither_is_made(store: Store) -> None:
    start(store, owned("a"), owned("b"))
    store.retire("w1", NOW, None)
    assert store.apply([*both("a"), *both("b")], NOW) == [Recorded(Verdict.FENCED), Verdict.FENCED] * 2
    assert store.steps("a") == []


def test_of_a_run_that_is_being_cancelled_the_outcome_is_made_and_the_end_is_not(store: Store) -> None:
    start(store, owned("a"), owned("b"))
    store.cancel(["a"], "enough", NOW)
    answers = store.apply([*both("a"), *both("b")], NOW)
    assert answers == [Recorded(stopping=True), Verdict.STOPPING, Recorded(), Verdict.DONE]
    assert store.steps("a") == [step("a")]
    assert state(store, "a") is State.CANCELLING


def test_where_the_outcome_is_refused_the_run_does_not_end(store: Store) -> None:
    start(store, owned("a"), owned("b"))
    refused = RecordStep("w1", step("a", name=None))
    wrong, end, *others = store.apply([refused, finish("a"), *both("b")], NOW)
    assert isinstance(wrong, Exception)
    assert end is wrong
    assert others == [Recorded(), Verdict.DONE]
    assert (state(store, "a"), store.steps("a")) == (State.RUNNING, [])
