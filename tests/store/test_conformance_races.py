"""Two processes at once: whatever the order in which their writes meet, nobody waits for what has happened already."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING, TypeVar

import pytest

from mainspring.model.states import State
from mainspring.store.writes import Recorded, RecordStep, Verdict
from tests.store.build import NOW, claim, finish, get, owned, request, rest, run, start, state, step, wait_for, write
from tests.support.samples import of

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.store.protocol import Store

pytestmark = pytest.mark.sampled
ROUNDS = of(60, 20)
A = TypeVar("A")
B = TypeVar("B")


def at_once(first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
    """Do both at the same moment."""
    barrier = Barrier(2)

    def begin(work: Callable[[], A] | Callable[[], B]) -> A | B:
        barrier.wait()
        return work()

    with ThreadPoolExecutor(2) as pool:
        one, two = pool.submit(begin, first), pool.submit(begin, second)
        return one.result(30), two.result(30)  # type: ignore[return-value]  # each gives what its own function gives


def rounds(once: Callable[[int], None]) -> None:
    """Do it again and again: what can go wrong depends on who is faster."""
    for number in range(ROUNDS):
        once(number)


def test_a_wait_that_begins_and_the_end_it_waits_for_never_miss_each_other(store: Store, other: Store) -> None:
    @rounds
    def _(number: int) -> None:
        parent, child = f"p{number}", f"c{number}"
        start(store, owned(parent, "w1"), owned(child, "w2"))
        begun, ended = at_once(
            lambda: write(store, wait_for(child, parent), watch=child, run_state=State.WAITING),
            lambda: other.apply([finish(child, "w2")], NOW),
        )
        assert (begun.verdict, ended) == (Verdict.DONE, [Verdict.DONE])
        notified = {notice.run for notice in store.notices("w1")}
        assert begun.ending is not None or parent in notified, number


def test_parking_and_the_end_that_is_waited_for_never_miss_each_other(store: Store, other: Store) -> None:
    @rounds
    def _(number: int) -> None:
        parent, child = f"p{number}", f"c{number}"
        start(store, owned(parent, "w1"), owned(child, "w2"))
        write(store, wait_for(child, parent), watch=child, run_state=State.WAITING)
        parked, ended = at_once(
            lambda: store.apply([rest(parent)], NOW)[0],
            lambda: other.apply([finish(child, "w2")], NOW)[0],
        )
        assert ended is Verdict.DONE
        found = get(store, parent)
        if parked is Verdict.DONE:
            assert (found.state, found.owner) == (State.QUEUED, None)
        else:
            assert (parked, found.owner) == (Verdict.NOTIFIED, "w1")
            assert parent in {notice.run for notice in store.notices("w1")}


def test_a_takeover_and_a_checkpoint_never_miss_each_other(store: Store, other: Store) -> None:
    @rounds
    def _(number: int) -> None:
        name = f"r{number}"
        start(store, owned(name, "zombie"))

        def take_over() -> list[str]:
            other.retire("zombie", NOW, None)
            return [each.name for taken in claim(other, "w2") for each in taken.steps]

        written, seen = at_once(lambda: write(store, step(name), owner="zombie"), take_over)
        assert (written.verdict is Verdict.DONE) == (seen == ["charge"]), number
        assert (written.verdict is Verdict.FENCED) == (seen == []), number
        other.apply([finish(name, "w2", epoch=2)], NOW)


def test_a_cancel_and_a_start_of_a_child_never_miss_each_other(store: Store, other: Store) -> None:
    @rounds
    def _(number: int) -> None:
        parent = f"p{number}"
        start(store, owned(parent))
        written, _ = at_once(
            lambda: write(store, step(parent), starts=[run(f"{parent}/0", parent=parent)]),
            lambda: other.cancel([parent], None, NOW),
        )
        assert state(store, parent) is State.CANCELLING
        if written.verdict is Verdict.DONE:
            assert state(store, f"{parent}/0") is State.CANCELLED
        else:
            assert (written.verdict, store.run(f"{parent}/0")) == (Verdict.STOPPING, None)


def test_a_cancel_and_a_claim_never_miss_each_other(store: Store, other: Store) -> None:
    @rounds
    def _(number: int) -> None:
        name = f"r{number}"
        start(store, run(name))
        claimed, cancelled = at_once(
            lambda: store.claim(request(limit=1)).claims,
            lambda: other.cancel([name], None, NOW),
        )
        assert cancelled == {name: True}
        assert state(store, name) is (State.CANCELLING if claimed else State.CANCELLED)
        assert [notice.run for notice in store.notices("w1")] == [taken.run.id for taken in claimed]


def test_an_end_and_a_cancel_agree_on_one_end(store: Store, other: Store) -> None:
    @rounds
    def _(number: int) -> None:
        name = f"r{number}"
        start(store, owned(name))
        ended, cancelled = at_once(
            lambda: store.apply([finish(name)], NOW)[0],
            lambda: other.cancel([name], None, NOW),
        )
        assert (ended is Verdict.DONE) == (state(store, name) is State.SUCCEEDED)
        assert (ended is Verdict.STOPPING) == cancelled[name]


def test_two_parents_of_different_workers_hear_of_the_end_they_share(store: Store, other: Store) -> None:
    chance = random.Random(7)

    @rounds
    def _(number: int) -> None:
        names = [f"p{number}-{each}" for each in range(6)]
        start(store, owned(f"c{number}", "w9"), *(owned(name, "w1") for name in names))
        chance.shuffle(names)
        begun, _ = at_once(
            lambda: store.apply(
                [
                    RecordStep("w1", wait_for(f"c{number}", name), watch=f"c{number}", run_state=State.WAITING)
                    for name in names
                ],
                NOW,
            ),
            lambda: other.apply([finish(f"c{number}", "w9")], NOW),
        )
        notified = {notice.run for notice in store.notices("w1")}
        for name, answer in zip(names, begun, strict=True):
            assert isinstance(answer, Recorded)
            assert answer.ending is not None or name in notified
