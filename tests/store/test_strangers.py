"""Runs whose functions a worker does not know are in nobody's way: neither in the order of its own, nor in the time that takes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from mainspring.model.queues import Limits, Queue
from mainspring.store.open import open_store
from tests.store.build import NOW, StoreSettings, request, run, start
from tests.support.samples import covering

if TYPE_CHECKING:
    from mainspring.model.runs import NewRun
    from mainspring.store.protocol import Claimed, Store

pytestmark = pytest.mark.empty_database

MINE = {"wf": "print-1", "other": "print-2"}
MANY = 3_000


def take(store: Store, limit: int = 3) -> Claimed:
    return store.claim(request("w1", limit, functions=MINE))


def ids(claimed: Claimed) -> list[str]:
    return [each.run.id for each in claimed.claims]


def strange(count: int, **changes: Any) -> list[NewRun]:
    """Runs of functions that the worker does not know, before all others in every order."""
    return [run(f"s{n}", uid=f"0{n:05d}", workflow="strange", priority=-1, **changes) for n in range(count)]


def acquaint(store: Store) -> None:
    """A claim finds none of them."""
    assert take(store).claims == []


@covering
@pytest.mark.parametrize("queue", [None, "q"])
@pytest.mark.parametrize("spread", ["evenly", "one function first", "at random"])
def test_runs_of_many_functions_are_taken_in_their_order(store: Store, queue: str | None, spread: str) -> None:
    """A claim merges the first runs of all functions, of which it does not read them all."""
    store.queues.set(Queue("q", created=NOW))
    chance = random.Random(3)
    functions = {f"f{number:02}": "print" for number in range(12)}
    made: list[NewRun] = []
    for number in range(240):
        of = {"evenly": number % 12, "one function first": max(0, number - 150) % 12, "at random": chance.randrange(12)}
        due, priority = (number, 0) if spread != "at random" else (chance.randrange(50), chance.randrange(3))
        values = {"workflow": f"f{of[spread]:02}", "due": NOW - 1_000 + due, "priority": priority}
        made.append(run(f"r{number:03}", uid=f"{number:03}", queue=queue, **values))
    start(store, *made, *strange(3, queue=queue))
    found: list[str] = []
    while claims := store.claim(request("w1", 35, functions=functions)).claims:
        found += [each.run.id for each in claims]
        assert len(claims) == min(35, 240 - len(found) + len(claims)), "as many as there is room for"
    assert found == [each.id for each in sorted(made, key=lambda each: (each.priority, each.due, each.uid))]


@pytest.mark.parametrize("queue", [None, "q"])
def test_what_a_worker_knows_is_taken_in_its_order_past_what_it_does_not_know(store: Store, queue: str | None) -> None:
    store.queues.set(Queue("q", created=NOW))
    start(store, *strange(5, queue=queue))
    acquaint(store)
    start(
        store,
        run("c", uid="3", queue=queue, workflow="other"),
        run("a", uid="2", queue=queue, priority=-2),
        run("d", uid="4", queue=queue),
        run("b", uid="5", queue=queue, due=NOW - 1, workflow="other"),
        run("e", uid="6", queue=queue, priority=3),
    )
    first = take(store)
    assert (ids(first), first.more) == (["a", "b", "c"], True)
    second = take(store)
    assert (ids(second), second.more) == (["d", "e"], False)
    assert ids(take(store)) == []


def test_with_strangers_about_partitions_have_their_turns_and_limits(store: Store) -> None:
    store.queues.set(Queue("q", Limits(partition_concurrency=1), created=NOW))
    store.queues.set(Queue("full of strangers", Limits(concurrency=1), created=NOW))
    start(store, *strange(3, queue="full of strangers"), *(strange(9, queue="q", partition="p0")[3:]))
    acquaint(store)
    start(
        store,
        *(run(f"{p}{n}", uid=f"{p}{n}", queue="q", partition=p) for p in ("p0", "p1", "p2", "") for n in range(2)),
    )
    assert sorted(ids(take(store, 10))) == ["0", "p00", "p10", "p20"]
    assert ids(take(store, 10)) == []


def test_functions_that_become_known_are_taken(store: Store) -> None:
    start(store, *strange(2), run("a", uid="9"))
    acquaint_and_take = [ids(take(store)), ids(take(store))]
    assert acquaint_and_take == [["a"], []]
    start(store, run("b", uid="8"))
    knowing = store.claim(request("w1", 5, functions=MINE | {"strange": "print-3"}))
    assert ids(knowing) == ["s0", "s1", "b"]


@pytest.mark.parametrize("queue", [None, "q"])
def test_on_sqlite_a_claim_does_not_look_at_them(sqlite_url: str, queue: str | None) -> None:
    def effort(count: int) -> int:
        """How much a claim does, in hundreds of instructions of the database's machine."""
        store: Any = open_store(f"{sqlite_url}-{count}", StoreSettings())
        store.open()
        store.queues.set(Queue("q", Limits(concurrency=50), created=NOW))
        start(store, *strange(count, queue=queue), run("a", uid="9", queue=queue))
        done = 0

        def step() -> None:
            nonlocal done
            done += 1

        store._db._writer.execute("ANALYZE")
        store._db._writer.set_progress_handler(step, 100)
        assert ids(take(store)) == ["a"]
        store.close()
        return done

    assert effort(MANY) <= effort(10) + 20


@pytest.mark.parametrize("queue", [None, "q"])
def test_on_postgres_a_claim_does_not_look_at_them(postgres_url: str, queue: str | None) -> None:
    store = open_store(postgres_url, StoreSettings())
    store.open()
    store.queues.set(Queue("q", Limits(concurrency=50), created=NOW))
    start(store, *strange(MANY, queue=queue))
    store.close()
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("ANALYZE")
    before = _looked_at(postgres_url)
    store = open_store(postgres_url, StoreSettings())
    store.open()
    for number in range(3):
        start(store, run(f"a{number}", uid=f"9{number}", queue=queue))
        # The first claim of a store looks at all of them, to learn that they are there.
        assert ids(take(store)) == [f"a{number}"]
    store.close()
    assert _looked_at(postgres_url) - before < 2 * MANY


def _looked_at(url: str) -> int:
    """How many rows of runs were read, once all connections have ended and their figures are there."""
    with psycopg.connect(url, autocommit=True) as db:
        others = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        while db.execute(others).fetchone():
            pass
        query = "SELECT coalesce(idx_tup_fetch, 0) + seq_tup_read FROM pg_stat_user_tables WHERE relname = 'runs'"
        row = db.execute(query).fetchone()
        assert row is not None
        return int(row[0])
