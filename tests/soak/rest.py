"""What must be so once the load and the faults are over and the workers still live: everything ends, all slots are free, nothing is odd."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from mainspring import App, Settings
from mainspring.errors import StoreError
from tests.soak.app import app
from tests.soak.functions import jobs
from tests.soak.ledger import BEGIN
from tests.soak.workers import CONCURRENCY, SETTINGS, THREADS
from tests.support.audit import all_runs, unfinished
from tests.support.processes import PROJECT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mainspring.store.protocol import Store
    from tests.soak.workers import Workers

_LOOK = 0.1
_SLOTS_WITHIN = 30.0
_MOST_EXPORTED = 300


# -- nothing waits that nothing will wake ---------------------------------------------------------------------------------------
async def drained(store: Store, workers: Workers, within: float) -> list[str]:
    """Wait until every run has ended. What is left after that time is a finding, with the stacks of the workers in their logs."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            if not await asyncio.to_thread(unfinished, store):
                return []
        except StoreError:
            pass
        await asyncio.to_thread(workers.fill)
        await asyncio.sleep(_LOOK)
    workers.fleet.print_stacks()
    return [*_left(store)]


def _left(store: Store) -> Iterator[str]:
    for run in all_runs(store):
        if not run.state.ended:
            steps = "".join(f"\n    {step}" for step in store.steps(run.id) if step.completed is None)
            yield f"run {run.id} of {run.workflow} has not ended and nothing goes on: {run}{steps}"


def examined(url: str) -> Iterator[str]:
    """What `mainspring doctor` and `mainspring db check` find."""
    told = {f"MAINSPRING_{name.upper()}": str(value) for name, value in SETTINGS.items()}
    for command in (["doctor", "--output", "json"], ["db", "check"]):
        done = subprocess.run(
            [sys.executable, "-m", "mainspring", *command, "--url", url],
            capture_output=True,
            text=True,
            cwd=PROJECT,
            env=os.environ | told,
            check=False,
            timeout=120,
        )
        if done.returncode and command[0] == "doctor" and done.stdout.startswith("["):
            for each in json.loads(done.stdout):
                if each["verdict"] == "wrong":
                    yield f"mainspring doctor: {each['subject']}: {each['found']}"
        elif done.returncode:
            yield f"mainspring {' '.join(command)}: {done.stdout}{done.stderr}"


# -- no slot is missing ---------------------------------------------------------------------------------------------------------
async def all_slots_are_free(workers: Workers, ledger: Path) -> list[str]:
    """As many runs as there are slots must be at work at once: in the workers, and in every queue."""
    size = len(workers.alive)
    probes: list[tuple[str, Any, int, dict[str, Any]]] = [
        ("workers", jobs.gated, size * CONCURRENCY, {}),
        ("threads", jobs.gated_blocking, size * THREADS, {}),
        ("three", jobs.gated, 3, {"queue": "three"}),
        ("serial", jobs.gated, 1, {"queue": "serial"}),
        ("retried", jobs.gated, 4, {"queue": "retried"}),
        ("per_worker", jobs.gated, 2 * size, {"queue": "per_worker"}),
        ("tenants", jobs.gated, 6, {"queue": "tenants", "partitions": "abcdef"}),
        ("tenants_per_worker", jobs.gated, 3 * size, {"queue": "tenants_per_worker", "partitions": "abc"}),
    ]
    findings: list[str] = []
    for name, function, count, options in probes:
        partitions = options.pop("partitions", "")
        handles: list[Any] = []
        for number in range(count):
            chosen = options | ({"partition": partitions[number % len(partitions)]} if partitions else {})
            handles.append(await function.options(id=f"probe-{name}-{number}", **chosen).start(name))
        ids: set[str] = {handle.id for handle in handles}
        if not await _until(partial(_all_begun, ids, ledger), _SLOTS_WITHIN):
            missing = sorted(ids - _begun(ledger))
            findings.append(f"{len(missing)} of {count} slots of {name} are missing: {missing[:5]} did not begin")
            workers.fleet.print_stacks()
        workers.fleet.open_gate(name)
        await asyncio.gather(*(handle.result() for handle in handles))
    return findings


def _all_begun(runs: set[str], ledger: Path) -> bool:
    return runs <= _begun(ledger)


def _begun(ledger: Path) -> set[str]:
    with ledger.open("rb") as file:
        lines = (json.loads(line) for line in file if b'"run":"probe-' in line)
        return {line["run"] for line in lines if line["what"] == BEGIN}


async def _until(condition: Callable[[], bool], within: float) -> bool:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if await asyncio.to_thread(condition):
            return True
        await asyncio.sleep(_LOOK)
    return False


# -- export and load ------------------------------------------------------------------------------------------------------------
async def exported_and_loaded(store: Store, folder: Path) -> list[str]:
    """Runs that are exported, loaded into an empty database and exported from there are the same."""
    ids = [run.id for run in all_runs(store) if run.parent is None]
    step = max(1, len(ids) // _MOST_EXPORTED)
    chosen = ids[::step]
    lines = await app.runs.export(*chosen)
    other = App(f"sqlite:///{folder}/loaded.db", settings=Settings(work=False))
    try:
        await other.runs.load(lines)
        again = await other.runs.export(*chosen)
    finally:
        await asyncio.to_thread(other.close)
    before, after = sorted(lines), sorted(again)
    return [f"lost or changed by export and load: {line}" for line in before if line not in set(after)][:5] + [
        f"made or changed by export and load: {line}" for line in after if line not in set(before)
    ][:5]
