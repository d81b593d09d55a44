"""DBOS, measured on one database. Runs in an environment of its own and prints one JSON array of figures.

    .bench-venv/bin/python bench/dbos_peer.py URL [SECTION ...]

DBOS keeps its defaults, apart from its log. All of it takes about a minute for each database.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbos import DBOS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STEPS = 200
RUNS, STEPS_PER_RUN = 1_000, 5
INTERRUPTED = 500
QUEUED = 2_000
RECEIPT = {"total": 1299, "currency": "EUR", "receipt": "r-000000000000", "items": [1, 2, 3]}

_hold = False  # set in the process that is to be interrupted: its runs stop after their first step
_held = 0
_loop = asyncio.Runner()  # one for all: DBOS gives a loop its own thread pool, which ends with the loop


@DBOS.step()
def step(number: int) -> dict[str, Any]:
    return {**RECEIPT, "number": number}


@DBOS.step()
async def async_step(number: int) -> dict[str, Any]:
    return {**RECEIPT, "number": number}


@DBOS.workflow()
def many_steps(count: int) -> int:
    return sum(step(number)["number"] for number in range(count))


@DBOS.workflow()
async def many_async_steps(count: int) -> int:
    total = 0
    for number in range(count):
        total += (await async_step(number))["number"]
    return total


@DBOS.workflow()
async def trivial(number: int) -> int:
    return number


@DBOS.workflow()
async def two_steps(number: int) -> int:
    global _held  # noqa: PLW0603 - one process, one count
    await async_step(number)
    if _hold:
        _held += 1
        if _held == INTERRUPTED:
            os._exit(0)  # without a word, as a crash would
        await asyncio.sleep(3600)
    await async_step(number)
    return number


def sequential(_: str) -> Iterator[dict[str, Any]]:
    many_steps(20)
    sync = statistics.median(_seconds(lambda: many_steps(STEPS)) for _ in range(3)) / STEPS
    yield {"what": "step, def run", "value": sync * 1e3, "unit": "ms", "note": f"one run of {STEPS} steps"}

    async def one() -> float:
        begin = time.perf_counter()
        await many_async_steps(STEPS)
        return time.perf_counter() - begin

    async def three() -> float:
        return statistics.median([await one() for _ in range(3)]) / STEPS

    yield {
        "what": "step, async run",
        "value": _loop.run(three()) * 1e3,
        "unit": "ms",
        "note": f"one run of {STEPS} steps",
    }


def concurrent(_: str) -> Iterator[dict[str, Any]]:
    async def all_at_once() -> float:
        begin = time.perf_counter()
        handles = await asyncio.gather(
            *(DBOS.start_workflow_async(many_async_steps, STEPS_PER_RUN) for _ in range(RUNS))
        )
        await asyncio.gather(*(handle.get_result() for handle in handles))
        return time.perf_counter() - begin

    took = _loop.run(all_at_once())
    yield {
        "what": "concurrent steps",
        "value": RUNS * STEPS_PER_RUN / took,
        "unit": "/s",
        "note": f"{RUNS} runs x {STEPS_PER_RUN} async steps",
    }


def roundtrip(_: str) -> Iterator[dict[str, Any]]:
    many_steps(1)
    took = statistics.median(_seconds(lambda: many_steps(1)) for _ in range(100))
    yield {"what": "start + step + finish", "value": took * 1e3, "unit": "ms", "note": "def, one after the other, p50"}


def queued(_: str) -> Iterator[dict[str, Any]]:
    DBOS.register_queue("bench")

    async def through_the_queue() -> tuple[float, float]:
        begin = time.perf_counter()
        handles = [await DBOS.enqueue_workflow_async("bench", trivial, number) for number in range(QUEUED)]
        enqueued = time.perf_counter() - begin
        await asyncio.to_thread(_wait_until_none_is_left)
        assert len(handles) == QUEUED
        return enqueued, time.perf_counter() - begin

    enqueued, took = _loop.run(through_the_queue())
    note = f"{QUEUED} trivial runs"
    yield {
        "what": "queued runs",
        "value": QUEUED / took,
        "unit": "/s",
        "note": f"{note}, first enqueued to last finished",
    }
    yield {"what": "enqueue", "value": QUEUED / enqueued, "unit": "/s", "note": f"{note}, one after the other"}


def recovery(url: str) -> Iterator[dict[str, Any]]:
    DBOS.destroy()
    subprocess.run([sys.executable, __file__, url, "--interrupt"], check=True, stdout=subprocess.DEVNULL)
    begin = time.perf_counter()
    _launch(url)
    _wait_until_none_is_left()
    yield {
        "what": "recovery of 500 runs",
        "value": (time.perf_counter() - begin) * 1e3,
        "unit": "ms",
        "note": "from launch until the last has finished",
    }


def footprint(_: str) -> Iterator[dict[str, Any]]:
    program = "import time; t = time.perf_counter(); import dbos; print(time.perf_counter() - t)"
    took = statistics.median(
        float(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)
        for _ in range(5)
    )
    yield {"what": "import", "value": took * 1e3, "unit": "ms", "note": "warm, median of 5", "database": "-"}
    many_steps(1)
    yield {"what": "memory", "value": _resident_mb(), "unit": "MB", "note": "a trivial app after its first run"}


SECTIONS: dict[str, Callable[[str], Iterator[dict[str, Any]]]] = {
    "footprint": footprint,  # first, while the process is fresh
    "sequential": sequential,
    "roundtrip": roundtrip,
    "concurrent": concurrent,
    "queued": queued,
    "recovery": recovery,  # last: it relaunches
}


def _launch(url: str) -> None:
    DBOS(
        config={
            "name": "bench",
            "system_database_url": url.replace("postgresql://", "postgresql+psycopg://", 1),
            "application_version": "bench",
            "log_level": "ERROR",
        }
    )
    DBOS.launch()


def _interrupt(url: str) -> None:
    """Start runs that end this process once each of them has recorded its first step."""
    global _hold  # noqa: PLW0603 - one process, one purpose
    _hold = True
    _launch(url)

    async def start() -> None:
        for number in range(INTERRUPTED):
            await DBOS.start_workflow_async(two_steps, number)
        await asyncio.sleep(3600)

    asyncio.run(start())


def _wait_until_none_is_left() -> None:
    deadline = time.monotonic() + 120
    while DBOS.list_workflows(status=["PENDING", "ENQUEUED"], load_input=False, load_output=False, limit=1):
        if time.monotonic() > deadline:
            raise TimeoutError("runs are still left after two minutes")
        time.sleep(0.02)


def _resident_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return float("nan")


def _seconds(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def main(url: str, sections: list[str]) -> None:
    kind = url.split(":", 1)[0].replace("postgresql", "postgres")
    _launch(url)
    figures: list[dict[str, Any]] = []
    for name, section in SECTIONS.items():
        if not sections or name in sections:
            begin = time.perf_counter()
            figures += [{"who": "dbos", "database": kind, **figure} for figure in section(url)]
            print(f"dbos {kind} {name}: {time.perf_counter() - begin:.1f} s", file=sys.stderr)
    DBOS.destroy()
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    logging.getLogger("dbos").setLevel(logging.ERROR)
    if sys.argv[2:] == ["--interrupt"]:
        _interrupt(sys.argv[1])
    else:
        main(sys.argv[1], sys.argv[2:])
