"""PostgreSQL goes away and comes back under load: work pauses and resumes, nothing is lost and nothing recorded is repeated."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from mainspring.errors import StoreUnavailable
from tests.fleet import apps
from tests.support.audit import audit
from tests.support.load import Load, drained

if TYPE_CHECKING:
    from mainspring import App
    from mainspring.store.protocol import Store
    from tests.support.postgres import PostgresServer, Shutdown
    from tests.support.processes import Fleet

pytestmark = [
    pytest.mark.processes,
    pytest.mark.parametrize("own_postgres", [{"fsync": False}], indirect=True),
]


@pytest.fixture
def store_url(own_postgres: PostgresServer) -> str:
    return own_postgres.create_database()


@pytest.fixture
def lease() -> float:
    return 2


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_a_restart_under_load_loses_and_repeats_nothing(
    own_postgres: PostgresServer, fleet: Fleet, client: App, store: Store, mode: Shutdown
) -> None:
    fleet.workers(2)
    async with Load() as load:
        for reached in (20, 60):
            await load.reaches(reached)
            await asyncio.to_thread(own_postgres.stop, mode)
            await load.is_refused()
            await asyncio.to_thread(own_postgres.start)
        await load.reaches(100)
    await drained(store)
    findings = audit(fleet.ledger, store, load.acknowledged)
    assert not findings.faults, findings
    assert load.refused > 0


async def test_connections_that_are_cut_under_load_are_made_again(
    own_postgres: PostgresServer, fleet: Fleet, client: App, store: Store, store_url: str
) -> None:
    fleet.workers(2)
    cut = 0
    async with Load() as load:
        for reached in range(10, 160, 10):
            await load.reaches(reached)
            cut += await asyncio.to_thread(own_postgres.terminate_backends, store_url)
    await drained(store)
    findings = audit(fleet.ledger, store, load.acknowledged)
    assert not findings.faults, findings
    assert cut > 30


async def test_an_outage_longer_than_the_lease_makes_nobody_a_zombie(
    own_postgres: PostgresServer, fleet: Fleet, client: App, store: Store
) -> None:
    """No worker could beat, so no silence means anything."""
    lease = 0.6
    workers = fleet.workers(2, lease=lease)
    handles = [await apps.gated.options(id=f"r{n}").start("middle") for n in range(6)]
    for n in range(6):
        fleet.wait_for_step(f"r{n}", "gate-middle")
    own_postgres.stop()
    await asyncio.sleep(2.5 * lease)
    own_postgres.start()
    for worker in workers:
        await beats(store, worker.pid)
    fleet.open_gate("middle")
    for handle in handles:
        await handle.result(timeout=60)
    assert {(await handle.describe()).recoveries for handle in handles} == {0}
    assert all("declared dead" not in worker.output for worker in workers)


async def test_a_call_while_the_database_is_away_fails_with_words_and_works_when_it_is_back(
    own_postgres: PostgresServer, fleet: Fleet, client: App, store: Store
) -> None:
    fleet.worker()
    handle = await apps.gated.options(id="r").start("middle")
    fleet.wait_for_step("r", "gate-middle")
    waiting = asyncio.create_task(handle.result(timeout=60))
    await asyncio.sleep(0.3)  # by then it does wait
    own_postgres.stop()
    for call in (apps.three_steps.start(1), handle.describe(), handle.cancel()):
        with pytest.raises(StoreUnavailable, match=r"postgresql://.* cannot be used now"):
            async with asyncio.timeout(30):
                await call
    own_postgres.start()
    fleet.open_gate("middle")
    assert await apps.three_steps(1) == 4
    await waiting  # somebody who waited all the time


async def test_an_app_that_has_never_connected_says_so_and_connects_later(
    own_postgres: PostgresServer, client: App, fleet: Fleet
) -> None:
    own_postgres.stop()
    with pytest.raises(StoreUnavailable, match="cannot be used now"):
        async with asyncio.timeout(30):
            await apps.three_steps.start(1)
    worker = fleet.start_worker()  # it waits for the database
    worker.says("retrying")
    own_postgres.start()
    assert await (await apps.three_steps.start(1)).result(timeout=60) == 4


async def test_the_first_call_after_a_restart_does_not_trip_over_a_connection_from_before(
    own_postgres: PostgresServer, fleet: Fleet, client: App
) -> None:
    fleet.worker()
    assert await apps.three_steps(1) == 4
    own_postgres.stop()
    own_postgres.start()
    assert await apps.three_steps(2) == 5


async def beats(store: Store, pid: int) -> None:
    """Wait until a worker is seen to live."""
    first: int | None = None
    async with asyncio.timeout(60):
        while True:
            try:
                beat = next(worker.beat for worker in store.workers() if worker.pid == pid)
            except StoreUnavailable:
                beat = None
            if first is not None and beat is not None and beat != first:
                return
            first = first if first is not None else beat
            await asyncio.sleep(0.02)
