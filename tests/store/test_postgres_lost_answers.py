"""The line breaks after the server has committed and before anybody awaits of it. Asked again, everything is as it should be."""

from __future__ import annotations

import contextlib
from contextlib import closing
from typing import TYPE_CHECKING, TypeVar

import pytest

from mainspring.errors import StoreUnavailable
from mainspring.model.states import State
from mainspring.store.postgres.store import PostgresStore
from tests.store.build import NOW, claim, done, finish, get, owned, rest, run, start, step, suspend, wait_for, write
from tests.store.proxies import BrokenLine
from tests.store.test_conformance_repetition import OPS
from tests.support.samples import covering

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mainspring.model.runs import Run, Step
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


@covering
@pytest.mark.parametrize("answer", [1, 2, 3, 4])
@pytest.mark.parametrize("what", OPS)
def test_a_write_whose_answer_was_lost_is_made_again_with_the_same_answer(
    store: Store, control: Store, line: BrokenLine, what: str, answer: int
) -> None:
    def everything(of: Store) -> tuple[list[Run | None], list[Step]]:
        return [of.run(each) for each in ("a", "new", "a/0", "a/1")], of.steps("a")

    for each in (store, control):
        start(each, owned("a"), owned("b", "w2"))
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
def test_what_a_claim_took_whose_answer_was_lost_is_in_hand(store: Store, line: BrokenLine, answer: int) -> None:
    start(store, run("a"), run("b"), owned("c"))
    write(store, step("c"))
    suspend(store, "c", due=NOW + 1)
    line.lose_answer(answer)
    with contextlib.suppress(StoreUnavailable):
        claim(store, "w1", now=NOW + 1)
    line.lose_answer(0)
    while len(store.owned("w1")) < 3:  # the server takes a moment to notice that whoever had locked them is gone
        claim(store, "w1", now=NOW + 1)
    assert {taken.run: taken.epoch for taken in store.owned("w1")} == {"a": 1, "b": 1, "c": 2}
    assert claim(store, "w1", now=NOW + 1) == []


@pytest.mark.parametrize("answer", [1, 2, 3, 4])
def test_what_pokes_told_when_the_answer_was_lost_is_seen_in_hand(store: Store, line: BrokenLine, answer: int) -> None:
    start(store, owned("a"), owned("b"))
    store.cancel(["a", "b"], "enough", NOW)
    line.lose_answer(answer)
    with contextlib.suppress(StoreUnavailable):
        store.notices("w1")
    line.lose_answer(0)
    found = {notice.run: (notice.state, notice.reason) for notice in store.owned("w1")}
    assert found == dict.fromkeys(("a", "b"), (State.CANCELLING, "enough"))


@covering
@pytest.mark.parametrize("verb", ["cancel", "terminate", "retire"])
@pytest.mark.parametrize("answer", range(1, 12))
def test_a_change_of_many_runs_happens_once_and_wakes_who_waits(
    store: Store, line: BrokenLine, verb: str, answer: int
) -> None:
    start(store, owned("p", "w9"), owned("a", "w1"), run("a/0", parent="a"))
    write(store, wait_for("a", "p"), owner="w9", watch="a", run_state=State.WAITING)
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
