"""A claim takes from a busy queue in the round trip in which it looks: the database decides how many, by the limits under the lock."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Barrier
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from mainspring.model.queues import Limits, Queue, Window
from mainspring.store.open import open_store
from mainspring.store.postgres.libpq import Wire
from tests.store.build import NOW, SECOND, StoreSettings, apply, finish, request, run, start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mainspring.store.protocol import Claimed, Store

WORKERS, LIMIT, JOBS = 4, 5, 120


@pytest.fixture
def store(postgres_url: str) -> Iterator[Store]:
    with closing(open_store(postgres_url, StoreSettings())) as made:
        made.open()
        yield made


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many round trips were made since this was last asked."""
    made, execute = Counter[str](), Wire.execute

    def counted(self: Wire, *asked: Any) -> Any:
        made["trips"] += 1
        return execute(self, *asked)

    monkeypatch.setattr(Wire, "execute", counted)
    return lambda: made.pop("trips", 0)


def make(store: Store, name: str = "q", **limits: Any) -> None:
    store.queues.set(Queue(name, Limits(**limits), created=NOW))


def fill(store: Store, count: int = 20, queue: str = "q", id_from: int = 0, **changes: Any) -> None:
    numbers = range(id_from, id_from + count)
    start(store, *(run(f"{queue}{n}", uid=f"{queue}{n:04d}", queue=queue, **changes) for n in numbers))


def take(store: Store, limit: int = 3, worker: str = "w1", **changes: Any) -> Claimed:
    return store.claim(request(worker, limit, **changes))


def ids(claimed: Claimed) -> list[str]:
    return [each.run.id for each in claimed.claims]


@pytest.mark.parametrize("limits", [{}, {"concurrency": 8}], ids=["without a limit", "with one"])
def test_a_claim_from_a_busy_queue_is_one_round_trip(store: Store, trips: Callable[[], int], limits: Any) -> None:
    make(store, **limits)
    fill(store)
    assert ids(take(store)) == ["q0", "q1", "q2"]
    trips()
    second = take(store)
    assert (ids(second), trips(), second.more) == (["q3", "q4", "q5"], 1, True)
    third = take(store)
    assert trips() == 1
    if limits:
        assert (ids(third), third.held) == (["q6", "q7"], True)
        assert (ids(take(store)), trips()) == ([], 1)
        apply(store, finish("q0"))
        trips()
        assert (ids(take(store)), trips()) == (["q8"], 1)
    else:
        assert (ids(third), third.held) == (["q6", "q7", "q8"], False)


@pytest.mark.parametrize("limits", [{}, {"concurrency": 8}], ids=["without a limit", "with one"])
def test_a_claim_of_a_run_that_was_announced_is_one_round_trip(
    store: Store, trips: Callable[[], int], limits: Any
) -> None:
    make(store, **limits)
    fill(store, 1)
    assert ids(take(store)) == ["q0"]
    fill(store, 1, id_from=1)
    trips()
    assert (ids(take(store, announced=frozenset({"q"}))), trips()) == (["q1"], 1)
    assert ids(take(store, announced=frozenset({"q", "unknown"}))) == []


def test_runs_of_partitions_that_were_announced_are_claimed_at_once(store: Store) -> None:
    make(store, concurrency=8)
    fill(store, 1)
    take(store)
    start(store, run("p0", uid="p0", queue="q", partition="p"))
    first = take(store, announced=frozenset({"q"}))
    assert ids(first) == ["p0"] or (first.passed and ids(take(store)) == ["p0"])


def test_a_queue_that_is_announced_all_the_time_leaves_slots_to_others(store: Store) -> None:
    make(store, concurrency=40)
    make(store, "rated", rate=Window(10, SECOND))
    fill(store, 1)
    take(store)
    fill(store, 20, id_from=1)
    fill(store, 5, queue="rated")
    found = Counter(each[0] for _ in range(3) for each in ids(take(store, limit=4, announced=frozenset({"q"}))))
    assert found["r"] >= 3


def test_what_a_worker_may_have_in_memory_is_kept(store: Store) -> None:
    make(store, worker_concurrency=4)
    fill(store)
    assert len(ids(take(store))) == 3
    second = take(store, mine={"q": {"": 3}})
    assert (len(ids(second)), second.short) == (1, True)


