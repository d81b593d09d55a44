"""The limits of queues hold while worker processes are killed and others take their places."""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from mainspring import Rate
from tests.fleet import apps

if TYPE_CHECKING:
    from mainspring import App
    from tests.support.ledger import Entry
    from tests.support.processes import Fleet

pytestmark = pytest.mark.processes
WORKERS = int(os.environ.get("LIMIT_WORKERS", "3"))
KILLS = int(os.environ.get("LIMIT_KILLS", "2"))
JOBS = int(os.environ.get("LIMIT_JOBS", "24"))
PARTITIONS = 4


async def test_limits_hold_while_workers_are_killed_and_every_job_is_done(fleet: Fleet, client: App) -> None:
    await client.queues.set("q", concurrency=3, partition_concurrency=1)
    handles = await client.start_many(
        apps.occupant.options(id=f"j{n}", queue="q", partition=f"p{n % PARTITIONS}").bind(0.05) for n in range(JOBS)
    )
    workers = fleet.workers(WORKERS, lease=20)
    deaths: dict[int, float] = {}
    for kill in range(KILLS):
        await handles[(kill + 1) * JOBS // (KILLS + 2)].result(timeout=60)
        victim = workers.pop(0)
        victim.kill()
        deaths[victim.pid] = time.monotonic()
        workers += fleet.workers(1, lease=20)
    for handle in handles:
        await handle.result(timeout=60)

    spans = at_work(fleet.ledger.entries(), deaths)
    assert {run for run, _, _ in spans} == {f"j{n}" for n in range(JOBS)}
    assert most_at_once(spans) <= 3
    for partition in range(PARTITIONS):
        assert most_at_once([span for span in spans if int(span[0][1:]) % PARTITIONS == partition]) <= 1
    done = Counter(entry.run for entry in fleet.ledger.entries() if entry.step == "leave")
    assert len(done) == JOBS
    for again in [job for job, times in done.items() if times > 1]:  # killed after the effect, before it was recorded
        assert done[again] <= 1 + (await client.runs.get(again)).recoveries


async def test_a_rate_holds_for_all_processes_together_also_when_one_is_killed(fleet: Fleet, client: App) -> None:
    await client.queues.set("q", rate=Rate(4, per=1))
    handles = await client.start_many(apps.occupant.options(queue="q").bind(0) for _ in range(12))
    victim, *_ = fleet.workers(3, lease=20)
    await client.first(*handles)
    victim.kill()
    for handle in handles:
        await handle.result(timeout=60)
    infos = [await client.runs.get(handle.id) for handle in handles]
    started = sorted(info.started for info in infos if info.started is not None)
    assert len(started) == len(handles)
    for first, fifth in zip(started, started[4:], strict=False):
        assert (fifth - first).total_seconds() >= 1


def at_work(entries: list[Entry], deaths: dict[int, float]) -> list[tuple[str, float, float]]:
    """From when to when each run was executed; by a process that was killed, until it was."""
    begun: dict[tuple[str, int], float] = {}
    spans: list[tuple[str, float, float]] = []
    for entry in entries:
        if entry.step == "enter":
            begun[entry.run, entry.pid] = entry.at
        elif entry.step == "leave":
            spans.append((entry.run, begun.pop((entry.run, entry.pid)), entry.at))
    return spans + [(run, since, min(deaths[pid], since + 60)) for (run, pid), since in begun.items()]


def most_at_once(spans: list[tuple[str, float, float]]) -> int:
    changes = sorted([(begin, 1) for _, begin, _ in spans] + [(end, -1) for _, _, end in spans])
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most
