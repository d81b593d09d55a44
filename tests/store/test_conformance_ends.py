"""Ending a run: once, by its owner, for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mainspring.errors import Conflict
from mainspring.model.states import State
from mainspring.store.writes import RecordStep, Verdict
from tests.store.build import (
    NOW,
    SECOND,
    apply,
    claim,
    done,
    finish,
    get,
    owned,
    rest,
    run,
    start,
    state,
    step,
    wait_for,
    write,
)

if TYPE_CHECKING:
    from mainspring.store.protocol import Store
    from mainspring.store.writes import Op


def test_an_end_is_stored_with_its_result(store: Store) -> None:
    start(store, owned("a"))
    done(store, finish("a", output='{"total": 3}'))
    found = get(store)
    assert (found.state, found.output, found.completed) == (State.SUCCEEDED, '{"total": 3}', NOW + SECOND)
    assert (found.owner, found.epoch) == (None, 1)


_RESULTS = ('"a\\\\b, \\"c\\" {d}"', '"NULL"', "null", None, '"\\u0000"', '""', '"é𝄞"', "[1, {}]")


@pytest.mark.parametrize("recorded", [False, True])
def test_ends_of_many_runs_at_once_keep_their_own_results(store: Store, *, recorded: bool) -> None:
    """Also behind a last outcome in the same batch, which some of them have."""
    start(store, *(owned(f"r{number}") for number, _ in enumerate(_RESULTS)))
    ends = [finish(f"r{number}", completed=NOW + number, output=each) for number, each in enumerate(_RESULTS)]
    last: list[Op] = [RecordStep("w1", step("r1")), RecordStep("w1", step("r3"))] if recorded else []
    answers = store.apply([*last, *ends], NOW)
    assert answers[len(last) :] == [Verdict.DONE] * len(_RESULTS)
    found = [get(store, f"r{number}") for number, _ in enumerate(_RESULTS)]
    assert [(each.state, each.output, each.completed) for each in found] == [
        (State.SUCCEEDED, result, NOW + number) for number, result in enumerate(_RESULTS)
    ]


def test_ends_at_once_in_the_name_of_another_owner_or_epoch_are_refused_alone(store: Store) -> None:
    start(store, *(owned(name) for name in "abc"), owned("d", "w2"))
    ends = [finish("a"), finish("b", epoch=2), finish("c"), finish("d", owner="w1")]
    done_, *refused = (store.apply(ends, NOW)[number] for number in (0, 1, 3))
    assert done_ is Verdict.DONE
    assert Verdict.DONE not in refused
    assert [state(store, name) for name in "abcd"] == [
        State.SUCCEEDED,
        State.RUNNING,
        State.SUCCEEDED,
        State.RUNNING,
    ]


def test_a_failure_is_stored_with_its_error_and_reason(store: Store) -> None:
    start(store, owned("a"))
    done(store, finish("a", state=State.FAILED, output=None, error='{"type": "ValueError"}', reason="interrupted"))
    found = get(store)
    assert (found.state, found.error, found.reason, found.output) == (
        State.FAILED,
        '{"type": "ValueError"}',
        "interrupted",
        None,
    )


def test_a_waiting_run_may_fail(store: Store) -> None:
    start(store, owned("a", state=State.WAITING))
    done(store, finish("a", state=State.FAILED, output=None, error="{}"))
    assert state(store) is State.FAILED


def test_only_the_owner_ends_a_run(store: Store) -> None:
    start(store, owned("a"))
    assert apply(store, finish("a", "w2")) is Verdict.FENCED
    assert apply(store, finish("a", epoch=2)) is Verdict.FENCED
    assert apply(store, finish("nowhere")) is Verdict.FENCED
    assert state(store) is State.RUNNING


def test_an_end_is_never_overwritten(store: Store) -> None:
    start(store, owned("a"))
    done(store, finish("a", output="1"))
    late = finish("a", output=None, state=State.FAILED, error="{}", completed=NOW + 2 * SECOND)
    assert apply(store, late) is Verdict.FENCED
    assert get(store).output == "1"


def test_the_late_end_of_a_zombie_is_refused(store: Store) -> None:
    start(store, owned("a", "w1"))
    store.retire("w1", NOW, None)
    claim(store, "w2")
    assert apply(store, finish("a", "w1", epoch=1)) is Verdict.FENCED
    assert apply(store, finish("a", "w2", epoch=2)) is Verdict.DONE


@pytest.mark.parametrize("end", [State.SUCCEEDED, State.FAILED])
def test_a_run_that_is_being_cancelled_ends_as_nothing_else(store: Store, end: State) -> None:
    start(store, owned("a"))
    store.cancel(["a"], "enough", NOW)
    assert apply(store, finish("a", state=end)) is Verdict.STOPPING
    assert state(store) is State.CANCELLING
    done(store, finish("a", state=State.CANCELLED, output=None))
    assert (state(store), get(store).reason) == (State.CANCELLED, "enough")


def test_the_reason_of_a_cancel_gives_way_to_a_better_one(store: Store) -> None:
    start(store, owned("a"))
    store.cancel(["a"], "enough", NOW)
    done(store, finish("a", state=State.CANCELLED, output=None, reason="timeout"))
    assert get(store).reason == "timeout"


def test_a_loser_in_a_batch_of_ends_concerns_nobody_else(store: Store) -> None:
    start(store, *(owned(f"r{number}") for number in range(4)))
    store.terminate(["r1"], None, NOW)
    store.cancel(["r2"], None, NOW)
    answers = store.apply([finish(f"r{number}") for number in range(4)], NOW)
    assert answers == [Verdict.DONE, Verdict.FENCED, Verdict.STOPPING, Verdict.DONE]


def test_bad_data_in_a_batch_of_ends_concerns_nobody_else(store: Store) -> None:
    start(store, *(owned(f"r{number}") for number in range(4)))
    ops = [finish(f"r{number}") for number in range(4)]
    ops[2].completed = 2**80  # more than a column holds
    answers = store.apply(ops, NOW)
    assert isinstance(answers[2], Exception)
    assert [answers[number] for number in (0, 1, 3)] == [Verdict.DONE] * 3
    assert state(store, "r2") is State.RUNNING


def test_endings_tell_who_ended_how_and_who_has_not(store: Store) -> None:
    start(store, owned("a"), run("b"), owned("c"))
    done(store, finish("a", output="1"))
    done(store, finish("c", state=State.FAILED, output=None, error='{"type": "X"}', reason="why"))
    found = store.endings(["a", "b", "c", "nowhere"])
    assert set(found) == {"a", "b", "c"}
    assert found["b"] is None
    assert found["a"] is not None
    assert (found["a"].id, found["a"].state, found["a"].output) == ("a", State.SUCCEEDED, "1")
    assert found["c"] is not None
    assert (found["c"].state, found["c"].error, found["c"].reason) == (State.FAILED, '{"type": "X"}', "why")
    assert store.endings([]) == {}


def test_a_run_is_not_deleted_before_those_that_wait_for_it_have_its_outcome(store: Store) -> None:
    start(store, owned("a"), owned("a/0", "w2", parent="a"))
    write(store, wait_for("a/0"))
    done(store, rest("a", park=False))
    done(store, finish("a/0", "w2"))
    with pytest.raises(Conflict, match="run 'a' waits for 'a/0'"):
        store.management.delete(["a/0"], NOW)
    store.retire("w1", NOW, None)
    assert state(store) is State.QUEUED, "its worker was lost before it looked"
    claim(store)
    write(store, step("a", "0", epoch=2))
    assert store.management.delete(["a/0"], NOW) == {"a/0": True}
