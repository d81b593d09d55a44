"""Several real processes on one database at once: everything that was acknowledged is there, and nobody starves."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from mainspring.store.open import open_store
from tests.store.build import StoreSettings

if TYPE_CHECKING:
    from mainspring.store.protocol import Store

WRITERS = 3
RUNS = 40
STEPS = 5
LONGEST_WAIT = 5.0

WRITER = """
import json, sys, time
from mainspring.store.open import open_store
from mainspring.store.writes import Start, Verdict, RecordStep
from tests.store.build import NOW, StoreSettings, finish, owned, request, run, step

url, me, runs, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
store = open_store(url, StoreSettings())
store.open()
print("ready", flush=True)
sys.stdin.readline()
longest, claimed = 0.0, 0


def timed(work):
    global longest
    begun = time.perf_counter()
    answers = work()
    longest = max(longest, time.perf_counter() - begun)
    return answers


for number in range(runs):
    name = f"{me}-{number}"
    assert timed(lambda: store.apply([Start(owned(name, me)), Start(run(f"{name}-queued"))], NOW))[0].created
    for position in range(steps):
        (written,) = timed(lambda: store.apply([RecordStep(me, step(name, str(position)))], NOW))
        assert written.verdict is Verdict.DONE
    assert timed(lambda: store.apply([finish(name, me)], NOW)) == [Verdict.DONE]
    claimed += len(timed(lambda: store.claim(request(me, 3))).claims)
store.close()
print(json.dumps({"longest": longest, "claimed": claimed}))
"""


@pytest.mark.processes
def test_processes_that_write_at_once_lose_nothing_and_wait_for_nobody_long(store: Store, store_url: str) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, store_url, f"w{number}", str(RUNS), str(STEPS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(WRITERS)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    reports: list[dict[str, Any]] = [json.loads(process.communicate(timeout=60)[0]) for process in processes]
    assert [process.returncode for process in processes] == [0] * WRITERS
    assert max(report["longest"] for report in reports) < LONGEST_WAIT

    for number in range(WRITERS):
        assert len(store.steps(f"w{number}-{RUNS - 1}")) == STEPS
    counts = store.counts()
    claimed = sum(report["claimed"] for report in reports)
    assert counts.get("running", 0) == claimed, "each claimed run is in one hand"
    assert counts.get("queued", 0) + claimed == WRITERS * RUNS


@pytest.mark.processes
def test_a_process_that_is_killed_in_the_middle_leaves_the_database_usable(store: Store, store_url: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, store_url, "victim", "100000", "5"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "ready\n"
    process.stdin.write("go\n")
    process.stdin.flush()
    while len(store.steps("victim-3")) < STEPS:
        assert process.poll() is None
    process.kill()
    process.communicate()
    with closing(open_store(store_url, StoreSettings())) as other:
        other.open()
        assert len(other.steps("victim-2")) == STEPS
    store.retire("victim", 1, None)
    assert store.orphaned() == []
