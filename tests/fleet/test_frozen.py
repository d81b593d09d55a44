"""A worker that stands still in the middle of a claim, with a queue locked: nobody waits for it for longer than a lease."""

from __future__ import annotations

import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import psycopg
import pytest

from mainspring import Settings
from mainspring.model.queues import Limits, Queue, Window
from mainspring.store.open import open_store
from tests.fleet import apps
from tests.fleet.conftest import connected
from tests.support.pgbouncer import BINARY, bouncer
from tests.support.processes import Fleet, eventually

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from mainspring import App
    from mainspring.store.protocol import Store
    from tests.support.postgres import PostgresServer
    from tests.support.processes import Process

pytestmark = pytest.mark.processes

LEASE = 2.0
BLOCKED = b"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
IDLE = b"""
  SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction' AND pid <> pg_backend_pid()
"""
STUCK = IDLE + b" AND now() - state_change > interval '0.7 s'"  # others are idle in a transaction for moments
NEEDS_BOUNCER = pytest.mark.skipif(BINARY is None, reason="PgBouncer is not installed (Debian: apt install pgbouncer)")


@pytest.fixture(params=["direct", pytest.param("pooled", marks=NEEDS_BOUNCER)])
def store_url(request: pytest.FixtureRequest, shared_postgres: PostgresServer, postgres_url: str) -> Iterator[str]:
    """The server itself, and the same behind a pooler that lends connections by transaction."""
    if request.param == "direct":
        yield postgres_url
        return
    name = postgres_url.split("?", maxsplit=1)[0].rsplit("/", 1)[1]
    with bouncer(shared_postgres.directory, name) as pooled:
        yield pooled


@pytest.fixture
def fleet(tmp_path: Path, store_url: str) -> Iterator[Fleet]:
    with Fleet(tmp_path, store_url, lease=LEASE, poll=0.5) as made:
        yield made


@pytest.fixture
def client(store_url: str) -> Iterator[App]:
    yield from connected(store_url)


@pytest.fixture
def store(client: App, store_url: str) -> Iterator[Store]:
    opened = open_store(store_url, Settings())
    opened.open()
    for name in ("busy", "other"):
        opened.queues.set(Queue(name, Limits(concurrency=5, rate=Window(1_000, 1_000_000)), created=1))
    yield opened
    opened.close()


@contextmanager
def operator(url: str) -> Generator[psycopg.Connection[tuple[int]]]:
    connection: psycopg.Connection[tuple[int]] = psycopg.connect(url)
    try:
        yield connection
    finally:
        connection.close()


def sees(url: str, what: bytes) -> bool:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(what).fetchone()
    return row is not None and row[0] != 0


async def freeze_in_a_claim(worker: Process, url: str) -> None:
    """Have the worker claim from a queue, and stop it when it has locked the queue and has not gone on to take a run.

    The lock on the table is met in the middle of what the claim sends. A connection that has never claimed before meets it
    earlier, when it prepares its statements: then once more.
    """
    for attempt in range(20):
        with operator(url) as other:
            other.execute(b"LOCK TABLE mainspring.queue_starts IN ACCESS EXCLUSIVE MODE")
            handle = await apps.three_steps.options(id=f"held-{attempt}", queue="busy").start(1)
            eventually(lambda: sees(url, BLOCKED), "the claim waits for the table")
            worker.freeze()
            other.rollback()
        with suppress(AssertionError):
            eventually(lambda: sees(url, IDLE), "the claim's transaction stands still", within=0.7)
            await apps.three_steps.options(id="first", queue="busy").start(1)
            return
        worker.thaw()
        await handle.result(timeout=20)
    raise AssertionError("it was never in the middle of a claim")


async def test_a_frozen_claim_holds_up_nobody_for_longer_than_a_lease(
    fleet: Fleet, client: App, store: Store, postgres_url: str
) -> None:
    frozen = fleet.worker()
    await freeze_in_a_claim(frozen, postgres_url)
    fleet.worker()
    assert await (await apps.three_steps.start(1)).result(timeout=20) == 4
    assert await (await apps.three_steps.options(queue="other").start(1)).result(timeout=20) == 4
    eventually(lambda: not sees(postgres_url, STUCK), "the server ends the transaction")
    assert await client.handle("first").result(timeout=20) == 4


async def test_a_worker_that_was_frozen_in_a_claim_goes_on_by_itself(
    fleet: Fleet, client: App, store: Store, postgres_url: str
) -> None:
    frozen = fleet.worker()
    await freeze_in_a_claim(frozen, postgres_url)
    healthy = fleet.worker()
    assert await client.handle("first").result(timeout=20) == 4
    eventually(lambda: {each.pid for each in store.workers()} == {healthy.pid}, "the frozen one is declared dead")
    frozen.thaw()
    eventually(lambda: frozen.pid in {each.pid for each in store.workers()}, "it enters the fleet again")
    healthy.kill()
    for number in range(3):
        handle = await apps.three_steps.options(id=f"later-{number}", queue="busy").start(1)
        assert await handle.result(timeout=20) == 4
    assert fleet.ledger.steps("first") == ["one", "two", "three"]


async def test_a_session_that_has_the_row_of_a_queue_holds_up_nothing(
    fleet: Fleet, client: App, store: Store, postgres_url: str
) -> None:
    """As an operator's that was left open, or a backup's: no timeout of ours ends it."""
    fleet.worker()
    with operator(postgres_url) as other:
        other.execute(b"SELECT 1 FROM mainspring.queues FOR UPDATE")
        assert await (await apps.three_steps.options(queue="busy").start(1)).result(timeout=20) == 4
        assert await (await apps.three_steps.start(1)).result(timeout=20) == 4
        second = fleet.worker()
        second.send(signal.SIGTERM)
        assert second.wait(10) == 0
