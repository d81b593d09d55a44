"""Two processes and a client on one database: work started in one is done in either, and words reach the other at once."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from mainspring import State
from mainspring.errors import RunCancelled, StillRunning
from tests.fleet import apps
from tests.support.processes import eventually
from tests.support.samples import covering

if TYPE_CHECKING:
    from mainspring import App
    from mainspring.store.protocol import Store
    from tests.support.processes import Fleet, Process

pytestmark = pytest.mark.processes
AT_ONCE = 3.0
"""Far below the poll of a minute that the fleet is told; above what a busy machine needs."""


async def test_a_process_that_executes_nothing_starts_runs_and_gets_their_results(fleet: Fleet, client: App) -> None:
    fleet.worker()
    began = time.monotonic()
    assert await apps.three_steps(39) == 42
    assert await apps.three_blocking_steps.aio(39) == 42
    assert time.monotonic() - began < AT_ONCE


async def test_the_same_in_a_process_that_has_entered_its_app_without_working(fleet: Fleet, client: App) -> None:
    async with client:
        handle = await apps.three_steps.start(39)
        with pytest.raises(StillRunning):
            await handle.result(timeout=0.3)
        fleet.worker()
        assert await handle.result(timeout=20) == 42


async def test_a_backlog_is_shared(fleet: Fleet, client: App) -> None:
    workers = fleet.workers(2, concurrency=2)
    handles = await client.start_many(apps.occupant.bind(0.1) for _ in range(16))
    pids = [await handle.result(timeout=30) for handle in handles]
    assert {pids.count(worker.pid) >= 4 for worker in workers} == {True}


async def test_a_parent_in_one_process_awaits_a_child_in_another(fleet: Fleet, client: App) -> None:
    first = fleet.worker(concurrency=1)
    keeper = await apps.parent.options(id="p").start("middle")
    fleet.wait_for_step("p/1", "gate-middle")
    second = fleet.worker()
    # The child's worker dies; the parent, which rested meanwhile, may come back anywhere.
    first.kill()
    fleet.wait_for_step("p/1", "gate-middle", times=2)
    third = fleet.worker()
    fleet.open_gate("middle")
    began = time.monotonic()
    parent, child = await keeper.result(timeout=30)
    assert time.monotonic() - began < AT_ONCE
    assert child == second.pid
    assert parent in {second.pid, third.pid}
    assert fleet.ledger.steps("p") == ["one", "two"]


async def test_the_end_of_a_child_elsewhere_wakes_its_parent_at_once(fleet: Fleet, client: App) -> None:
    """The child was there before, started by somebody else, and is executed in another process."""
    theirs = fleet.worker()
    child = await apps.gated.options(id="c").start("middle")
    fleet.wait_for_step("c", "gate-middle")
    fleet.freeze(theirs)
    mine = fleet.worker(lease=30)
    waiting = await apps.waits_for.options(id="w").start("c")
    fleet.wait_for_step("w", "one")
    theirs.thaw()
    fleet.open_gate("middle")
    assert await child.result(timeout=10) == theirs.pid
    ended = time.monotonic()
    assert await waiting.result(timeout=10) == [mine.pid, theirs.pid]
    assert time.monotonic() - ended < AT_ONCE


@covering
@pytest.mark.parametrize("verb", ["cancel", "terminate"])
@pytest.mark.parametrize("doing", ["sleep", "step"])
async def test_stopping_a_run_reaches_its_worker_at_once(
    fleet: Fleet, client: App, store: Store, verb: str, doing: str
) -> None:
    worker = fleet.worker()
    if doing == "sleep":
        handle = await apps.sleeper.options(id="r").start(3600)
        eventually(lambda: state(store) is State.WAITING, "it sleeps")
    else:
        other = await apps.gated.options(id="r").start("middle")
        fleet.wait_for_step("r", "gate-middle")
        handle = client.handle(other.id)
    began = time.monotonic()
    assert await (handle.cancel(reason="enough") if verb == "cancel" else handle.terminate(reason="enough"))
    if (verb, doing) == ("cancel", "step"):  # a step in flight is let finish
        assert state(store) is State.CANCELLING
        await asyncio.sleep(0.5)  # a hundredth of the poll: by then it was told
        fleet.open_gate("middle")
    with pytest.raises(RunCancelled, match="enough"):
        await handle.result(timeout=10)
    assert time.monotonic() - began < AT_ONCE
    eventually(lambda: (found := store.run("r")) is not None and found.owner is None, "the worker lets go", AT_ONCE)
    if doing == "step":
        fleet.open_gate("middle")
    await settled(worker)
    assert not {"three"} & set(fleet.ledger.steps("r"))


async def test_cancelling_a_parent_stops_its_child_in_another_process(fleet: Fleet, client: App, store: Store) -> None:
    first = fleet.worker()
    handle = await apps.resting_parent.options(id="p").start()
    eventually(
        lambda: (found := store.run("p/1")) is not None and found.state is State.WAITING, "parent and child rest"
    )
    first.kill()
    fleet.workers(2)
    assert await handle.cancel()
    for run_id in ("p", "p/1"):
        with pytest.raises(RunCancelled):
            await client.handle(run_id).result(timeout=AT_ONCE)


def state(store: Store) -> State:
    found = store.run("r")
    assert found is not None
    return found.state


async def settled(worker: Process) -> None:
    """The worker has done whatever it had to do before this."""
    assert worker.alive
    assert await (await apps.three_steps.start(1)).result(timeout=20) == 4
