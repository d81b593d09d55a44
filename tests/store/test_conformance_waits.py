"""Resting, parking, handing back; and being woken when a run that is waited for has ended."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mainspring.model.runs import RunFilter, Step, StepKind
from mainspring.model.states import State
from mainspring.store.messages import Entry, Post
from mainspring.store.writes import RecordStep, Send, Verdict
from tests.store.build import (
    NOW,
    SECOND,
    apply,
    claim,
    done,
    finish,
    get,
    owned,
    receive,
    release,
    request,
    rest,
    run,
    sleep,
    start,
    state,
    step,
    wait_for,
    write,
)

if TYPE_CHECKING:
    from mainspring.store.messages import Outgoing
    from mainspring.store.protocol import Store


def waiting(store: Store, *, worker: str = "w1", child_worker: str = "w2") -> None:
    """Run a waits for run b."""
    start(store, owned("a", worker), owned("b", child_worker))
    write(store, wait_for("b"), owner=worker, watch="b", run_state=State.WAITING)


# -- parking while something is said --------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["receive", "question"])
def test_a_run_is_not_parked_when_there_is_something_for_it_to_hear(store: Store, kind: StepKind) -> None:
    """Its worker may have taken note of the notice, which is gone then, and not have told the run yet."""
    start(store, owned("a"))
    write(store, Step("a", "0", kind, "t", started=NOW, epoch=1, child="a"), run_state=State.WAITING)
    apply(store, Send("a", [Post("a", "t", "1", NOW, question=kind == "question")]))
    assert [notice.run for notice in store.notices("w1")] == ["a"]
    assert apply(store, rest("a")) is Verdict.NOTIFIED
    assert get(store).owner == "w1"
    done(store, rest("a", park=False))


def test_a_run_that_waits_for_the_end_of_a_long_stream_is_parked(store: Store) -> None:
    start(store, owned("a"), owned("b", "w2"))
    said: list[Outgoing] = [Entry("streams", "b", "log", "1", NOW) for _ in range(2)]
    apply(store, Send("b", said))
    read = Step("a", "0", "stream", "log", started=NOW, epoch=1, child="b", output="1")
    write(store, read, run_state=State.WAITING)
    assert apply(store, rest("a")) is Verdict.NOTIFIED
    read.output = "2"
    write(store, read, run_state=State.WAITING)
    done(store, rest("a"))


# -- resting -----------------------------------------------------------------------------------------------------------
def test_a_suspended_run_keeps_its_owner(store: Store) -> None:
    start(store, owned("a"))
    write(store, sleep("a"))
    done(store, rest("a", park=False))
    found = get(store)
    assert (found.state, found.owner, found.due) == (State.WAITING, "w1", NOW + SECOND)


def test_a_parked_run_is_nobodys(store: Store) -> None:
    start(store, owned("a"))
    write(store, sleep("a"))
    done(store, rest("a", park=True))
    found = get(store)
    assert (found.state, found.owner, found.due, found.epoch) == (State.WAITING, None, NOW + SECOND, 1)


def test_a_parked_run_comes_back_when_it_is_due_with_what_it_recorded(store: Store) -> None:
    start(store, owned("a"))
    write(store, step("a", "0"))
    write(store, sleep("a", position="1"))
    done(store, rest("a"))
    assert claim(store, now=NOW + SECOND - 1) == []
    (back,) = claim(store, "w2", now=NOW + SECOND)
    assert (back.run.owner, back.run.epoch, back.run.started) == ("w2", 2, NOW)
    assert [each.position for each in back.steps] == ["0", "1"]


def test_only_the_owner_can_lay_a_run_to_rest(store: Store) -> None:
    start(store, owned("a"))
    assert apply(store, rest("a", "w2")) is Verdict.FENCED
    assert apply(store, rest("a", epoch=2)) is Verdict.FENCED
    assert state(store) is State.RUNNING


def test_a_run_that_was_asked_to_stop_does_not_rest(store: Store) -> None:
    start(store, owned("a"))
    store.cancel(["a"], None, NOW)
    assert apply(store, rest("a")) is Verdict.STOPPING
    assert apply(store, rest("a", park=False)) is Verdict.STOPPING


def test_a_run_whose_child_has_ended_meanwhile_does_not_rest(store: Store) -> None:
    waiting(store, child_worker="w1")
    done(store, finish("b"))
    assert apply(store, rest("a")) is Verdict.NOTIFIED
    assert get(store).owner == "w1"


def test_a_poked_run_does_not_rest_until_its_owner_has_looked(store: Store) -> None:
    waiting(store)
    done(store, finish("b", "w2"))
    assert apply(store, rest("a")) is Verdict.NOTIFIED
    assert [notice.run for notice in store.notices("w1")] == ["a"]
    write(store, wait_for("b", completed=NOW, seq=0, output="42"))
    write(store, sleep("a", position="1"))
    assert apply(store, rest("a")) is Verdict.DONE


def test_writes_about_one_run_take_effect_in_their_order_even_in_one_batch(store: Store) -> None:
    start(store, owned("a"), owned("b"))
    for each in "ab":
        write(store, sleep(each, position="9"))
    answers = store.apply(
        [
            rest("a", park=False),
            RecordStep("w1", step("a"), run_state=State.RUNNING),
            RecordStep("w1", step("b"), run_state=State.RUNNING),
            rest("b", park=False),
        ],
        NOW,
    )
    assert not any(isinstance(answer, Exception) for answer in answers)
    assert (state(store, "a"), state(store, "b")) == (State.RUNNING, State.WAITING)


# -- handing back ------------------------------------------------------------------------------------------------------
def test_a_run_that_is_handed_back_can_be_claimed(store: Store) -> None:
    start(store, owned("a"))
    done(store, release("a"))
    assert (state(store), get(store).owner, get(store).recoveries) == (State.QUEUED, None, 0)
    assert claim(store, "w2")[0].run.epoch == 2


def test_a_suspended_run_is_handed_back_as_waiting(store: Store) -> None:
    start(store, owned("a"))
    write(store, sleep("a"))
    done(store, rest("a", park=False))
    done(store, release("a"))
    assert (state(store), get(store).due) == (State.WAITING, NOW + SECOND)


def test_a_run_whose_child_has_ended_is_handed_back_as_ready(store: Store) -> None:
    waiting(store, child_worker="w1")
    done(store, finish("b"))
    done(store, release("a"))
    assert state(store) is State.QUEUED


def test_a_poked_run_is_handed_back_as_ready(store: Store) -> None:
    waiting(store)
    done(store, finish("b", "w2"))
    done(store, release("a"))
    assert state(store) is State.QUEUED
    assert store.notices("w1") == []


def test_a_run_that_is_handed_back_is_not_the_last_in_line(store: Store) -> None:
    start(store, owned("a"))
    write(store, step("a"), run_state=State.RUNNING)  # whose due time is far away
    done(store, release("a"), NOW + SECOND)
    start(store, run("b", due=NOW + 2 * SECOND))
    assert [each.run.id for each in claim(store, now=NOW + 2 * SECOND)] == ["a", "b"]


def test_a_run_that_cannot_be_followed_says_why_and_is_not_offered_to_that_version_again(store: Store) -> None:
    start(store, owned("a"))
    why = {"versions": ["v1"], "reason": "position 3 differs"}
    done(store, release("a", blocked=json.dumps(why)))
    assert json.loads(get(store).blocked or "") == why
    assert claim(store, version="v1") == []
    assert store.runs(RunFilter(stranded=True)) == [get(store)]
    assert len(claim(store, version="v2")) == 1
    assert store.runs(RunFilter(stranded=True)) == []


def test_only_the_owner_can_hand_a_run_back(store: Store) -> None:
    start(store, owned("a"))
    assert apply(store, release("a", "w2")) is Verdict.FENCED
    store.cancel(["a"], None, NOW)
    assert apply(store, release("a")) is Verdict.STOPPING


# -- being woken -------------------------------------------------------------------------------------------------------
def test_the_end_of_a_run_readies_the_parked_one_that_waits_for_it(store: Store) -> None:
    waiting(store)
    done(store, rest("a"))
    done(store, finish("b", "w2"), NOW + SECOND)
    assert (state(store), get(store).due) == (State.QUEUED, NOW + SECOND)


def test_the_end_of_a_run_pokes_the_one_in_another_workers_hand(store: Store) -> None:
    waiting(store)
    done(store, finish("b", "w2"))
    assert state(store) is State.WAITING
    (notice,) = store.notices("w1")
    assert (notice.run, notice.epoch, notice.state) == ("a", 1, State.WAITING)
    assert store.notices("w1") == []


def test_a_worker_is_not_poked_for_what_it_finished_itself(store: Store) -> None:
    waiting(store, child_worker="w1")
    done(store, finish("b", "w1"))
    assert store.notices("w1") == []


@pytest.mark.parametrize("how", ["cancel", "terminate", "expire", "retire"])
def test_every_way_to_end_wakes_who_waits(store: Store, how: str) -> None:
    start(store, owned("a", "w1"))
    child = owned("b", "w2") if how == "retire" else run("b", deadline=NOW)
    start(store, child)
    write(store, wait_for("b"), watch="b", run_state=State.WAITING)
    done(store, rest("a"))
    match how:
        case "cancel":
            store.cancel(["b"], None, NOW)
        case "terminate":
            store.terminate(["b"], None, NOW)
        case "expire":
            store.expire(NOW)
        case _:
            store.retire("w2", NOW, 0)
    assert state(store, "b").ended
    assert state(store, "a") is State.QUEUED


def test_a_step_that_is_over_waits_for_nothing(store: Store) -> None:
    waiting(store)
    write(store, wait_for("b", completed=NOW, seq=0, error='{"type": "StillRunning"}'))
    write(store, sleep("a", position="1"))
    done(store, rest("a"))
    done(store, finish("b", "w2"))
    assert state(store) is State.WAITING


def test_one_end_wakes_all_who_wait(store: Store) -> None:
    start(store, owned("child", "w9"), *(owned(f"r{number}", f"w{number}") for number in range(5)))
    for number in range(5):
        write(store, wait_for("child", f"r{number}"), owner=f"w{number}", watch="child", run_state=State.WAITING)
    for number in (0, 1):
        done(store, rest(f"r{number}", f"w{number}"))
    done(store, finish("child", "w9"))
    assert [state(store, f"r{number}") for number in range(5)] == [State.QUEUED] * 2 + [State.WAITING] * 3
    assert [len(store.notices(f"w{number}")) for number in range(5)] == [0, 0, 1, 1, 1]


def test_an_end_and_the_rest_of_who_waits_for_it_may_share_a_batch(store: Store) -> None:
    waiting(store, child_worker="w1")
    parked, ended = store.apply([rest("a"), finish("b")], NOW)
    assert ended is Verdict.DONE
    found = get(store)
    # Whichever came first, somebody goes on with it: the owner that was refused, or whoever claims it.
    assert (parked, found.state) in {(Verdict.DONE, State.QUEUED), (Verdict.NOTIFIED, State.WAITING)}
    assert (found.owner is None) == (parked is Verdict.DONE)


def test_a_wait_that_begins_and_the_end_it_waits_for_may_share_a_batch(store: Store) -> None:
    start(store, owned("a", "w1"), owned("b", "w2"))
    begun, ended = store.apply(
        [RecordStep("w1", wait_for("b"), watch="b", run_state=State.WAITING), finish("b", "w2")], NOW
    )
    assert ended is Verdict.DONE
    assert getattr(begun, "ending", None) is not None or len(store.notices("w1")) == 1


def test_next_due_is_when_time_alone_will_make_something_ready(store: Store) -> None:
    start(store, owned("a"), owned("b"), run("c", state=State.SCHEDULED, due=NOW + 9 * SECOND))
    write(store, receive("a"))
    done(store, rest("a"))
    assert store.claim(request()).next_due == NOW + 9 * SECOND
    write(store, sleep("b", NOW + 5 * SECOND))
    done(store, rest("b"))
    assert store.claim(request()).next_due == NOW + 5 * SECOND
    start(store, run("d", state=State.SCHEDULED, due=NOW + 9 * SECOND, deadline=NOW + 2 * SECOND))
    assert store.claim(request()).next_due == NOW + 2 * SECOND


def test_the_deadline_of_a_run_that_is_to_be_undone_hides_no_later_time(store: Store) -> None:
    start(store, owned("a", deadline=NOW + 1), run("b", state=State.SCHEDULED, due=NOW + 9 * SECOND))
    write(store, step("a", kind="undo", name="undo"))
    store.cancel(["a"], "no longer wanted", NOW)
    done(store, release("a"))
    found = store.claim(request(now=NOW + SECOND, functions={"another": ""}))
    assert (found.claims, found.next_due) == ([], NOW + 9 * SECOND)


def test_what_waits_for_something_else_than_a_time_has_no_next_due(store: Store) -> None:
    start(store, owned("a"))
    write(store, receive("a"))
    done(store, rest("a"))
    assert store.claim(request()).next_due is None


# -- when a run is woken is derived from what is recorded ------------------------------------------------------------------
@pytest.mark.parametrize("park", [True, False])
def test_a_run_is_woken_at_the_first_of_its_open_waits(store: Store, park: bool) -> None:
    start(store, owned("a"))
    write(store, sleep("a", NOW + 3 * SECOND, "t0.0"))
    write(store, sleep("a", NOW + 2 * SECOND, "t1.0"))
    write(store, sleep("a", NOW + SECOND, "t2.0", completed=NOW, seq=0))
    done(store, rest("a", park=park))
    assert get(store).due == NOW + 2 * SECOND


def test_a_wait_that_makes_a_run_waiting_does_not_hide_an_earlier_one(store: Store) -> None:
    start(store, owned("a"))
    write(store, sleep("a", NOW + SECOND, "t0.0"))
    write(store, receive("a", "t1.0"), run_state=State.WAITING)
    assert (state(store), get(store).due) == (State.WAITING, NOW + SECOND)


def test_a_run_is_woken_no_later_than_its_worker_says(store: Store) -> None:
    start(store, owned("a"))
    write(store, sleep("a", NOW + 3 * SECOND))
    done(store, rest("a", park=False, no_later_than=NOW + SECOND))
    assert get(store).due == NOW + SECOND
    done(store, release("a"))
    assert (state(store), get(store).due) == (State.WAITING, NOW + SECOND)


@pytest.mark.parametrize("park", [True, False])
def test_a_run_without_an_open_wait_is_not_laid_to_rest(store: Store, park: bool) -> None:
    """Nothing would wake it."""
    start(store, owned("a"))
    write(store, step("a"))
    assert apply(store, rest("a", park=park)) is Verdict.NOTIFIED
    assert state(store) is State.RUNNING


def test_a_run_whose_time_has_come_is_not_parked(store: Store) -> None:
    start(store, owned("a"))
    write(store, sleep("a", NOW))
    assert apply(store, rest("a")) is Verdict.NOTIFIED
    done(store, rest("a", park=False))


@pytest.mark.parametrize("how", ["release", "retire"])
def test_a_waiting_run_whose_waits_are_over_loses_its_owner_as_ready(store: Store, how: str) -> None:
    """Its worker was about to record that it goes on."""
    start(store, owned("a"))
    write(store, receive("a"), run_state=State.WAITING)
    write(store, receive("a", completed=NOW, output="null", seq=0))
    if how == "release":
        done(store, release("a"))
    else:
        store.retire("w1", NOW, None)
    assert (state(store), get(store).owner) == (State.QUEUED, None)
    assert [each.run.id for each in claim(store, "w2")] == ["a"]


@pytest.mark.parametrize("how", ["release", "retire"])
def test_a_waiting_run_that_loses_its_owner_is_woken_in_time(store: Store, how: str) -> None:
    """A branch that began to wait after the run was recorded as waiting."""
    start(store, owned("a"))
    write(store, receive("a", "t0.0"), run_state=State.WAITING)
    write(store, sleep("a", NOW + SECOND, "t1.0"))
    if how == "release":
        done(store, release("a"))
    else:
        store.retire("w1", NOW, None)
    assert (state(store), get(store).due) == (State.WAITING, NOW + SECOND)


# -- runs that were claimed and not begun ------------------------------------------------------------------------------------
def test_a_run_that_was_not_begun_is_handed_back_as_if_never_claimed(store: Store) -> None:
    start(store, run("a"))
    (taken,) = claim(store)
    done(store, release("a", unbegun=taken.run.uid))
    found = get(store)
    assert (found.state, found.owner, found.started, found.attempt_started, found.attempts) == (
        State.QUEUED,
        None,
        None,
        None,
        0,
    )
    assert apply(store, release("a", unbegun=taken.run.uid)) is Verdict.DONE  # the answer was lost
    (again,) = claim(store, "w2")
    assert (again.run.epoch, again.run.is_continuation, again.run.attempts) == (2, False, 1)


def test_a_claim_is_not_handed_back_by_an_earlier_one_of_the_same_worker(store: Store) -> None:
    """The answer to a release was lost, the worker claims the run again, and then the release is repeated."""
    start(store, run("a"))
    (taken,) = claim(store)
    done(store, release("a", unbegun=taken.run.uid))
    (again,) = claim(store)
    assert apply(store, release("a", unbegun=taken.run.uid, epoch=taken.run.epoch)) is Verdict.FENCED
    assert (state(store), get(store).owner, get(store).epoch) == (State.RUNNING, "w1", again.run.epoch)


def test_a_run_that_went_on_and_is_handed_back_unbegun_goes_on_again(store: Store) -> None:
    start(store, owned("a"))
    done(store, release("a"))
    (taken,) = claim(store)
    assert taken.run.is_continuation
    done(store, release("a", unbegun=taken.run.uid, epoch=taken.run.epoch))
    (again,) = claim(store)
    assert (again.run.is_continuation, again.run.attempts, again.run.started) == (True, 1, taken.run.started)


def test_a_start_that_came_too_late_does_not_hand_back_the_run_that_has_its_id(store: Store) -> None:
    start(store, owned("a"))
    apply(store, release("a", unbegun="the uid of the other start"))
    assert (state(store), get(store).owner) == (State.RUNNING, "w1")


def test_a_run_that_is_being_cancelled_is_handed_back_to_be_undone(store: Store) -> None:
    start(store, owned("a"))
    write(store, step("a", kind="undo", name="undo"))
    store.cancel(["a"], "no longer wanted", NOW)
    done(store, release("a"))
    found = get(store)
    assert (found.state, found.owner, found.undo_reason) == (State.QUEUED, None, "no longer wanted")
