"""Streaming replication: a standby can be read, and takes over when the primary is gone."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import quote

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from mainspring import Settings
from mainspring.errors import StoreUnavailable
from mainspring.store.open import open_store
from tests.support.audit import audit
from tests.support.load import Load, drained
from tests.support.postgres import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainspring.store.protocol import Store
    from tests.support.processes import Fleet

pytestmark = pytest.mark.processes
STREAMING = {
    "wal_level": "replica",
    "max_wal_senders": "2",
    "max_wal_size": "256MB",
    "synchronous_standby_names": "standby1",
    "synchronous_commit": "local",  # until there is one
}


@pytest.fixture
def primary() -> Iterator[PostgresServer]:
    with PostgresServer(fsync=False, settings=STREAMING) as server:
        yield server


@pytest.fixture
def database(primary: PostgresServer) -> str:
    return str(conninfo_to_dict(primary.create_database())["dbname"])


@pytest.fixture
def standby(primary: PostgresServer, database: str) -> Iterator[PostgresServer]:
    with closing(primary.standby()) as server:
        server.start()
        yield server


@pytest.fixture
def store_url(primary: PostgresServer, standby: PostgresServer, database: str) -> str:
    """Whichever of the two accepts writes."""
    primary.settings["synchronous_commit"] = "remote_apply"
    primary.stop()
    primary.start()
    hosts = quote(f"{primary.directory},{standby.directory}", safe="")
    return f"postgresql://postgres@/{database}?host={hosts}&target_session_attrs=read-write"


@pytest.fixture
def lease() -> float:
    return 2


async def test_a_standby_is_read_and_promoted_and_has_all_that_was_acknowledged(
    primary: PostgresServer, standby: PostgresServer, database: str, fleet: Fleet, store: Store
) -> None:
    fleet.workers(2)
    async with Load() as load:
        await load.reaches(20)
        with closing(open_store(standby.url(database), Settings())) as copy:
            copy.open(migrate=False)
            assert copy.run(load.acknowledged[-1]) is not None
            with pytest.raises(StoreUnavailable, match="promoted"):
                copy.cancel(load.acknowledged, None, 0)
        await asyncio.to_thread(primary.stop, "immediate")
        await load.is_refused()
        with psycopg.connect(standby.url(), autocommit=True) as admin:
            assert admin.execute("SELECT pg_promote()").fetchone() == (True,)
        await load.reaches(60)
    await drained(store)
    findings = audit(fleet.ledger, store, load.acknowledged)
    assert not findings.faults, findings
