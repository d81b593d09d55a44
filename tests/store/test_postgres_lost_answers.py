"""The line breaks after the server has committed and before anybody hears of it. Asked again, everything is as it should be."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, TypeVar

import pytest

from mainspring.errors import StoreUnavailable
from mainspring.model.states import State
from mainspring.store.postgres.store import PostgresStore
from tests.store.build import NOW, claim, done, finish, get, in_hand, request, rest, run, start, step, wait_for, write
from tests.store.proxies import BrokenLine
from tests.store.test_conformance_repetition import OPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mainspring.model.records import Run, Step
    from mainspring.store.protocol import Store


T = TypeVar("T")


@pytest.fixture
def line(postgres_url: str) -> Iterator[BrokenLine]:
    with BrokenLine(postgres_url) as made:
        yield made


@pytest.fixture
def store(line: BrokenLine) -> Iterator[Store]:
    """The store at the other end of the line."""
    made = PostgresStore(line.url, prepare=False)  # which would be requests of its own, and hide the ones that matter
    with closing(made):
        made.open()
        yield made


@pytest.fixture
def control(postgres_url: str) -> Iterator[Store]:
    """A store to which nothing happens, to compare with."""
    made = PostgresStore(postgres_url, schema="control")
    with closing(made):
        made.open()
        yield made


def again(attempt: Callable[[], T]) -> T:
    """What the committer does: try until it goes."""
    for _ in range(5):
        try:
            return attempt()
        except StoreUnavailable:
            continue
    raise AssertionError("it never went")


@pytest.mark.parametrize("answer", [1, 2, 3, 4])
@pytest.mark.parametrize("what", OPS)
def test_a_write_whose_answer_was_lost_is_made_again_with_the_same_answer(
    store: Store, control: Store, line: BrokenLine, what: str, answer: int
) -> None:
    def everything(of: Store) -> tuple[list[Run | None], list[Step]]:
        return [of.run(each) for each in ("a", "new", "a/0", "a/1")], of.steps("a")

    for each in (store, control):
        start(each, in_hand("a"), in_hand("b", "w2"))
        write(each, step("a", "9"))
    line.lose_answer(answer)
    assert again(lambda: store.apply([OPS[what]()], NOW)) == control.apply([OPS[what]()], NOW)
    line.lose_answer(0)
    assert everything(store) == everything(control)


def test_a_lost_answer_is_reported_as_such(store: Store, line: BrokenLine) -> None:
    line.lose_answer(1)
    with pytest.raises(StoreUnavailable):
        store.counts()
    assert store.counts() == {}


@pytest.mark.parametrize("answer", [1, 2, 3, 4])
def test_a_claim_whose_answer_was_lost_loses_no_run(store: Store, line: BrokenLine, answer: int) -> None:
    start(store, run("a"), run("b"), in_hand("c"))
    write(store, step("c"))
    done(store, rest("c", due=NOW))
    line.lose_answer(answer)
    claims = again(lambda: claim(store, "w1"))
    line.lose_answer(0)
    while len(claims) < 3:  # the server takes a moment to notice that whoever had locked them is gone
        claims += claim(store, "w1")
    found = {taken.run.id: taken.run.epoch for taken in claims}
    assert found == {"a": 1, "b": 1, "c": 2}
    assert [len(taken.steps) for taken in claims if taken.run.id == "c"] == [1]
    assert claim(store, "w1") == []


def test_a_claim_that_was_settled_does_not_take_more_than_there_is_room_for(store: Store, line: BrokenLine) -> None:
    start(store, *(run(f"r{number}") for number in range(5)))
    line.lose_answer(2)
    with pytest.raises(StoreUnavailable):
        store.claim(request(limit=2))
    taken = store.claim(request(limit=3))
    assert [each.run.id for each in taken.claims] == ["r0", "r1", "r2"]
    assert taken.more


def test_runs_that_were_taken_away_meanwhile_are_not_claimed_after_all(
    store: Store, line: BrokenLine, postgres_url: str
) -> None:
    start(store, run("a"))
    line.lose_answer(2)
    with pytest.raises(StoreUnavailable):
        claim(store, "w1")
    with closing(PostgresStore(postgres_url)) as other:
        other.retire("w1", NOW, None)
        assert len(claim(other, "w2")) == 1
    assert claim(store, "w1") == []
    assert get(store, "a").owner == "w2"


@pytest.mark.parametrize("answer", [1, 2, 3, 4])
def test_no_poke_is_lost_with_an_answer(store: Store, line: BrokenLine, answer: int) -> None:
    start(store, in_hand("a"), in_hand("b"))
    store.cancel(["a", "b"], "enough", NOW)
    line.lose_answer(answer)
    pokes = again(lambda: store.pokes("w1"))
    line.lose_answer(0)
    assert {poke.run for poke in pokes} == {"a", "b"}
    assert store.pokes("w1") == []


@pytest.mark.parametrize("verb", ["cancel", "terminate", "retire"])
@pytest.mark.parametrize("answer", range(1, 12))
def test_a_change_of_many_runs_happens_once_and_wakes_who_waits(
    store: Store, line: BrokenLine, verb: str, answer: int
) -> None:
    start(store, in_hand("p", "w9"), in_hand("a", "w1"), run("a/0", parent="a"))
    write(store, wait_for("a", "p"), owner="w9", watch="a", mood=State.WAITING)
    done(store, rest("p", "w9"))
    line.lose_answer(answer)
    match verb:
        case "cancel":
            again(lambda: store.cancel(["a"], "enough", NOW))
            again(lambda: store.apply([finish("a", "w1", state=State.CANCELLED, output=None)], NOW))
        case "terminate":
            again(lambda: store.terminate(["a"], "enough", NOW))
        case _:
            again(lambda: store.retire("w1", NOW, 0))
    line.lose_answer(0)
    assert get(store, "a").state.ended
    assert get(store, "p").state is State.QUEUED
    assert get(store, "a").epoch == (2 if verb == "terminate" else 1)
