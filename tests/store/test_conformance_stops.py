"""Cancelling and terminating: trees of runs, at once or by way of their workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mainspring.model.states import State
from mainspring.store.writes import Verdict
from tests.store.build import (
    NOW,
    SECOND,
    apply,
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
    write,
)

if TYPE_CHECKING:
    from mainspring.store.protocol import Store


def tree(store: Store) -> None:
    """A running root with children that are queued, parked, running and ended, and grandchildren."""
    start(
        store,
        owned("root"),
        run("root/0", parent="root"),
        owned("root/1", parent="root"),
        owned("root/2", "w2", parent="root"),
        owned("root/3", parent="root"),
        run("root/2/0", parent="root/2"),
        run("root/3/0", parent="root/3"),
        run("stranger"),
    )
    suspend(store, "root/1")
    done(store, finish("root/3"))


def test_what_nobody_has_in_hand_is_cancelled_at_once(store: Store) -> None:
    start(store, run("queued"), run("scheduled", state=State.SCHEDULED), owned("parked"))
    suspend(store, "parked")
    ids = ["queued", "scheduled", "parked"]
    assert store.cancel(ids, "enough", NOW + SECOND) == dict.fromkeys(ids, True)
    for each in ids:
        found = get(store, each)
        assert (found.state, found.reason, found.completed) == (State.CANCELLED, "enough", NOW + SECOND), each
    assert claim(store, now=NOW + SECOND) == []


def test_a_workflow_in_hand_is_asked_to_stop(store: Store) -> None:
    start(store, owned("a"), owned("b", state=State.WAITING))
    assert store.cancel(["a", "b"], "enough", NOW) == {"a": True, "b": True}
    for each in ("a", "b"):
        found = get(store, each)
        assert (found.state, found.reason, found.owner, found.completed) == (State.CANCELLING, "enough", "w1", None)
    assert {notice.run for notice in store.notices("w1")} == {"a", "b"}


@pytest.mark.parametrize("kind", ["step", "transaction"])
def test_the_record_of_a_step_at_top_level_is_cancelled_at_once_and_its_worker_cannot_change_that(
    store: Store, kind: str
) -> None:
    start(store, owned("a", kind=kind))
    assert store.cancel(["a"], None, NOW) == {"a": True}
    assert (state(store), get(store).owner) == (State.CANCELLED, None)
    assert apply(store, finish("a")) is Verdict.FENCED


def test_cancelling_reaches_all_descendants_and_nobody_else(store: Store) -> None:
    tree(store)
    assert store.cancel(["root"], "enough", NOW) == {"root": True}
    assert {each: state(store, each) for each in ("root", "root/0", "root/1", "root/2", "root/3")} == {
        "root": State.CANCELLING,
        "root/0": State.CANCELLED,
        "root/1": State.CANCELLED,
        "root/2": State.CANCELLING,
        "root/3": State.SUCCEEDED,
    }
    assert (state(store, "root/2/0"), state(store, "root/3/0")) == (State.CANCELLED, State.CANCELLED)
    assert state(store, "stranger") is State.QUEUED
    assert len(store.notices("w2")) == 1


def test_there_is_nothing_to_cancel_where_nothing_goes_on(store: Store) -> None:
    start(store, owned("ended"), owned("stopping"))
    done(store, finish("ended"))
    store.cancel(["stopping"], "first", NOW)
    assert store.cancel(["ended", "stopping", "nowhere"], "second", NOW) == {
        "ended": False,
        "stopping": False,
        "nowhere": False,
    }
    assert get(store, "stopping").reason == "first"
    assert store.cancel([], None, NOW) == {}


def test_a_child_that_is_started_after_its_parent_was_asked_to_stop_never_begins(store: Store) -> None:
    start(store, owned("a"))
    store.cancel(["a"], None, NOW)
    assert write(store, step("a"), starts=[run("a/0", parent="a")]).verdict is Verdict.STOPPING


def test_terminating_ends_a_tree_at_once_and_fences_its_workers_out(store: Store) -> None:
    tree(store)
    store.cancel(["root/2"], None, NOW)
    assert store.terminate(["root"], "now", NOW + SECOND) == {"root": True}
    for each in ("root", "root/0", "root/1", "root/2", "root/3/0"):
        assert state(store, each) is State.CANCELLED, each
    assert state(store, "root/3") is State.SUCCEEDED
    found = get(store, "root")
    assert (found.reason, found.completed, found.epoch) == ("now", NOW + SECOND, 2)
    assert write(store, step("root")).verdict is Verdict.FENCED
    assert apply(store, finish("root")) is Verdict.FENCED
    assert {notice.run for notice in store.notices("w1")} == {"root"}
    assert {notice.run for notice in store.notices("w2")} == {"root/2"}


def test_there_is_nothing_to_terminate_where_nothing_goes_on(store: Store) -> None:
    start(store, owned("ended"))
    done(store, finish("ended"))
    assert store.terminate(["ended", "nowhere"], None, NOW) == {"ended": False, "nowhere": False}


def test_a_terminated_run_is_not_recovered(store: Store) -> None:
    start(store, owned("a"))
    store.terminate(["a"], None, NOW)
    store.retire("w1", NOW, None)
    assert (state(store), get(store).owner) == (State.CANCELLED, None)
    assert claim(store) == []
