"""Behind PgBouncer in transaction mode: no session state is relied on, and polling does what LISTEN cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mainspring.errors import RunCancelled
from tests.fleet import apps
from tests.support.audit import audit
from tests.support.load import Load, drained
from tests.support.pgbouncer import BINARY, bouncer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainspring import App
    from mainspring.store.protocol import Store
    from tests.support.postgres import PostgresServer
    from tests.support.processes import Fleet

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(BINARY is None, reason="PgBouncer is not installed (Debian: apt install pgbouncer)"),
]


@pytest.fixture
def store_url(shared_postgres: PostgresServer) -> Iterator[str]:
    with shared_postgres.database() as direct:
        name = direct.split("?", maxsplit=1)[0].rsplit("/", 1)[1]
        with bouncer(shared_postgres.directory, name) as pooled:
            yield pooled


@pytest.fixture
def lease() -> float:
    return 2


async def test_two_workers_and_a_client_behind_pgbouncer(fleet: Fleet, client: App, store: Store) -> None:
    first, second = fleet.workers(2)
    first.says("LISTEN does not work")
    async with Load() as load:
        await load.reaches(40)
        second.kill()
        fleet.worker()
        await load.reaches(80)
    await drained(store)
    findings = audit(fleet.ledger, store, load.acknowledged)
    assert not findings.faults, findings

    sleeping = await apps.sleeper.start(3600)
    assert await sleeping.cancel(reason="enough")
    with pytest.raises(RunCancelled, match="enough"):
        await sleeping.result(timeout=60)
    assert await apps.three_steps(1) == 4
