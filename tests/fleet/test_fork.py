"""An app that was used before the process forked works in the child, over a connection of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.processes import Fleet

if TYPE_CHECKING:
    from pathlib import Path

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

store = apps.app.runtime.connection().store
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
