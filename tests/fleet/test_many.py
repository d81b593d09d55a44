"""Many processes at once: on a database that is not there yet, at a common backlog, and within their limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fleet import apps

if TYPE_CHECKING:
    from mainspring import App
    from mainspring.store.protocol import Store
    from tests.support.ledger import Entry
    from tests.support.processes import Fleet

pytestmark = pytest.mark.processes
RUNS = 200


async def test_eight_processes_migrate_a_fresh_database_at_once(fleet: Fleet) -> None:
    script = "from tests.fleet import apps; apps.app._runtime.connection(); apps.app.close()"
    processes = [fleet.process("-c", script) for _ in range(8)]
    assert [process.wait() for process in processes] == [0] * 8


async def test_eight_processes_do_two_hundred_runs_each_effect_once(fleet: Fleet, client: App, store: Store) -> None:
    handles = await client.start_many(apps.three_steps.options(id=f"r{n}").bind(n) for n in range(RUNS))
    workers = fleet.workers(8, concurrency=5, lease=20)
    more = [await apps.three_blocking_steps.options(id=f"b{n}").start(n) for n in range(20)]
    assert [await handle.result(timeout=60) for handle in handles] == [n + 3 for n in range(RUNS)]
    assert [await handle.result(timeout=60) for handle in more] == [n + 3 for n in range(20)]

    times = fleet.ledger.times()
    assert len(times) == (RUNS + 20) * 3
    assert set(times.values()) == {1}
    assert len({entry.pid for entry in fleet.ledger.entries()}) > 1
    assert {worker.pid for worker in store.workers()} == {worker.pid for worker in workers}


async def test_a_worker_never_has_more_runs_in_hand_than_it_was_told(fleet: Fleet, client: App) -> None:
    fleet.worker(concurrency=3)
    handles = await client.start_many(apps.occupant.bind(0.05) for _ in range(15))
    for handle in handles:
        await handle.result(timeout=20)
    assert most_at_once(fleet.ledger.entries()) == 3


async def test_def_runs_are_bounded_by_threads_and_async_ones_go_past_them(fleet: Fleet, client: App) -> None:
    fleet.worker(threads=2, concurrency=50)
    standing = [await apps.gated_blocking.options(id=f"g{n}").start("middle") for n in range(4)]
    fleet.wait_for_step("g0", "gate-middle")
    fleet.wait_for_step("g1", "gate-middle")
    assert await (await apps.three_steps.start(1)).result(timeout=10) == 4
    assert fleet.ledger.steps("g2") == fleet.ledger.steps("g3") == []
    fleet.open_gate("middle")
    for handle in standing:
        await handle.result(timeout=10)
    crowd = await client.start_many(apps.blocking_occupant.bind(0.05) for _ in range(8))
    for handle in crowd:
        await handle.result(timeout=20)
    assert most_at_once(fleet.ledger.entries()) == 2


def most_at_once(entries: list[Entry]) -> int:
    most = now = 0
    for entry in entries:
        now += {"enter": 1, "leave": -1}.get(entry.step, 0)
        most = max(most, now)
    return most