def test_runs_without_a_queue_leave_the_rest_of_the_room(store: Store) -> None:
    make(store)
    fill(store)
    take(store)
    start(store, run("p", uid="p"))
    found = ids(take(store, limit=4))
    assert ("p" in found, len(found)) == (True, 4)


def test_busy_queues_share_the_room(store: Store, trips: Callable[[], int]) -> None:
    for name in ("q", "x", "empty"):
        make(store, name, concurrency=50)
    fill(store)
    fill(store, queue="x")
    take(store, limit=6)
    trips()
    found = Counter(each[0] for each in ids(take(store, limit=6)))
    assert (found, trips()) == ({"q": 3, "x": 3}, 1)


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        ({"concurrency": 4}, 1),
        ({"concurrency": 1}, 0),
        ({"rate": Window(2, SECOND)}, 2),
        ({"partition_concurrency": 5}, 2),
        ({"worker_concurrency": 5}, 2),
    ],
)
def test_limits_that_changed_since_the_last_claim_hold(store: Store, limits: Any, most: int) -> None:
    make(store, concurrency=40)
    fill(store)
    assert len(ids(take(store))) == 3
    make(store, **limits)
    assert len(ids(take(store, limit=10, mine={"q": {"": 3}}))) == most


def test_a_queue_that_was_paused_since_the_last_claim_gives_nothing(store: Store) -> None:
    make(store, concurrency=40)
    fill(store)
    take(store)
    store.queues.pause("q", paused=True)
    assert ids(take(store)) == []
    store.queues.pause("q", paused=False)
    assert len(ids(take(store))) == 3


def test_a_partition_with_limits_of_its_own_since_the_last_claim_keeps_them(store: Store) -> None:
    make(store, concurrency=40)
    fill(store)
    take(store)
    store.queues.set_partition("q", "", Limits(partition_concurrency=4))
    assert len(ids(take(store, limit=10))) == 1


def test_partitions_that_come_to_a_busy_queue_have_their_turn(store: Store) -> None:
    make(store, concurrency=40)
    fill(store, 40)
    take(store, limit=4)
    start(store, *(run(f"p{n}", uid=f"p{n}", queue="q", partition=f"p{n}") for n in range(2)))
    found = [each for _ in range(2) for each in ids(take(store, limit=6))]
    assert {"p0", "p1"} <= set(found)


def test_runs_of_partitions_alone_in_a_busy_queue_are_left_to_a_claim_that_follows_at_once(store: Store) -> None:
    make(store, concurrency=40)
    fill(store, 4)
    assert take(store, limit=3).more
    start(store, run("p0", uid="p0", queue="q", partition="p"))
    second = take(store, limit=3)
    assert (ids(second), second.passed) == (["q3"], True)
    assert ids(take(store, limit=3)) == ["p0"]


def test_a_queue_that_another_claim_has_locked_is_passed_over_and_then_waited_for(
    store: Store, postgres_url: str
) -> None:
    make(store, concurrency=40)
    fill(store)
    take(store)
    key = "hashtextextended('mainspring.q', 7290116)"
    with psycopg.connect(postgres_url) as session:
        session.execute(f"SELECT pg_advisory_xact_lock({key})".encode())
        locked = take(store)
        assert (ids(locked), locked.passed) == ([], True)
    assert len(ids(take(store))) == 3


def test_workers_that_claim_at_once_never_exceed_a_limit(postgres_url: str, store: Store) -> None:
    make(store, concurrency=LIMIT)
    fill(store, JOBS)
    together = Barrier(WORKERS)
    stores = [open_store(postgres_url, StoreSettings()) for _ in range(WORKERS)]

    def work(number: int) -> list[str]:
        taken: list[str] = []
        together.wait()
        while "q" in (counts := store.queues.counts()) and counts["q"].ready:
            claims = stores[number].claim(request(f"w{number}", LIMIT)).claims
            found = store.queues.counts().get("q")
            assert found is None or found.under_way <= LIMIT
            taken += [each.run.id for each in claims]
            for each in claims:
                apply(stores[number], finish(each.run.id, f"w{number}"))
        return taken

    try:
        with ThreadPoolExecutor(WORKERS) as pool:
            found = [each for taken in pool.map(work, range(WORKERS)) for each in taken]
    finally:
        for each in stores:
            each.close()
    assert sorted(found) == sorted(f"q{n}" for n in range(JOBS))
