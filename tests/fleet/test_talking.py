"""Runs talk in a ring while the processes that execute them are killed. `TALK_RUNS=1000 TALK_MESSAGES=40` is the long form."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.fleet import apps
from tests.support.processes import eventually

if TYPE_CHECKING:
    from mainspring import App
    from tests.support.processes import Fleet

pytestmark = pytest.mark.processes
RUNS = int(os.environ.get("TALK_RUNS", "30"))
EACH = int(os.environ.get("TALK_MESSAGES", "15"))
DEATHS = int(os.environ.get("TALK_DEATHS", "2"))
PATIENCE = 60 + RUNS * EACH / 20


async def test_each_message_is_received_once_and_in_order_whoever_is_killed(fleet: Fleet, client: App) -> None:
    names = [f"r{number}" for number in range(RUNS)]
    ring = zip(names, [*names[1:], names[0]], strict=True)
    handles = await client.start_many(apps.gossip.options(id=name).bind(to, EACH) for name, to in ring)
    workers = fleet.workers(2)
    marks = len(range(0, EACH, 5)) * RUNS

    def arrived(share: float) -> bool:
        return len({(entry.run, entry.remark) for entry in fleet.ledger.entries()}) >= share * marks

    for death in range(DEATHS):
        share = (death + 0.5) / DEATHS
        eventually(partial(arrived, share), f"{share:.0%} of the messages are received", PATIENCE)
        workers.pop(0).kill()
        workers.append(fleet.worker())
    for handle in handles:
        assert await handle.result(timeout=PATIENCE) == list(range(EACH)), handle.id
