"""Whoever waits is told: in this process in detail, in others that something happened."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from mainspring.model.states import State
from mainspring.store.messages import Post
from mainspring.store.writes import Send
from tests.store.build import (
    NOW,
    apply,
    done,
    finish,
    owned,
    receive,
    release,
    rest,
    run,
    start,
    step,
    wait_for,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.store.changes import Signal
    from mainspring.store.protocol import Store

PATIENCE = 10


class Ear:
    """Hears, and lets a test wait until it has arrived what it wants to notify."""

    def __init__(self, store: Store) -> None:
        self._changed = threading.Condition()
        self.arrived: list[Signal] = []
        store.listen(self._notify)
        if store.url.startswith("postgres"):
            # Listening begins in the background, and begins with saying that anything may have happened before.
            self.wait(lambda signal: signal.notified is None)
            self.arrived.clear()

    def _notify(self, signal: Signal) -> None:
        with self._changed:
            self.arrived.append(signal)
            self._changed.notify_all()

    def wait(self, wanted: Callable[[Signal], bool]) -> Signal:
        def found() -> Signal | None:
            return next((signal for signal in self.arrived if wanted(signal)), None)

        with self._changed:
            assert self._changed.wait_for(lambda: found() is not None, PATIENCE), self.arrived
        signal = found()
        assert signal is not None
        return signal


def test_ones_own_writes_are_told_in_detail(store: Store) -> None:
    ear = Ear(store)
    start(store, run("a"))
    assert ear.wait(lambda signal: signal.ready and signal.ended == frozenset()).notified == frozenset()
    start(store, owned("b"))
    done(store, finish("b"))
    ear.wait(lambda signal: signal.ended == frozenset({"b"}))


def test_a_checkpoint_is_nobodys_business(store: Store, other: Store) -> None:
    start(store, owned("a"))
    mine, theirs = Ear(store), Ear(other)
    write(store, step("a", "0"))
    write(store, receive("a", "1"), run_state=State.WAITING)
    done(store, rest("a", park=False))
    start(store, run("b"))
    mine.wait(lambda signal: signal.ready)
    assert len(mine.arrived) == 1
    theirs.wait(lambda signal: signal.ready or bool(signal.started))
    if store.url.startswith("postgres"):
        assert len(theirs.arrived) == 1


@pytest.mark.parametrize("what", ["start", "start child", "park", "release", "retire", "wake"])
def test_all_that_makes_runs_ready_is_told_to_everybody(store: Store, other: Store, what: str) -> None:
    start(store, owned("a"), owned("b", "w2"))
    write(store, wait_for("b"), watch="b")
    if what == "wake":
        done(store, rest("a"))
    mine, theirs = Ear(store), Ear(other)
    match what:
        case "start":
            start(store, run("c"))
        case "start child":
            write(store, step("a", "1"), starts=[run("c")])
        case "park":
            done(store, rest("a"))
        case "release":
            done(store, release("a"))
        case "retire":
            store.retire("w1", NOW, None)
        case _:
            done(store, finish("b", "w2"))
    mine.wait(lambda signal: signal.ready)
    theirs.wait(lambda signal: signal.ready or bool(signal.started))


@pytest.mark.parametrize("what", ["finish", "cancel", "terminate", "expire", "retire"])
def test_every_end_is_told_to_everybody(store: Store, other: Store, what: str) -> None:
    start(store, owned("a") if what in {"finish", "retire"} else run("a", deadline=NOW))
    mine, theirs = Ear(store), Ear(other)
    match what:
        case "finish":
            done(store, finish("a"))
        case "cancel":
            store.cancel(["a"], None, NOW)
        case "terminate":
            store.terminate(["a"], None, NOW)
        case "expire":
            store.expire(NOW)
        case _:
            store.retire("w1", NOW, 0)
    mine.wait(lambda signal: signal.ended == frozenset({"a"}))
    theirs.wait(lambda signal: signal.ended is None)


@pytest.mark.parametrize("what", ["cancel", "terminate", "child"])
def test_a_poke_is_told_to_the_worker_it_is_for(store: Store, other: Store, what: str) -> None:
    start(store, owned("a", "w1"), owned("b", "w2"))
    write(store, wait_for("b"), watch="b")
    mine, theirs = Ear(store), Ear(other)
    match what:
        case "cancel":
            store.cancel(["a"], None, NOW)
        case "terminate":
            store.terminate(["a"], None, NOW)
        case _:
            done(store, finish("b", "w2"))
    assert mine.wait(lambda signal: bool(signal.notified)).notified == frozenset({"w1"})
    theirs.wait(lambda signal: signal.notified is None or "w1" in signal.notified)


def test_who_says_something_to_a_run_that_is_ready_has_claimers_look_again(store: Store, other: Store) -> None:
    """A claim that came by while its row was held has passed over it, and would otherwise not come again for a while."""
    start(store, run("a"))
    ear = Ear(other)
    apply(store, Send("a", [Post("a", "t", "1", NOW)]))
    ear.wait(lambda signal: signal.ready)
