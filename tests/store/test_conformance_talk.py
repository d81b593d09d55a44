"""What is said and received in batches: each write for itself, all of them together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from mainspring.model.runs import Step, StepKind
from mainspring.model.states import State
from mainspring.store.messages import Entry, Post, Reply
from mainspring.store.writes import DiscardOutcome, RecordAndSend, Recorded, RecordStep, Send, Verdict
from tests.store.build import NOW, SECOND, apply, done, finish, get, owned, rest, run, start, state, step, write
from tests.support.samples import covering

if TYPE_CHECKING:
    from mainspring.store.messages import Outgoing
    from mainspring.store.protocol import Store


def post(run_id: str, body: int, **changes: Any) -> Post:
    return replace(Post(run_id, "t", str(body), NOW), **changes)


def tell(run_id: str, *bodies: int) -> Send:
    return Send(run_id, [post(run_id, body) for body in bodies])


def says(made: Step, *what: Outgoing, owner: str = "w1", **more: Any) -> RecordAndSend:
    return RecordAndSend(owner, made, outgoing=list(what), **more)


def listens(run_id: str, kind: StepKind = "receive", to: str | None = None, name: str = "t") -> Step:
    """A step that waits to notify something."""
    return Step(run_id, "0", kind, name, started=NOW, epoch=1, child=to or run_id)


def bodies(store: Store, run_id: str) -> list[str]:
    return [message.body for message in store.messages.received(run_id)]


# -- together ----------------------------------------------------------------------------------------------------------
def test_many_talk_at_once_and_each_message_has_its_place(store: Store) -> None:
    start(store, *(owned(f"r{number}") for number in range(20)))
    ops = [tell(f"r{number % 20}", number) for number in range(100)]
    assert store.apply(ops, NOW) == [Recorded()] * 100
    for number in range(20):
        there = store.messages.received(f"r{number}")
        assert [message.number for message in there] == list(range(5))
        assert [message.body for message in there] == [str(each) for each in range(number, 100, 20)]


def test_of_writes_that_talk_each_learns_what_became_of_it_alone(store: Store) -> None:
    start(store, owned("a"), owned("b"), owned("c"), owned("stopped"), run("ready"))
    store.cancel(["stopped"], None, NOW)
    write(store, step("c", "0"))
    answers = store.apply(
        [
            says(step("a", "0"), post("ready", 1)),
            says(step("b", "0", epoch=7), post("ready", 2)),
            says(step("c", "0", epoch=1, seq=9), post("ready", 3)),
            says(step("stopped", "0"), post("ready", 4)),
            Send("nowhere", [post("nowhere", 5)]),
            Send("ready", [post("ready", 6), post("nowhere", 7)]),
            Send("a", [Entry("events", "a", "e", "8", NOW)], owner="w1", epoch=1),
            Send("b", [Entry("events", "b", "e", "9", NOW)], owner="w1", epoch=7),
            tell("ready", 10),
        ],
        NOW,
    )
    assert answers == [
        Recorded(),
        Recorded(Verdict.FENCED),
        Recorded(Verdict.FENCED),
        Recorded(stopping=True),
        Recorded(Verdict.UNKNOWN, unknown=["nowhere"]),
        Recorded(Verdict.UNKNOWN, unknown=["nowhere"]),
        Recorded(),
        Recorded(Verdict.FENCED),
        Recorded(),
    ]
    assert sorted(bodies(store, "ready")) == ["1", "10", "4"]
    assert [entry.value for entry in store.messages.event("a", "e").entries] == ["8"]
    assert store.messages.event("b", "e").entries == []
    assert [each.output for each in store.steps("c")] == ['{"ok": true}']
    assert store.steps("b") == []


def test_a_write_that_talks_made_again_says_nothing_twice(store: Store) -> None:
    start(store, owned("a"), owned("b"), owned("c"))
    once = says(step("a", "0"), post("c", 1), Entry("streams", "a", "s", "1", NOW, "0"))
    for _ in range(3):
        assert store.apply([once, says(step("b", "0"), post("c", 2))], NOW) == [Recorded(), Recorded()]
    assert sorted(bodies(store, "c")) == ["1", "2"]
    assert len(store.messages.streams("a", 10)) == 1


def test_a_key_that_was_had_before_is_not_stored_again_in_any_company(store: Store) -> None:
    start(store, owned("a"))
    keyed = [Send("a", [post("a", number, key="k")]) for number in range(3)]
    assert store.apply([*keyed, tell("a", 9)], NOW) == [Recorded()] * 4
    assert store.apply([Send("a", [post("a", 5, key="k")]), tell("a", 10)], NOW) == [Recorded()] * 2
    assert bodies(store, "a") == ["0", "9", "10"]


def test_everything_that_can_be_said_is_said_in_one_batch(store: Store) -> None:
    start(store, owned("a"), owned("b"), owned("c"))
    apply(store, Send("b", [post("b", 1, question=True, key="q")]))
    answers = store.apply(
        [
            says(step("a", "0"), post("c", 1), post("a", 2), Entry("events", "a", "e", "3", NOW, "0")),
            says(step("b", "0"), Reply("b", 0, "t", "4", None, NOW), Entry("streams", "b", "s", "5", NOW, "0")),
            tell("c", 6),
        ],
        NOW,
    )
    assert answers == [Recorded()] * 3
    assert (bodies(store, "a"), sorted(bodies(store, "c"))) == (["2"], ["1", "6"])
    asked, _ = store.messages.asked("b", "q")
    assert asked is not None
    assert (asked.answer, asked.answered) == ("4", NOW)
    assert [entry.value for entry in store.messages.stream("b", "s", 0, 10).entries] == ["5"]


# -- receiving ---------------------------------------------------------------------------------------------------------
def test_messages_are_received_in_batches_and_the_runs_go_on(store: Store) -> None:
    ids = [f"r{number}" for number in range(10)]
    start(store, *map(owned, ids))
    for each in ids:
        write(store, listens(each), run_state=State.WAITING)
    store.apply([tell(each, 1, 2) for each in ids], NOW)
    received = [
        RecordAndSend(
            "w1", replace(listens(each), seq=0, output="1", completed=NOW), run_state=State.RUNNING, due=NOW, takes=0
        )
        for each in ids
    ]
    assert store.apply(received, NOW + SECOND) == [Recorded()] * 10
    for each in ids:
        assert [message.received for message in store.messages.received(each)] == [NOW + SECOND, None]
        following = store.messages.next(each, "t", question=False, skip=())
        assert following is not None
        assert following.body == "2"
        assert store.messages.next(each, "t", question=False, skip={following.number}) is None
        assert state(store, each) is State.RUNNING


@pytest.mark.parametrize("others", [0, 3])
def test_a_message_whose_receipt_was_never_seen_is_the_next_ones(store: Store, others: int) -> None:
    ids = ["a", *(f"r{number}" for number in range(others))]
    start(store, *map(owned, ids))
    for each in ids:
        apply(store, tell(each, 1))
        done(store, RecordAndSend("w1", replace(listens(each), seq=0, output="1", completed=NOW), takes=0))
    assert store.messages.next("a", "t", question=False, skip=()) is None
    assert store.apply([DiscardOutcome("w1", each, 1, "0") for each in ids], NOW) == [Verdict.DONE] * len(ids)
    for each in ids:
        again = store.messages.next(each, "t", question=False, skip=())
        assert again is not None
        assert again.body == "1"


# -- being woken -------------------------------------------------------------------------------------------------------
WAITS: dict[str, Outgoing] = {
    "receive": post("b", 1),
    "question": post("b", 1, question=True),
    "event": Entry("events", "b", "t", "1", NOW),
    "stream": Entry("streams", "b", "t", "1", NOW),
    "answer": Reply("b", 0, "t", "1", None, NOW),
}


@covering
@pytest.mark.parametrize("kind", WAITS)
@pytest.mark.parametrize("parked", [False, True])
def test_who_waits_for_what_a_batch_says_is_woken(store: Store, kind: StepKind, *, parked: bool) -> None:
    start(store, owned("a"), owned("b"), owned("c"))
    if kind == "answer":
        apply(store, Send("b", [post("b", 1, question=True)]))
    waiter = "b" if kind in {"receive", "question"} else "a"
    write(store, listens(waiter, kind, to="b"), run_state=State.WAITING)
    if parked:
        done(store, rest(waiter))
    assert store.apply([Send("b", [WAITS[kind]]), tell("c", 1)], NOW) == [Recorded(), Recorded()]
    if parked:
        assert state(store, waiter) is State.QUEUED
    else:
        assert [notice.run for notice in store.notices("w1")] == [waiter]


def test_who_asks_a_run_that_has_ended_learns_it_and_does_not_rest(store: Store) -> None:
    start(store, owned("a"), owned("b"), owned("c"))
    done(store, finish("b"))
    asks = [
        says(listens(each, "answer", to="b"), post("b", 1, question=True), watch="b", run_state=State.WAITING)
        for each in ("a", "c")
    ]
    for answer in store.apply(asks, NOW):
        assert isinstance(answer, Recorded)
        assert answer.verdict is Verdict.DONE
        assert answer.ending is not None
        assert answer.ending.output == "42"
    assert state(store, "a") is State.RUNNING
    still = says(listens("a", "answer", to="c"), post("c", 1, question=True), watch="c", run_state=State.WAITING)
    still.step.position = "1"
    assert apply(store, still) == Recorded()
    assert (state(store, "a"), get(store).due) == (State.WAITING, None)


def test_what_is_said_goes_with_other_writes_of_the_same_batch(store: Store) -> None:
    start(store, owned("a"), owned("b"))
    answers = store.apply([RecordStep("w1", step("a")), tell("a", 1), says(step("b"), post("a", 2)), finish("b")], NOW)
    assert answers == [Recorded(), Recorded(), Recorded(), Verdict.DONE]
    assert sorted(bodies(store, "a")) == ["1", "2"]
