"""How long the pages of the dashboard take with a million runs and ten thousand schedules.

| what it yields | of what |
|---|---|
| page … | ms, p95 of 40: from the request to the last byte, without a network between; beside it the least, and the processor time of this process, which on SQLite includes the statements |
| open page | ms of processor time per second for one page of runs that is open, changes all the time and is fetched anew each time |

    python -m bench.web [sqlite|postgres]      alone, without the rest of the benchmarks
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any, cast

import httpx

from bench.harness import Figure, Kind, console, targets
from bench.history import with_past
from mainspring import App, Declaration, Spec
from mainspring.store.verbs.dashboard import Amount
from mainspring.web import dashboard, live
from mainspring.web.backend import Backend
from mainspring.web.pages import runs
from mainspring.web.redaction import Redactor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from bench.harness import Target

RUNS = int(os.environ.get("BENCH_RUNS", "1000000"))
SCHEDULES = int(os.environ.get("BENCH_PAGE_SCHEDULES", "10000"))
TIMES = 40
WATCHED = 10.0
DAY_NS = 86_400 * 10**9
TICK = """
  INSERT INTO ticks (schedule, nominal, source, due, outcome, run)
  VALUES (:schedule, :nominal, 'clock', :nominal, :outcome, :run)
"""
PAGES = {
    "overview": "/",
    "overview, a week": "/?minutes=10080",
    "runs": "/runs",
    "runs, far back": "/runs?after=1h0000000000000010500000",
    "failed runs": "/runs?state=failed",
    "running runs": "/runs?state=running",
    "scheduled runs": "/runs?state=scheduled",
    "runs of one workflow": "/runs?workflow=trivial",
    "runs of a rare workflow": "/runs?workflow=rare",
    "runs by attributes": '/runs?attributes={"tenant":"none"}',
    "runs by version": "/runs?version=none",
    "runs that ended in a second": "/runs?completed_after=2023-11-14T22:13:20Z&completed_before=2023-11-14T22:13:21Z",
    "runs of a queue": "/runs?queue=mail",
    "run": "/runs/past-400001",
    "timeline of a run": "/runs/timeline?id=past-400001",
    "errors, a day": "/errors",
    "waiting for a message": "/waits",
    "workflows": "/workflows",
    "one workflow": "/workflows/trivial",
    "queue": "/queues/mail",
    "actions": "/audit",
    "schedules": "/schedules",
    "schedule": "/schedules/s-05000",
    "functions": "/functions",
    "queues": "/queues",
    "workers": "/workers",
    "metrics": "/metrics",
}


def web(target: Target) -> Iterator[Figure]:
    """All pages, on a database with a past."""
    url = with_past(target, RUNS).fresh()
    app = App(url, version="bench")

    @app.workflow
    async def act() -> None: ...

    @app.workflow
    async def rare() -> None: ...

    try:
        yield from asyncio.run(_measure(app, act, rare, target.kind))
    finally:
        app.close()


async def _measure(app: App, act: Any, rare: Any, kind: Kind) -> list[Figure]:
    made = [Declaration(f"s-{n:05}", act.bind(), Spec(cron=[f"{n % 60} {n % 24} * * *"])) for n in range(SCHEDULES)]
    for first in range(0, SCHEDULES, 1_000):
        await app.schedules.apply(made[first : first + 1_000])
    await rare.options(id="rare-one", after="5d").start()
    await app.queues.set("mail", concurrency=2)
    await app._runtime.in_thread(_a_past, app._runtime.connection().store)
    figures: list[Figure] = []
    transport = httpx.ASGITransport(cast("Any", dashboard(app)), client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=120) as asking:
        for name, path in PAGES.items():
            took: list[float] = []
            spent: list[float] = []
            for _ in range(TIMES):
                begin, worked = time.perf_counter(), time.process_time()
                answer = await asking.get(path)
                took.append((time.perf_counter() - begin) * 1e3)
                spent.append((time.process_time() - worked) * 1e3)
                assert answer.status_code == 200, (path, answer.text[:500])
            p95 = statistics.quantiles(took, n=20)[-1]
            note = f"least {min(took):.0f} ms, processor {statistics.median(spent):.0f} ms; {RUNS:,} runs, {SCHEDULES:,} schedules"
            figures.append(Figure("mainspring", f"page: {name}", kind, p95, "ms", note))
        cost = await _open_page(app, rare, asking)
    figures.append(Figure("mainspring", "open page", kind, cost, "ms", "of processor time per second"))
    return figures


def _a_past(store: Any) -> None:
    """A month of ticks for every schedule, some of which did not start their run, and a week of ten busy functions."""
    nominal = time.time_ns() // DAY_NS * DAY_NS // 1_000
    rows = [
        {
            "schedule": f"s-{number:05}",
            "nominal": nominal - day * DAY_NS // 1_000,
            "outcome": "missed" if (number + day) % 10 == 0 else "fired",
            "run": None if (number + day) % 10 == 0 else f"past-{30 * number + day}",
        }
        for number in range(SCHEDULES)
        for day in range(30)
    ]
    store.dashboard._do((TICK, rows))
    minute = time.time_ns() // 60_000_000_000 * 60_000_000
    week = {
        minute - back * 60_000_000: [
            Amount(f"workflow-{number}", measure, state, 3, 5, 50_000)
            for number in range(10)
            for measure in ("duration", "lateness")
            for state in ("succeeded", "failed")
        ]
        for back in range(10_080)
    }
    store.dashboard.add(week)


async def _open_page(app: App, rare: Any, asking: httpx.AsyncClient) -> float:
    """What a page of runs that is open costs, per second, while runs are started all the time. What that costs does not count."""
    backend = Backend(app, Redactor(None))
    query = runs.RunQuery()

    async def look() -> object:
        return await backend.call(lambda scene: runs.runs(scene, query))

    async def watch() -> None:
        async for said in live.Streams().open(backend, {"/": look}).body_iterator:
            if b"event: changed" in bytes(said):  # type: ignore[arg-type]
                await asking.get("/runs")

    async def start() -> None:
        while True:
            await rare.options(after="5d").start()
            await asyncio.sleep(0.2)

    await look()
    alone = await _processor_time(start)
    return max(0.0, await _processor_time(start, watch) - alone)


async def _processor_time(*work: Callable[[], Awaitable[None]]) -> float:
    """Milliseconds of processor time per second while some things go on."""
    begin = time.process_time()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.gather(*(each() for each in work)), WATCHED)
    return (time.process_time() - begin) / WATCHED * 1e3


def main() -> None:
    kinds = cast("list[Kind]", sys.argv[1:] or ["sqlite", "postgres"])
    with targets(kinds) as found:
        for target in found:
            for figure in web(target):
                console().print(f"{figure.database:<9} {figure.what:<34} {figure}  ({figure.note})")


if __name__ == "__main__":
    main()
