"""How many connections a process opens to PostgreSQL: a limit, a share for the library, and idle ones that are closed."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, closing
from typing import TYPE_CHECKING

import psycopg
import pytest

from mainspring import App, Settings, Tx
from mainspring.errors import StoreUnavailable
from mainspring.store.external.tx import Wants
from mainspring.store.postgres import slots
from mainspring.store.postgres.store import PostgresStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mainspring.store.external.transactions import Session

DEFAULT_SERVER = 100 - 3
"""What `max_connections` of a server with default settings leaves to roles that are no superusers."""
_OPEN = b"""
  SELECT count(*) FROM pg_stat_activity
  WHERE datname = current_database() AND application_name LIKE 'mainspring %' AND backend_type = 'client backend'
"""


def opened(url: str) -> int:
    """The connections of all apps and stores of this process, as the server counts them."""
    with psycopg.connect(url) as connection:
        row = connection.execute(_OPEN).fetchone()
    assert row is not None
    return int(row[0])


def until(condition: Callable[[], bool]) -> None:
    while not condition():
        threading.Event().wait(0.01)


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    """One for the listener, one for the library, two for transactions."""
    made = PostgresStore(postgres_url, connections=4)
    with closing(made):
        made.open()
        yield made


def test_transactions_beyond_the_limit_wait_and_the_library_has_its_own_share(
    store: PostgresStore, postgres_url: str
) -> None:
    inside, most, go = 0, 0, threading.Event()
    lock, two = threading.Lock(), threading.Semaphore(0)

    def work(session: Session) -> int:
        nonlocal inside, most
        tx = session.give(Wants.TX)
        with lock:
            inside += 1
            most = max(most, inside)
        two.release()
        assert go.wait(20)
        store.counts()  # while it holds one connection, it needs another
        with lock:
            inside -= 1
        return int(tx.execute("SELECT 7").fetchone()[0])

    with ThreadPoolExecutor(10) as pool:
        futures = [pool.submit(store.transactions.transact, work) for _ in range(10)]
        for _ in range(2):
            assert two.acquire(timeout=20)
        assert store.counts() == {}
        assert opened(postgres_url) <= 3
        go.set()
        assert [future.result(20) for future in futures] == [7] * 10
    assert most == 2


def test_the_smallest_limit_does_not_deadlock_either(postgres_url: str) -> None:
    store = PostgresStore(postgres_url, connections=3)

    def work(_: Session) -> dict[str, int]:
        return store.counts()

    with closing(store), ThreadPoolExecutor(8) as pool:
        store.open()
        assert list(pool.map(store.transactions.transact, [work] * 16)) == [{}] * 16


def test_waiting_for_a_connection_ends_with_an_error_that_names_the_setting(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "WAIT_SECONDS", 0.05)

    def deeper(depth: int) -> Callable[[Session], None]:
        def work(_: Session) -> None:
            store.transactions.transact(deeper(depth + 1))  # as somebody else's on another thread

        return work

    with pytest.raises(StoreUnavailable, match=r"2 are used by transactions.*4 are allowed; raise the setting `conn"):
        store.transactions.transact(deeper(0))
    assert store.transactions.transact(lambda _: "free again") == "free again"


async def test_an_awaited_transaction_that_is_cancelled_while_it_waits_leaves_its_turn_to_the_next(
    store: PostgresStore,
) -> None:
    go, begun = asyncio.Event(), asyncio.Semaphore(0)

    async def hold(_: Session) -> str:
        begun.release()
        await go.wait()
        return "done"

    holding = [asyncio.ensure_future(store.transactions.atransact(hold, Wants.PSYCOPG_ASYNC)) for _ in range(2)]
    for _ in range(2):
        await begun.acquire()
    gone, patient = (asyncio.ensure_future(store.transactions.atransact(hold, Wants.PSYCOPG_ASYNC)) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    go.set()
    assert await asyncio.gather(*holding, patient) == ["done"] * 3


def test_calls_of_the_library_share_a_connection_unless_they_meet_all_the_time(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "MOMENT", 60.0)
    with closing(PostgresStore(postgres_url)) as store, ThreadPoolExecutor(2) as pool:
        store.open()
        for counting in [pool.submit(store.counts) for _ in range(4)]:
            counting.result()
        assert opened(postgres_url) == 1
        for sleeping in [pool.submit(store._transactor.execute, "SELECT pg_sleep(0.002)") for _ in range(100)]:
            sleeping.result()
        assert opened(postgres_url) == 2


def test_idle_connections_of_one_kind_make_room_for_another(store: PostgresStore, postgres_url: str) -> None:
    meet = threading.Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        for waiting in [pool.submit(store.transactions.transact, lambda _: meet.wait(20)) for _ in range(2)]:
            waiting.result()
    assert opened(postgres_url) == 3
    asyncio.run(_awaited(store))
    assert opened(postgres_url) <= 3


async def _awaited(store: PostgresStore) -> None:
    async def nothing(_: Session) -> None: ...

    await asyncio.gather(*(store.transactions.atransact(nothing, Wants.PSYCOPG_ASYNC) for _ in range(4)))


async def test_a_worker_returns_to_two_connections_and_45_idle_ones_fit_a_default_server(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "IDLE_SECONDS", 0.2)
    monkeypatch.setattr(slots, "MOMENT", 1.0)  # polls and heartbeats share one, also on a machine that is busy
    seen: list[int] = []
    apps = [App(postgres_url, settings=Settings(connections=8)) for _ in range(3)]

    @apps[0].transaction
    def count(tx: Tx) -> int:
        seen.append(tx.execute("SELECT pg_backend_pid()").fetchone()[0])
        return len(seen)

    async with AsyncExitStack() as stack:
        for app in apps:
            await stack.enter_async_context(app)
        handles = await apps[0].start_many(count.bind() for _ in range(64))
        await apps[0].gather(*handles)
        assert len(set(seen)) <= 5
        await asyncio.to_thread(until, lambda: opened(postgres_url) == 2 * len(apps))
        idle = opened(postgres_url) // len(apps)
    assert 45 * idle <= DEFAULT_SERVER
