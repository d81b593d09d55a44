"""Runs that leave a database and come into another one: as of one moment, and whatever has to go on there goes on."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, cast

import pytest

from mainspring.errors import NotFound
from mainspring.model.runs import Step
from mainspring.model.states import State
from mainspring.store.messages import Entry, Post
from mainspring.store.open import open_store
from mainspring.store.writes import Send
from tests.store.build import (
    NOW,
    SECOND,
    StoreSettings,
    claim,
    done,
    finish,
    get,
    owned,
    receive,
    rest,
    run,
    sleep,
    start,
    state,
    step,
    suspend,
    wait_for,
    write,
)
from tests.support.samples import covering

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from mainspring.store.protocol import Store
    from mainspring.store.transaction import Script
    from tests.support.postgres import PostgresServer

LATER = NOW + 60 * SECOND


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store on a database of its own."""
    with contextlib.ExitStack() as stack:
        if request.param == "sqlite":
            url = f"sqlite:///{tmp_path / 'target.db'}"
        else:
            server = cast("PostgresServer", request.getfixturevalue("shared_postgres"))
            url = stack.enter_context(server.database())
        made = open_store(url, StoreSettings())
        made.open()
        stack.callback(made.close)
        yield made


def move(store: Store, target: Store, *ids: str) -> None:
    target.management.load(store.management.dump(ids), LATER)


# -- what is woken -----------------------------------------------------------------------------------------------------
def waiting_in_hand(store: Store, wait: Step) -> None:
    """A run that waits, whose worker keeps it."""
    start(store, owned("a"))
    write(store, wait)
    done(store, rest("a", park=False))
    assert state(store) is State.WAITING


@covering
@pytest.mark.parametrize("kind", ["message", "event", "stream", "end"])
def test_a_run_goes_on_whose_worker_had_not_looked_at_what_it_waited_for(
    store: Store, target: Store, kind: Any
) -> None:
    start(store, owned("b"))
    if kind == "message":
        wait = receive()
    elif kind == "end":
        wait = wait_for("b")
    else:
        wait = Step("a", "0", kind, "news", started=NOW, epoch=1, child="b")
    waiting_in_hand(store, wait)
    if kind == "message":
        done(store, Send("a", [Post("a", "news", "1", NOW)]))
    elif kind == "end":
        done(store, finish("b"))
    else:
        done(store, Send("b", [Entry("events" if kind == "event" else "streams", "b", "news", "1", NOW)]))
    move(store, target, "a", "b")
    found = get(target)
    assert (found.state, found.owner, found.due) == (State.QUEUED, None, LATER)
    assert "a" in [each.run.id for each in claim(target, now=LATER)]


def test_a_run_whose_wait_is_not_over_goes_on_waiting(store: Store, target: Store) -> None:
    waiting_in_hand(store, sleep(due=LATER + SECOND))
    start(store, owned("b"))
    suspend(store, "b")
    move(store, target, "a", "b")
    assert (get(target).state, get(target).due, get(target).owner) == (State.WAITING, LATER + SECOND, None)
    assert (state(target, "b"), get(target, "b").due) == (State.WAITING, None)
    assert claim(target, now=LATER) == []
    assert [each.run.id for each in claim(target, now=LATER + SECOND)] == ["a"]


def test_a_run_that_waits_for_one_that_is_loaded_later_is_woken_by_it(store: Store, target: Store) -> None:
    start(store, owned("b"))
    waiting_in_hand(store, wait_for("b"))
    move(store, target, "a")
    assert state(target) is State.WAITING
    done(store, finish("b"))
    move(store, target, "b")
    assert (state(target), state(target, "b")) == (State.QUEUED, State.SUCCEEDED)


def test_a_run_that_was_running_is_queued(store: Store, target: Store) -> None:
    start(store, owned("a"), run("later", state=State.SCHEDULED, due=LATER + SECOND))
    move(store, target, "a", "later")
    assert (get(target).state, get(target).owner) == (State.QUEUED, None)
    assert (get(target, "later").state, get(target, "later").due) == (State.SCHEDULED, LATER + SECOND)


def test_a_run_that_was_to_begin_in_the_turn_of_a_schedule_begins(store: Store, target: Store) -> None:
    start(store, run("a", state=State.SCHEDULED, due=None))
    move(store, target, "a")
    assert [each.run.id for each in claim(target, now=LATER)] == ["a"]


def test_a_run_that_was_being_cancelled_undoes_what_it_owes_or_is_cancelled(store: Store, target: Store) -> None:
    start(store, owned("a"), owned("owes"))
    write(store, step("owes", "0", kind="undo"))
    store.cancel(["a", "owes"], "enough", NOW)
    assert (state(store), state(store, "owes")) == (State.CANCELLING, State.CANCELLING)
    move(store, target, "a", "owes")
    assert (get(target).state, get(target).reason, get(target).completed) == (State.CANCELLED, "enough", LATER)
    owes = get(target, "owes")
    assert (owes.state, owes.undo_reason, owes.completed) == (State.QUEUED, "enough", None)


# -- one moment --------------------------------------------------------------------------------------------------------
def test_an_export_is_of_one_moment(store: Store, other: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    start(store, owned("a"), owned("a/0", parent="a"), owned("b"))
    transactor: Any = store.management._transactor  # pyright: ignore[reportPrivateUsage]
    snapshot = transactor.snapshot

    def end_all() -> None:
        done(other, finish("a/0"))
        write(other, step("a", "0"))
        done(other, finish("a"))
        done(other, finish("b"))

    def disturbed(script: Script[Any], ids: Sequence[str]) -> Any:
        def work() -> Script[Any]:
            """After the first read everything changes."""
            rows = yield next(script)
            end_all()
            while True:
                try:
                    statement = script.send(rows)
                except StopIteration as over:
                    return over.value
                rows = yield statement

        return snapshot(work(), ids)

    monkeypatch.setattr(transactor, "snapshot", disturbed)
    records = store.management.dump(["a", "b"])
    assert [(each["table"], each["id"], each["state"]) for each in records] == [
        ("runs", "a", "running"),
        ("runs", "a/0", "running"),
        ("runs", "b", "running"),
    ]
    monkeypatch.undo()
    assert [each.get("state") for each in store.management.dump(["a"])] == ["succeeded", None, "succeeded"]


def test_of_runs_that_are_not_there_nothing_is_exported(store: Store) -> None:
    start(store, run("a"))
    with pytest.raises(NotFound, match="'gone'"):
        store.management.dump(["a", "gone"])
