"""How late ticks are, and what many schedules cost.

| what it yields | of what |
|---|---|
| lateness of a tick | ms, p99: from the nominal time to the first line of the workflow, five schedules every second for 20 s |
| schedules made | per second: 100,000 by `app.schedules.apply` |
| start-up with 100,000 schedules | ms, from `async with app` until it is entered, in a process of its own |
| idle with 100,000 schedules | ms of processor time per second of doing nothing |
| memory of 100,000 schedules | MB, what the process grew by beside one with none |
| 10,000 due at once | ms, from their nominal time until the last of their runs has begun |
| a year of five minutes | ms: 105,120 runs on the virtual clock, on a database in memory |

    python -m bench.schedules [sqlite|postgres]      alone, without the rest of the benchmarks
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from bench.harness import PROJECT, Figure, Kind, console, targets
from mainspring import App, Declaration, Interval, Overlap, Policy, Spec, run, testing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.harness import Target

MANY = int(os.environ.get("BENCH_SCHEDULES", "100000"))
AT_ONCE = 10_000
SECONDS = 20
IDLE = 5
YEARLY = Spec(cron=["0 0 1 1 *"])


class Bench:
    """An app whose one workflow says how late it is."""

    def __init__(self, url: str) -> None:
        self.app = app = App(url, version="bench")
        self.late: list[float] = []
        self.enough = asyncio.Event()
        self.wanted = -1

        @app.workflow
        async def act() -> None:
            tick = run.tick
            assert tick is not None
            self.late.append(time.time() - tick.nominal.timestamp())
            if len(self.late) == self.wanted:
                self.enough.set()

        self.act = act


def schedules(target: Target) -> Iterator[Figure]:
    late = asyncio.run(_lateness(target.fresh()))
    yield Figure("mainspring", "lateness of a tick", target.kind, late, "ms", "p99, to the first line of the run")
    url = target.fresh()
    yield Figure("mainspring", "schedules made", target.kind, asyncio.run(_make(url)), "/s", f"{MANY:,} by apply")
    with_none, with_many = _idle(target.fresh()), _idle(url)
    yield Figure("mainspring", "start-up with 100,000 schedules", target.kind, with_many["start"], "ms")
    yield Figure("mainspring", "idle with 100,000 schedules", target.kind, with_many["idle"], "ms", "per second")
    grown = with_many["memory"] - with_none["memory"]
    yield Figure("mainspring", "memory of 100,000 schedules", target.kind, grown, "MB", "beside none")
    for workers in (1, 2):
        what = "10,000 due at once" + (", two processes" if workers == 2 else "")
        yield Figure("mainspring", what, target.kind, asyncio.run(_at_once(url, workers)), "ms", f"among {MANY:,}")
    if target.kind == "sqlite":
        yield Figure("mainspring", "a year of five minutes", "-", asyncio.run(_year()), "ms", "105,120 runs")


async def _lateness(url: str) -> float:
    bench = Bench(url)
    async with bench.app:
        for number in range(5):
            await bench.app.schedules.create(f"s{number}", bench.act.bind(), Spec(intervals=["1s"]))
        await asyncio.sleep(SECONDS)
    late = sorted(bench.late)
    return late[round(0.99 * (len(late) - 1))] * 1e3


async def _make(url: str) -> float:
    bench = Bench(url)
    declared = [Declaration(f"s{number:06}", bench.act.bind(), YEARLY) for number in range(MANY)]
    begin = time.perf_counter()
    await bench.app.schedules.apply(declared)
    took = time.perf_counter() - begin
    await asyncio.to_thread(bench.app.close)
    return MANY / took


def _idle(url: str) -> dict[str, float]:
    """Start, idle and memory in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.schedules", "--idle", url],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        cwd=PROJECT,
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


async def _idle_here(url: str) -> dict[str, float]:
    bench = Bench(url)
    begin = time.perf_counter()
    async with bench.app:
        started = time.perf_counter() - begin
        await asyncio.sleep(1)
        before = time.process_time()
        await asyncio.sleep(IDLE)
        idle = (time.process_time() - before) / IDLE
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"start": started * 1e3, "idle": idle * 1e3, "memory": memory}


async def _at_once(url: str, workers: int) -> float:
    """Ten thousand schedules that come up in one second, among many others."""
    bench = Bench(url)
    other: asyncio.subprocess.Process | None = None
    async with bench.app:
        moment = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=25)
        once = Spec(intervals=[Interval("1d", anchor=moment)], end=moment)
        declared = [
            Declaration(f"at{workers}-{number:05}", bench.act.bind(), once, Policy(Overlap.ALLOW_ALL))
            for number in range(AT_ONCE)
        ]
        await bench.app.schedules.apply(declared, group="at-once")
        if workers > 1:
            command = (sys.executable, "-m", "bench.schedules", "--help-out", url)
            other = await asyncio.create_subprocess_exec(*command, cwd=PROJECT)
        await asyncio.sleep(moment.timestamp() - time.time())
        try:
            begun = await _begun(bench, f"at{workers}", moment)
        finally:
            if other is not None:
                other.terminate()
                await other.wait()
    return (max(begun) - moment.timestamp()) * 1e3


async def _begun(bench: Bench, prefix: str, moment: datetime) -> list[float]:
    """When the runs of that moment began, once all have."""
    store = bench.app._runtime.connection().store
    stamp = f"{moment:%Y-%m-%dT%H:%M:%SZ}"
    while True:
        await asyncio.sleep(0.5)
        runs = await asyncio.to_thread(_started, store, prefix, stamp)
        if len(runs) == AT_ONCE:
            return runs
        if time.time() - moment.timestamp() > 120:
            raise TimeoutError(f"only {len(runs)} of {AT_ONCE} have begun")


def _started(store: Any, prefix: str, stamp: str) -> list[float]:
    found = [store.run(f"{prefix}-{number:05}-{stamp}") for number in (0, AT_ONCE // 2, AT_ONCE - 1)]
    if not all(each is not None and each.started is not None for each in found):
        return []
    every = [store.run(f"{prefix}-{number:05}-{stamp}") for number in range(AT_ONCE)]
    return [each.started / 1e6 for each in every if each is not None and each.started is not None]


async def _year() -> float:
    bench = Bench("sqlite://")
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    clock = time.perf_counter()
    async with testing.world(bench.app, at=begin) as w:
        await bench.app.schedules.create("s", bench.act.bind(), Spec(intervals=["5m"]))
        await w.advance("365d")
    assert len(bench.late) == 105_120, len(bench.late)
    return (time.perf_counter() - clock) * 1e3


async def _help_out(url: str) -> None:
    async with Bench(url).app:
        await asyncio.sleep(3600)


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--idle"]:
        print(json.dumps(asyncio.run(_idle_here(arguments[1]))))
    elif arguments[:1] == ["--help-out"]:
        asyncio.run(_help_out(arguments[1]))
    else:
        kinds = cast("list[Kind]", arguments or ["sqlite", "postgres"])
        with targets(kinds) as found:
            for target in found:
                for figure in schedules(target):
                    console().print(f"{figure.what}, {figure.database}: {figure}")


if __name__ == "__main__":
    main(sys.argv[1:])
