"""Jobs of queues with limits, keyed and debounced runs, crontab tasks, schedules' runs, gates, and a workflow that a deploy changes."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import datetime  # noqa: TC003  (arguments are read by their annotations)
from pathlib import Path
from typing import Any

from mainspring import Interval, Overlap, Policy, Rate, Retry, Spec, run
from tests.soak.functions.effects import OLD, Planned, act, act_blocking, app, effect

# -- queues: the step is in the ledger while the job occupies its slot ---------------------------------------------------------
LIMITS: dict[str, dict[str, Any]] = {
    "three": {"concurrency": 3},
    "serial": {"concurrency": 1},
    "per_worker": {"worker_concurrency": 2},
    "tenants": {"partition_concurrency": 1, "concurrency": 6},
    "tenants_per_worker": {"partition_worker_concurrency": 1},
    "rated": {"rate": Rate(4, per=2)},
    "tenants_rated": {"partition_rate": Rate(2, per=2)},
    "retried": {"concurrency": 4, "retry": Retry(4, first=0.1)},
    "probes": {"concurrency": 5, "worker_concurrency": 4, "partition_concurrency": 3},
}
for _name, _limits in LIMITS.items():
    app.queue(_name, **_limits)


@app.workflow
async def job(seconds: float) -> str:
    return await act("work", "", seconds)


@app.workflow
def job_blocking(seconds: float) -> str:
    return act_blocking("work", "", seconds)


@app.workflow
async def job_in_two_parts(seconds: float) -> list[str]:
    """It sleeps in the middle, and keeps its slot in the queue."""
    first = await act("work", "", seconds)
    await run.sleep(seconds)
    return [first, await act("work again", first, 0)]


@app.workflow
async def job_retried(fails: int) -> str:
    """The queue says how often it is retried."""
    outcome = await act(f"attempt {run.attempt}")
    if run.attempt <= fails:
        raise Planned(outcome)
    return outcome


# -- keys ---------------------------------------------------------------------------------------------------------------------
@app.workflow
async def keyed(value: int) -> int:
    await act(f"value {value}", "", 0.1)
    return value


# -- gates: all of a fleet's slots at once ---------------------------------------------------------------------------------------
GATES = Path(os.environ.get("FLEET_GATES", "."))


@app.step
async def gate(name: str) -> None:
    with effect(f"gate {name}"):
        while not (GATES / f"gate-{name}").exists():  # noqa: ASYNC110  (another process opens it)
            await asyncio.sleep(0.02)


@app.step
def gate_blocking(name: str) -> None:
    with effect(f"gate {name}"):
        while not (GATES / f"gate-{name}").exists():
            time.sleep(0.02)


@app.workflow
async def gated(name: str) -> None:
    await gate(name)


@app.workflow
def gated_blocking(name: str) -> None:
    gate_blocking(name)


# -- a workflow that is changed by a deploy: its source differs between processes ------------------------------------------------
if OLD:

    @app.workflow
    async def evolving(seconds: float) -> list[str]:
        first = await act("first")
        await run.sleep(seconds)
        return [first, await act("last", first)]

else:

    @app.workflow
    async def evolving(seconds: float) -> list[str]:
        outcomes = [await act("first")]
        await run.sleep(seconds)
        if run.patched("in between"):
            outcomes.append(await act("between", outcomes[-1]))
        return [*outcomes, await act("last", outcomes[-1])]


# -- schedules -------------------------------------------------------------------------------------------------------------------
@app.workflow
async def tick_job(spread: float) -> str:
    """Takes up to `spread` seconds, by its nominal time."""
    tick = run.tick
    assert tick is not None
    nominal = int(tick.nominal.timestamp())
    return await act("work", "", (nominal * 7919 % 100) / 100 * spread)


@app.workflow
def tick_job_blocking(spread: float) -> str:
    tick = run.tick
    assert tick is not None
    nominal = int(tick.nominal.timestamp())
    return act_blocking("work", "", (nominal * 7919 % 100) / 100 * spread)


@app.workflow
async def tick_job_sleeping(spread: float) -> str:
    """Sleeps durably, so that it may be parked when the next tick comes."""
    tick = run.tick
    assert tick is not None
    first = await act("work")
    await run.sleep((int(tick.nominal.timestamp()) * 7919 % 100) / 100 * spread)
    return await act("work again", first)


@app.workflow
async def tick_job_failing() -> str:
    """Fails at every seventh second that it comes to: the schedule pauses."""
    tick = run.tick
    assert tick is not None
    outcome = await act("work")
    if int(tick.nominal.timestamp()) % 7 == 0:
        raise Planned(outcome)
    return outcome


@app.scheduled("*/2 * * * * *")
@app.workflow
async def beat(scheduled_at: datetime, started_at: datetime) -> list[str]:
    outcome = await act("work")
    return [scheduled_at.isoformat(), started_at.isoformat(), outcome]


@app.workflow
async def cron_task(payload: dict[str, Any]) -> str:
    with_ts = f"cron {payload['_cron']['ts']} {payload['_cron']['backfilled']}"
    return await act(with_ts)


def _every(seconds: int, jitter: float = 0) -> Spec:
    return Spec(intervals=[Interval(seconds)], jitter=jitter)


SCHEDULES: dict[str, tuple[Any, Spec, Policy]] = {
    "skip": (tick_job.bind(1.8), _every(3), Policy(Overlap.SKIP, catchup=None)),
    "buffer-one": (tick_job_blocking.bind(1.8), _every(3), Policy(Overlap.BUFFER_ONE, catchup=None)),
    "buffer-all": (tick_job.bind(2.5), _every(4), Policy(Overlap.BUFFER_ALL, catchup="10s", buffer_limit=20)),
    "cancel-other": (tick_job_sleeping.bind(2.5), _every(3), Policy(Overlap.CANCEL_OTHER, catchup=None)),
    "terminate-other": (tick_job_sleeping.bind(2.5), _every(3), Policy(Overlap.TERMINATE_OTHER, catchup=None)),
    "allow-all": (tick_job_sleeping.bind(2.5), _every(3), Policy(Overlap.ALLOW_ALL, catchup=None)),
    "allow-two": (tick_job_blocking.bind(2.5), _every(3), Policy(Overlap.ALLOW_ALL, catchup=None, max_running=2)),
    "jittered": (tick_job.bind(0.3), _every(5, jitter=3), Policy(Overlap.BUFFER_ALL, catchup=None)),
    "coalesced": (tick_job.bind(0.3), _every(3), Policy(Overlap.ALLOW_ALL, catchup=None, coalesce=True)),
    "failing": (tick_job_failing.bind(), _every(3), Policy(Overlap.SKIP, catchup=None, pause_on_failure=True)),
    "queued": (tick_job.options(queue="three").bind(0.3), _every(4), Policy(Overlap.ALLOW_ALL, catchup=None)),
    "limited": (tick_job.bind(0.1), _every(3), Policy(Overlap.ALLOW_ALL, catchup=None, limit=25)),
}
"""Declared by the code; operators pause, trigger and backfill them."""
for _id, (_call, _spec, _policy) in SCHEDULES.items():
    app.schedule(_id, _call, _spec, _policy)

CRONTAB = """
* * * * *  cron_task  ?id=every_minute&fill=10m  {n: 1}
* * * * *  cron_task  ?id=keyed_minute&jobKey=cron-key&jobKeyMode=preserve_run_at&fill=10m  {n: 2}
* * * * *  cron_task  ?id=queued_minute&queue=cron_queue&max=3  {n: 3}
"""
"""The crontab file that each worker is given."""
