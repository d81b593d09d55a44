"""An app that was used before the process forked works in the child, over a connection of its own."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.processes import Fleet, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from mainspring.store.protocol import Store
    from tests.support.processes import Process

pytestmark = pytest.mark.processes

SCRIPT = """
import os, sys, threading
from tests.fleet import apps

def use(name):
    handle = apps.three_steps.options(id=name).start.sync(1)
    assert handle.result.sync(timeout=20) == 4, name
    assert handle.describe.sync().id == name

use("before")
pid = os.fork()
if pid == 0:
    use("child")
    apps.app.close()
    os._exit(0)
use("parent")
_, status = os.waitpid(pid, 0)
use("after")
apps.app.close()
sys.exit(os.waitstatus_to_exitcode(status))
"""
WORKING = """
import os, sys
from tests.fleet import apps

async_result = []
with apps.app:
    assert apps.three_steps.sync(1) == 4
    pid = os.fork()
    if pid == 0:
        # It does not execute here: the parent's threads are not ours. Starting and asking works.
        handle = apps.three_steps.options(id="child").start.sync(1)
        assert handle.result.sync(timeout=20) == 4
        os._exit(0)
    assert apps.three_steps.sync(2) == 5
    _, status = os.waitpid(pid, 0)
    assert apps.three_steps.sync(3) == 6
sys.exit(os.waitstatus_to_exitcode(status))
"""
PRELOADED = """
import os, sys
from tests.fleet import apps

apps.three_steps.options(id="before").start.sync(1)   # as gunicorn does with --preload
children = []
for number in range(2):
    pid = os.fork()
    if pid == 0:
        with apps.app:
            for attempt in range(10):
                assert apps.three_steps.sync(attempt) == attempt + 3
        os._exit(0)
    children.append(pid)
codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
assert apps.app.handle("before").result.sync(timeout=20) == 4
apps.app.close()
sys.exit(max(codes))
"""
HOLDING = """
import os, time
from tests.fleet import apps

store = apps.app._runtime.connection().store
with store._db.write():
    if os.fork() == 0:
        print("child lives", flush=True)
        time.sleep(60)
    time.sleep(60)
"""


def test_an_app_used_before_a_fork_works_on_both_sides(fleet: Fleet) -> None:
    fleet.worker()
    assert fleet.process("-c", SCRIPT).wait() == 0


def test_a_child_of_a_worker_can_start_and_ask(fleet: Fleet) -> None:
    assert fleet.process("-c", WORKING).wait() == 0


def test_a_preloaded_app_works_in_every_forked_process(fleet: Fleet) -> None:
    assert fleet.process("-c", PRELOADED).wait() == 0


async def test_a_child_that_outlives_its_parent_does_not_keep_the_parents_turn_at_writing(
    tmp_path: Path, sqlite_url: str
) -> None:
    """As the processes of a pool do that was forked by a worker which then is killed."""
    with Fleet(tmp_path, sqlite_url) as fleet:
        holder = fleet.process("-c", HOLDING)
        holder.says("child lives")
        holder.kill()
        fleet.worker()


# -- inside a run --------------------------------------------------------------------------------------------------------
INSIDE = """
import json, os, sys
from tests.fleet import forking
me = os.getpid()
name, how = sys.argv[1:]
with forking.app:
    handle = getattr(forking, name).options(id="r").start.sync(how)
    result = handle.result.sync(timeout=20)
    steps = [step.name for step in forking.app._runtime.connection().store.steps("r")]
    later = forking.plain.start.sync().result.sync(timeout=20)
assert os.getpid() == me
print("result", json.dumps([result, steps, later]), flush=True)
"""
CODES = {"return": 0, "exit": 3, "words": 1, "raise": 1}


def inside(fleet: Fleet, name: str, how: str) -> tuple[Any, list[str], Process]:
    """What a run comes to whose function forks, and what it recorded."""
    process = fleet.process("-c", INSIDE, name, how, lease=30)
    assert process.wait() == 0, process.output
    result, steps, later = json.loads(process.output.partition("result ")[2].partition("\n")[0])
    assert later == "plain"
    assert process.output.count("result ") == 1
    eventually(lambda: left_behind(process.pid) == [], "no process is left behind")
    return result, steps, process


def left_behind(session: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "-s", str(session)], capture_output=True, text=True, check=False).stdout
    return [int(pid) for pid in found.split()]


@pytest.mark.parametrize(
    ("name", "how"),
    [
        *(("def_def", how) for how in CODES),
        ("async_def", "exit"),
        ("async_async", "return"),
        ("async_async", "exit"),
        ("def_body", "return"),
        ("async_body", "return"),
        ("async_body", "exit"),
        ("in_transaction", "return"),
        ("in_transaction", "raise"),
    ],
)
def test_a_child_that_leaves_the_function_it_was_forked_in_ends_and_records_nothing(
    fleet: Fleet, name: str, how: str
) -> None:
    result, steps, process = inside(fleet, name, how)
    assert result == CODES[how]
    assert steps == ([] if "body" in name else [steps[0]])
    assert ("ValueError: the child's" in process.output) is (how == "raise")
    assert ("not good" in process.output) is (how == "words")


def test_a_child_does_not_go_on_in_the_event_loop_of_its_parent(fleet: Fleet) -> None:
    result, steps, process = inside(fleet, "async_async", "await")
    assert (result, steps) == (1, ["async_step"])
    assert "cannot continue in the event loop of its parent" in process.output


@pytest.mark.parametrize("name", ["def_def", "async_def"])
def test_a_child_is_outside_of_the_run_and_can_use_the_app(fleet: Fleet, name: str, store: Store) -> None:
    result, _, process = inside(fleet, name, "outside")
    assert result == 5
    assert "NotInRun" in process.output
    found = store.run("of the child")
    assert found is not None
    assert found.parent is None


def test_a_pool_of_forked_processes_works_in_a_step(fleet: Fleet) -> None:
    assert inside(fleet, "with_pool", "return")[0] == [0, 1, 4, 9]
