"""The fleet: living workers, lost ones, and what is taken out of their hands."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mainspring.model.states import State
from tests.store.build import (
    NOW,
    SECOND,
    claim,
    done,
    finish,
    get,
    owned,
    run,
    start,
    state,
    step,
    suspend,
    wait_for,
    worker,
    write,
)

if TYPE_CHECKING:
    from mainspring.store.protocol import Store


def test_workers_are_listed_oldest_first_with_all_that_is_known_of_them(store: Store) -> None:
    second, first = worker("w2", started=NOW + 1), worker("w1")
    store.register(second)
    store.register(first)
    assert [each.id for each in store.workers()] == ["w1", "w2"]
    found = store.workers()[0]
    assert (found.host, found.boot, found.pid, found.pid_start, found.version) == ("host", "boot", 7, 70, "v1")
    assert json.loads(found.functions) == {"wf": "print-1", "other": "print-2"}


def test_a_worker_may_register_twice(store: Store) -> None:
    store.register(worker())
    store.register(worker())
    assert len(store.workers()) == 1


def test_a_beat_grows_and_shows_the_fleet(store: Store, other: Store) -> None:
    store.register(worker("w1"))
    other.register(worker("w2"))
    fleet = store.beat("w1", NOW + 5)
    assert fleet is not None
    assert [(each.id, each.beat, each.seen) for each in fleet] == [("w1", 1, NOW + 5), ("w2", 0, NOW)]


def test_a_worker_that_was_declared_dead_learns_it_from_its_beat(store: Store) -> None:
    store.register(worker("w1"))
    assert store.retire("w1", NOW, None) == 0
    assert store.beat("w1", NOW) is None
    assert store.workers() == []


def test_a_lost_workers_running_runs_are_queued_again_and_count_a_recovery(store: Store) -> None:
    start(store, owned("a", "w1"), owned("b", "w2"))
    assert store.retire("w1", NOW, None) == 1
    found = get(store, "a")
    assert (found.state, found.owner, found.recoveries, found.epoch) == (State.QUEUED, None, 1, 1)
    assert state(store, "b") is State.RUNNING


def test_a_recovered_run_is_not_the_last_in_line(store: Store) -> None:
    start(store, owned("a", "w1"))
    write(store, step("a"), run_state=State.RUNNING)  # whose due time is far away
    store.retire("w1", NOW + SECOND, None)
    start(store, run("b", due=NOW + 2 * SECOND))
    assert [each.run.id for each in claim(store, now=NOW + 2 * SECOND)] == ["a", "b"]


def test_too_many_recoveries_end_a_run(store: Store) -> None:
    start(store, owned("a", "w0"))
    for number in range(3):
        assert state(store) is State.RUNNING
        store.retire(f"w{number}", NOW + number, 2)
        claim(store, f"w{number + 1}")
    found = get(store)
    assert (found.state, found.reason, found.completed) == (State.FAILED, "recovery exhausted", NOW + 2)
    assert "RunEnded" in (found.error or "")


def test_a_lost_workers_resting_runs_stay_waiting(store: Store) -> None:
    start(store, owned("a"))
    suspend(store, "a", park=False, due=NOW + SECOND)
    store.retire("w1", NOW, 0)
    found = get(store)
    assert (found.state, found.owner, found.due, found.recoveries) == (State.WAITING, None, NOW + SECOND, 0)


@pytest.mark.parametrize("finisher", ["w1", "w2"])
def test_a_lost_workers_resting_run_is_ready_if_what_it_waited_for_has_ended(store: Store, finisher: str) -> None:
    start(store, owned("a", "w1"), owned("b", finisher))
    write(store, wait_for("b"), watch="b", run_state=State.WAITING)
    done(store, finish("b", finisher))  # its own worker would have known without being notified
    store.retire("w1", NOW + SECOND, None)
    assert (state(store), get(store).due, get(store).recoveries) == (State.QUEUED, NOW + SECOND, 0)


def test_what_a_lost_worker_was_to_cancel_is_cancelled(store: Store) -> None:
    start(store, owned("a"))
    store.cancel(["a"], "enough", NOW)
    store.retire("w1", NOW + SECOND, None)
    found = get(store)
    assert (found.state, found.reason, found.completed, found.owner) == (State.CANCELLED, "enough", NOW + SECOND, None)


def test_pokes_tell_what_happened_and_only_once(store: Store) -> None:
    start(store, owned("a", "w1"), owned("b", "w1"), owned("c", "w2"))
    store.cancel(["a", "c"], "enough", NOW)
    (notice,) = store.notices("w1")
    assert (notice.run, notice.epoch, notice.state, notice.reason) == ("a", 1, State.CANCELLING, "enough")
    assert store.notices("w1") == []
    assert len(store.notices("w2")) == 1


def test_a_worker_can_look_at_everything_it_has_in_hand(store: Store) -> None:
    start(store, owned("a"), owned("b"), owned("c"), owned("d", "w2"), owned("e"), run("f"))
    suspend(store, "b", park=False)
    store.cancel(["c"], "enough", NOW)
    done(store, finish("e"))
    store.notices("w1")
    found = {notice.run: (notice.epoch, notice.state, notice.reason) for notice in store.owned("w1")}
    assert found == {
        "a": (1, State.RUNNING, None),
        "b": (1, State.WAITING, None),
        "c": (1, State.CANCELLING, "enough"),
    }


def test_the_poke_of_a_terminated_run_tells_the_epoch_that_fences_its_worker_out(store: Store) -> None:
    start(store, owned("a"))
    store.terminate(["a"], None, NOW)
    (notice,) = store.notices("w1")
    assert (notice.run, notice.epoch, notice.state) == ("a", 2, State.CANCELLED)
    assert get(store).owner is None
    assert store.retire("w1", NOW, None) == 0


def test_a_deadline_that_passes_ends_what_nobody_has_in_hand(store: Store) -> None:
    start(
        store,
        run("queued", deadline=NOW),
        run("scheduled", state=State.SCHEDULED, due=NOW + SECOND, deadline=NOW),
        owned("parked", deadline=NOW),
        owned("running", deadline=NOW),
        run("later", deadline=NOW + 1),
        run("never"),
    )
    suspend(store, "parked")
    assert store.expire(NOW) == 3
    for each in ("queued", "scheduled", "parked"):
        found = get(store, each)
        assert (found.state, found.reason, found.completed) == (State.CANCELLED, "timeout", NOW), each
    assert (state(store, "running"), state(store, "later")) == (State.RUNNING, State.QUEUED)
    assert store.expire(NOW) == 0


def test_a_run_that_no_live_worker_can_continue_is_stranded_and_says_why(store: Store) -> None:
    store.register(worker("w1", functions='{"wf": "new"}'))
    start(store, run("a", fingerprint="old", version="v0"), run("b", workflow="gone", fingerprint="x"), run("c"))
    start(store, run("d", fingerprint="new"))
    assert store.strand({"wf": "new"}) == 2
    assert store.strand({"wf": "new"}) == 0
    reasons = {each: json.loads(get(store, each).blocked or "{}").get("reason", "") for each in "abcd"}
    assert "the source of wf has changed" in reasons["a"]
    assert "v0" in reasons["a"]
    assert reasons["b"] == "no live worker knows gone; if it was renamed, declare it with name='gone'"
    assert (reasons["c"], reasons["d"]) == ("", "")


def test_another_functions_fingerprint_does_not_save_a_run_from_being_stranded(store: Store) -> None:
    store.register(worker("w1", functions='{"wf": "new", "other": "old"}'))
    start(store, run("a", fingerprint="old"))
    assert store.strand({"wf": "new", "other": "old"}) == 1


def test_a_stranded_run_goes_on_when_a_worker_with_its_source_appears(store: Store) -> None:
    start(store, run("a", fingerprint="old"))
    assert store.strand({"wf": "new"}) == 1
    (taken,) = claim(store, functions={"wf": "old"})
    assert taken.run.blocked is None


def test_a_version_is_remembered_from_when_it_was_first_seen(store: Store) -> None:
    store.remember_version("v1", NOW)
    store.remember_version("v1", NOW + SECOND)
    store.remember_version("v2", NOW)
    assert store.versions.first_seen() == {"v1": NOW, "v2": NOW}


def test_workers_that_own_runs_without_being_in_the_fleet_are_found(store: Store) -> None:
    store.register(worker("w1"))
    start(store, owned("a", "w1"), owned("b", "gone"))
    assert store.orphaned() == ["gone"]
    store.retire("gone", NOW, None)
    assert store.orphaned() == []
