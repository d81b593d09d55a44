"""Many processes with the same schedules, some of them killed: each tick once, none left out."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from mainspring import Overlap, Policy, Spec
from mainspring.model.clock import to_datetime
from mainspring.operations.schedules.actions import Schedules
from tests.fleet import apps
from tests.support.processes import eventually

if TYPE_CHECKING:
    from mainspring import App
    from mainspring.store.protocol import Store
    from tests.support.processes import Fleet

pytestmark = pytest.mark.processes
SECONDS = float(os.environ.get("FLEET_SECONDS", "3"))
SCHEDULES = 20


async def test_each_tick_starts_one_run_whoever_is_killed(
    fleet: Fleet, client: App, store: Store, store_url: str
) -> None:
    for number in range(SCHEDULES):
        how = Policy(Overlap.ALLOW_ALL if number % 2 else Overlap.BUFFER_ALL, catchup=None)
        await client.schedules.create(f"s{number}", apps.three_steps.bind(number), Spec(intervals=["1s"]), how)
    workers = fleet.workers(8 if store_url.startswith("postgres") else 4, lease=1.5)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        await asyncio.sleep(SECONDS / 4)
        workers.pop(0).kill()
        workers.append(fleet.start_worker(lease=1.5))
    stopped = to_datetime(client._runtime.clock.now())
    for number in range(SCHEDULES):
        await client.schedules.pause(f"s{number}")
    await asyncio.to_thread(eventually, lambda: not _busy(store), "all runs have ended", 60)

    schedules = Schedules(store, client._runtime.clock, client._runtime.ids)
    runs: list[str] = []
    for number in range(SCHEDULES):
        found = schedules.audit(f"s{number}", stopped - timedelta(hours=1), stopped)
        assert found.unaccounted == []
        assert set(found.classes) <= {"on_time", "late", "delayed", "paused"}
        ticks = schedules.ticks(f"s{number}", limit=10_000, outcome=["fired", "late"]).ticks
        assert len(ticks) >= SECONDS - 2
        assert len({tick.nominal for tick in ticks}) == len(ticks)
        runs += [str(tick.run) for tick in ticks]
    assert len(set(runs)) == len(runs)
    done = {run for (run, _), times in fleet.ledger.times().items() if times}
    assert done == set(runs)


def _busy(store: Store) -> bool:
    """Whether a run has not ended, or a tick waits for one."""
    return bool(sum(store.counts().values())) or any(
        (situation := store.schedules.situation(f"s{number}")) is not None and situation.waiting
        for number in range(SCHEDULES)
    )
