"""An acknowledgement can be lost after the commit: then a write is made again, and must answer as it did the first time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mainspring.model.states import State
from mainspring.store.writes import DiscardOutcome, Recorded, RecordStep, Start, Started, Verdict
from tests.store.build import (
    NOW,
    SECOND,
    apply,
    claim,
    done,
    finish,
    get,
    owned,
    release,
    request,
    rest,
    run,
    sleep,
    start,
    state,
    step,
    suspend,
    wait_for,
    worker,
    write,
)
from tests.support.samples import covering

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.store.changes import Signal
    from mainspring.store.protocol import Store
    from mainspring.store.writes import Op

OPS: dict[str, Callable[[], Op]] = {
    "start": lambda: Start(run("new")),
    "start in hand": lambda: Start(owned("new")),
    "begin": lambda: RecordStep("w1", step("a", seq=None, output=None, completed=None)),
    "complete": lambda: RecordStep("w1", step("a")),
    "start children": lambda: RecordStep("w1", step("a"), starts=[run("a/0", parent="a"), owned("a/1")]),
    "call": lambda: RecordStep("w1", wait_for("a/0"), starts=[run("a/0")], watch="a/0", run_state=State.WAITING),
    "watch": lambda: RecordStep("w1", wait_for("b"), watch="b", run_state=State.WAITING, due=NOW + SECOND),
    "run_state": lambda: RecordStep("w1", step("a"), run_state=State.WAITING),
    "void": lambda: DiscardOutcome("w1", "a", 1, "9"),
    "rest": lambda: rest("a", park=False),
    "park": lambda: rest("a", park=True),
    "release": lambda: release("a"),
    "release waiting": lambda: release("a"),
    "strand": lambda: release("a", blocked='{"version": "v1", "reason": "differs"}'),
    "finish": lambda: finish("a"),
    "fail": lambda: finish("a", state=State.FAILED, output=None, error="{}"),
}


@covering
@pytest.mark.parametrize("what", OPS)
@pytest.mark.parametrize("company", [False, True])
def test_a_write_made_again_answers_as_the_first_time_and_changes_nothing(
    store: Store, what: str, company: bool
) -> None:
    start(store, owned("a"), owned("b", "w2"), owned("c"))
    write(store, step("a", "9"))
    if what in {"rest", "park", "release waiting"}:
        write(store, sleep("a", NOW + SECOND, "8"), run_state=State.WAITING if what == "release waiting" else None)

    def batch(number: int) -> list[Op]:
        return [OPS[what](), *([RecordStep("w1", step("c", str(number)))] if company else [])]

    first = store.apply(batch(0), NOW)
    after = [store.run(each) for each in ("a", "new", "a/0", "a/1")], store.steps("a")
    assert store.apply(batch(1), NOW + 5) == first
    assert ([store.run(each) for each in ("a", "new", "a/0", "a/1")], store.steps("a")) == after


def test_a_whole_batch_made_again_answers_as_the_first_time(store: Store) -> None:
    start(store, *(owned(f"r{number}") for number in range(6)))
    write(store, step("r4", "9"))
    write(store, sleep("r2"))

    def batch() -> list[Op]:
        begun = step("r5", seq=None, output=None, completed=None)
        return [
            Start(run("new")),
            RecordStep("w1", step("r0")),
            RecordStep("w1", wait_for("r1/0", "r1"), starts=[run("r1/0")], watch="r1/0", run_state=State.WAITING),
            rest("r2"),
            finish("r3"),
            DiscardOutcome("w1", "r4", 1, "9"),
            RecordStep("w1", begun),
            RecordStep("w1", step("r5")),
        ]

    first = store.apply(batch(), NOW)
    assert not any(isinstance(answer, Exception) for answer in first)
    assert store.apply(batch(), NOW) == first


def test_a_start_made_again_still_made_the_run_when_somebody_has_taken_it_meanwhile(store: Store) -> None:
    start(store, run("a"))
    claim(store)
    assert apply(store, Start(run("a"))) == Started(created=True, workflow="wf", state=State.RUNNING)


def test_children_that_began_are_not_denied_because_the_run_was_cancelled_meanwhile(store: Store) -> None:
    start(store, owned("a"))
    op = RecordStep("w1", step("a"), starts=[run("a/0", parent="a")])
    done(store, op)
    store.cancel(["a"], None, NOW)
    assert apply(store, op) == Recorded(stopping=True)
    assert apply(store, RecordStep("w1", step("a", "1"), starts=[run("a/1", parent="a")])) == Recorded(Verdict.STOPPING)


def test_an_end_made_again_is_told_again(store: Store) -> None:
    arrived: list[Signal] = []
    start(store, owned("a"))
    done(store, finish("a"))
    store.listen(arrived.append)
    done(store, finish("a"))
    assert any(signal.ended and "a" in signal.ended for signal in arrived)


def test_parking_made_again_does_not_take_a_run_from_whoever_has_it_now(store: Store) -> None:
    start(store, owned("a"))
    suspend(store, "a", due=NOW + 1)
    claim(store, "w2", now=NOW + 1)
    assert apply(store, rest("a")) is Verdict.FENCED
    assert (state(store), get(store).owner) == (State.RUNNING, "w2")


def test_verbs_can_simply_be_made_again(store: Store) -> None:
    start(store, owned("a"), run("b"))
    store.register(worker())
    store.register(worker())
    assert store.cancel(["a"], None, NOW) == {"a": True}
    store.cancel(["a"], None, NOW)
    assert store.terminate(["b"], None, NOW) == {"b": True}
    store.terminate(["b"], None, NOW)
    assert (store.retire("w1", NOW, None), store.retire("w1", NOW, None)) == (1, 0)
    store.claim(request())
    assert (state(store, "a"), state(store, "b")) == (State.CANCELLED, State.CANCELLED)
