"""A worker dies in the middle, and another one finishes what it began, without repeating what was recorded."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from mainspring import State
from mainspring.errors import MainspringError
from tests.fleet import apps
from tests.support.processes import eventually

if TYPE_CHECKING:
    from mainspring import App, AsyncFn, SyncFn
    from mainspring.store.protocol import Store
    from tests.support.processes import Fleet

    Gated = AsyncFn[[str], int] | SyncFn[[str], int]

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("workflow", [apps.gated, apps.gated_blocking], ids=["async", "def"])
async def test_a_killed_workers_run_is_finished_by_another(fleet: Fleet, client: App, workflow: Gated) -> None:
    first = fleet.worker()
    handle = await workflow.options(id="r").start("middle")
    fleet.wait_for_step("r", "gate-middle")
    second = fleet.worker()

    first.kill()
    fleet.wait_for_step("r", "gate-middle", times=2)
    fleet.open_gate("middle")

    assert await handle.result(timeout=30) == second.pid
    assert fleet.ledger.steps("r") == ["one", "two", "gate-middle", "gate-middle", "passed-middle", "three"]
    assert (await handle.describe()).recoveries == 1


async def test_a_dead_process_of_this_machine_is_recognised_before_its_lease_is_over(fleet: Fleet, client: App) -> None:
    lease = 6.0
    first = fleet.worker(lease=lease)
    handle = await apps.gated.options(id="r").start("middle")
    fleet.wait_for_step("r", "gate-middle")
    fleet.worker(lease=lease)

    first.kill()
    killed = time.monotonic()
    fleet.wait_for_step("r", "gate-middle", times=2)
    assert time.monotonic() - killed < lease * 0.6
    fleet.open_gate("middle")
    await handle.result(timeout=30)


async def test_a_worker_that_starts_alone_finds_what_dead_ones_left(fleet: Fleet, client: App, store: Store) -> None:
    """Nobody was there to see them die."""
    first = fleet.worker(lease=30)
    ids = [f"r{number}" for number in range(5)]
    handles = [await apps.gated.options(id=run_id).start("middle") for run_id in ids]
    for run_id in ids:
        fleet.wait_for_step(run_id, "gate-middle")
    first.kill()
    fleet.open_gate("middle")

    second = fleet.worker(lease=30)
    assert [await handle.result(timeout=8) for handle in handles] == [second.pid] * 5
    assert [worker.pid for worker in store.workers()] == [second.pid]


async def test_a_sleep_is_neither_shortened_nor_begun_anew_when_its_worker_dies(
    fleet: Fleet, client: App, store: Store
) -> None:
    first = fleet.worker()
    handle = await apps.sleeper.options(id="r").start(2.5)
    eventually(lambda: (found := store.run("r")) is not None and found.state is State.WAITING, "it sleeps")
    first.kill()
    fleet.worker()
    assert await handle.result(timeout=30) == "rested"
    one, two = fleet.ledger.entries("r")
    assert 2.4 < two.at - one.at < 4


async def test_a_run_that_takes_every_worker_with_it_is_given_up_and_others_go_on(fleet: Fleet, client: App) -> None:
    handle = await apps.poison.options(id="bad").start()
    for _ in range(3):
        assert fleet.start_worker(max_recoveries=2).wait() == 3
    other = await apps.three_steps.options(id="good").start(4)
    fleet.worker(max_recoveries=2)
    assert await other.result(timeout=30) == 7
    with pytest.raises(MainspringError, match="2"):
        await handle.result(timeout=30)
    told = await handle.describe()
    assert (told.state, told.reason) == (State.FAILED, "recovery exhausted")
    assert fleet.ledger.steps("bad") == ["one", "die", "die", "die"]
