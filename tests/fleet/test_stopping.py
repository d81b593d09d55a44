"""An orderly stop: the first signal hands everything back, the second one ends at once."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from mainspring import State
from tests.fleet import apps
from tests.support.processes import eventually

if TYPE_CHECKING:
    from mainspring import App
    from mainspring.store.protocol import Store
    from tests.support.processes import Fleet

pytestmark = pytest.mark.processes
LONG = 60.0
"""A lease that would show if anybody waited for one."""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_worker_that_stops_hands_its_runs_to_another_at_once(
    fleet: Fleet, client: App, store: Store, number: signal.Signals
) -> None:
    first = fleet.worker(lease=LONG)
    sleeping = await apps.sleeper.options(id="s").start(1.5)
    standing = await apps.gated.options(id="g").start("middle")
    blocking = await apps.gated_blocking.options(id="b").start("middle")
    for run_id in ("g", "b"):
        fleet.wait_for_step(run_id, "gate-middle")
    eventually(lambda: state(store, "s") is State.WAITING, "it sleeps")
    second = fleet.worker(lease=LONG)

    first.send(number)
    first.says("stopping: releasing")
    fleet.open_gate("middle")  # steps in flight may finish
    assert first.wait() == 0

    assert await standing.result(timeout=5) == second.pid
    assert await blocking.result(timeout=5) == second.pid
    assert await sleeping.result(timeout=5) == "rested"
    for run_id in ("g", "b"):
        assert fleet.ledger.steps(run_id) == ["one", "two", "gate-middle", "passed-middle", "three"]
    assert {(await client.handle(run_id).describe()).recoveries for run_id in ("s", "g", "b")} == {0}
    assert [worker.pid for worker in store.workers()] == [second.pid]


async def test_a_step_that_outlives_the_grace_is_left_to_others(fleet: Fleet, client: App) -> None:
    first = fleet.worker(lease=LONG, grace=0.3)
    handles = [
        await apps.gated.options(id="g").start("middle"),
        await apps.gated_blocking.options(id="b").start("middle"),
    ]
    for run_id in ("g", "b"):
        fleet.wait_for_step(run_id, "gate-middle")
    second = fleet.worker(lease=LONG)
    first.send(signal.SIGTERM)
    assert first.wait() == 0
    for run_id in ("g", "b"):
        fleet.wait_for_step(run_id, "gate-middle", times=2, within=5)
    fleet.open_gate("middle")
    assert [await handle.result(timeout=5) for handle in handles] == [second.pid, second.pid]


async def test_a_second_signal_ends_at_once(fleet: Fleet, client: App) -> None:
    first = fleet.worker(grace=LONG)
    handle = await apps.gated_blocking.options(id="r").start("middle")
    fleet.wait_for_step("r", "gate-middle")
    first.send(signal.SIGTERM)
    first.says("stopping: releasing")
    began = time.monotonic()
    first.send(signal.SIGTERM)
    assert first.wait() == 128 + signal.SIGTERM
    assert time.monotonic() - began < 3
    fleet.open_gate("middle")
    second = fleet.worker()
    assert await handle.result(timeout=10) == second.pid


async def test_runs_handed_round_and_round_count_no_recoveries(fleet: Fleet, client: App) -> None:
    """A fleet that is deployed ten times a day must not use up what is meant for crashes."""
    handle = await apps.sleeper.options(id="r").start(4)
    for _ in range(3):
        worker = fleet.worker(max_recoveries=0)
        fleet.wait_for_step("r", "one")
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
    fleet.worker(max_recoveries=0)
    assert await handle.result(timeout=20) == "rested"
    assert fleet.ledger.steps("r") == ["one", "two"]


def state(store: Store, run_id: str) -> State:
    found = store.run(run_id)
    assert found is not None
    return found.state
