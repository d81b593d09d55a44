"""A worker that stood still past its lease: others take over, it cannot write any more, and it begins again under a new id."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from mainspring import Settings
from mainspring.model.runs import Worker
from mainspring.services.heartbeat import Observations
from tests.fleet import apps
from tests.support.processes import eventually

if TYPE_CHECKING:
    from mainspring import App, AsyncFn, SyncFn
    from mainspring.store.protocol import Store
    from tests.support.processes import Fleet

    Gated = AsyncFn[[str], int] | SyncFn[[str], int]


@pytest.mark.processes
@pytest.mark.parametrize("workflow", [apps.gated, apps.gated_blocking], ids=["async", "def"])
async def test_a_zombie_cannot_write_and_goes_on_under_a_new_id(
    fleet: Fleet, client: App, store: Store, workflow: Gated
) -> None:
    zombie = fleet.worker()
    handle = await workflow.options(id="r").start("middle")
    fleet.wait_for_step("r", "gate-middle")
    (before,) = store.workers()
    fleet.freeze(zombie)
    healthy = fleet.worker()
    fleet.wait_for_step("r", "gate-middle", times=2)

    fleet.open_gate("middle")
    assert await handle.result(timeout=30) == healthy.pid
    zombie.thaw()
    zombie.says("was declared dead by another worker")

    eventually(lambda: zombie.pid in {worker.pid for worker in store.workers()}, "the zombie enters the fleet again")
    assert before.id not in {worker.id for worker in store.workers()}
    assert fleet.ledger.steps("r").count("three") == 1
    assert (await handle.describe()).recoveries == 1
    assert await handle.result() == healthy.pid

    healthy.kill()
    assert await (await apps.three_steps.options(id="next").start(1)).result(timeout=30) == 4
    assert set(fleet.ledger.pids("next", "three")) == {zombie.pid}


async def test_what_a_worker_takes_between_its_death_and_learning_of_it_is_not_lost(client: App, store: Store) -> None:
    """It claims what is there, and begins what is started here, under an id that nobody will ever retire again."""
    client._runtime.settings = Settings(lease=3)
    async with client:
        (before,) = store.workers()
        claimed = [await apps.occupant.options(after=0.1).start(1.5) for _ in range(5)]
        store.retire(before.id, client._runtime.clock.now(), None)
        begun = [await apps.occupant.start(1.5) for _ in range(5)]
        assert {await handle.result(timeout=20) for handle in (*claimed, *begun)} == {os.getpid()}
        assert store.orphaned() == []
        (after,) = store.workers()
        assert after.id != before.id


@pytest.mark.processes
async def test_a_worker_that_stood_still_for_less_than_its_lease_keeps_its_runs(fleet: Fleet, client: App) -> None:
    sleepy = fleet.worker(lease=30)
    fleet.worker(lease=30)
    handle = await apps.gated.options(id="r").start("middle")
    fleet.wait_for_step("r", "gate-middle")
    frozen = next(each for each in fleet.processes if each.pid == fleet.ledger.pids("r", "one")[0])
    fleet.freeze(frozen)
    await (await apps.three_steps.start(1)).result(timeout=10)  # the other one is at work meanwhile
    fleet.open_gate("middle")
    frozen.thaw()
    assert await handle.result(timeout=10) == frozen.pid
    assert (await handle.describe()).recoveries == 0
    assert sleepy.alive


def record(name: str, beat: int, boot: str = "elsewhere") -> Worker:
    return Worker(name, "host", boot, 2**30, 0, "v", "{}", 0, beat, 0)


MINE = record("mine", 0, "here")


def test_a_worker_has_lapsed_when_its_beat_did_not_change_for_a_lease() -> None:
    seen = Observations(lease=10)
    for second in range(0, 11, 4):
        assert seen.lapsed([MINE, record("other", 7)], MINE, second) == []
    assert seen.lapsed([MINE, record("other", 7)], MINE, 10.5) == [record("other", 7)]


def test_a_beat_that_changes_counts_whatever_it_changes_to() -> None:
    seen = Observations(lease=10)
    for second in range(0, 40, 4):
        assert seen.lapsed([record("other", second % 8)], MINE, second) == []


def test_an_observer_that_stood_still_gives_everybody_a_full_lease_again() -> None:
    seen = Observations(lease=10)
    assert seen.lapsed([record("other", 7)], MINE, 0) == []
    assert seen.lapsed([record("other", 7)], MINE, 100) == []
    for second in (104, 108):
        assert seen.lapsed([record("other", 7)], MINE, second) == []
    assert seen.lapsed([record("other", 7)], MINE, 112) == [record("other", 7)]


def test_a_dead_pid_means_nothing_on_another_machine_or_in_another_container() -> None:
    seen = Observations(lease=10)
    assert seen.lapsed([record("other", 7, "elsewhere")], MINE, 0) == []
    assert seen.lapsed([record("other", 7, "here")], MINE, 0) == [record("other", 7, "here")]
    nowhere = record("mine", 0, "")
    assert Observations(lease=10).lapsed([record("other", 7, "")], nowhere, 0) == []
