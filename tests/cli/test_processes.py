"""`mainspring worker --processes N`: workers that are replaced when they die, and that die with their supervisor."""

from __future__ import annotations

import os
import re
import signal
from typing import TYPE_CHECKING

import pytest

from tests.cli import shop
from tests.cli.conftest import marks
from tests.cli.test_worker import SHOP, fleet, pack
from tests.support.processes import eventually

if TYPE_CHECKING:
    from mainspring import App
    from tests.support.processes import Fleet, Process

pytestmark = pytest.mark.processes
__all__ = ["fleet"]
_READY = re.compile(r"process (\d+) \(pid (\d+)\) ready; worker (\S+)")


def ready(supervisor: Process) -> list[tuple[int, int]]:
    """Which workers were ever ready: number and process, in order."""
    return [(int(number), int(pid)) for number, pid, _ in _READY.findall(supervisor.output)]


def supervised(fleet: Fleet, count: int, *options: str, **settings: object) -> Process:
    made = fleet.process("-m", "mainspring", "worker", SHOP, "--processes", str(count), *options, **settings)
    eventually(lambda: len(ready(made)) >= count or not made.alive, "all are ready")
    return made


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def test_a_worker_that_is_killed_is_replaced_and_a_signal_stops_all(fleet: Fleet, client: App) -> None:
    pack()
    supervisor = supervised(fleet, 2)
    assert sorted(number for number, _ in ready(supervisor)) == [1, 2]
    assert supervisor.output.count("database   ") == 1
    number, pid = ready(supervisor)[0]
    os.kill(pid, signal.SIGKILL)
    supervisor.says(f"process {number} (pid {pid}) was ended by SIGKILL; restarting in 0.5 s")
    eventually(lambda: len(ready(supervisor)) == 3, "it is replaced")
    assert ready(supervisor)[2][0] == number
    handle = await shop.checkout.start(1)
    assert await handle.result(timeout=30) == "receipt 1, parcel 1"
    supervisor.send(signal.SIGTERM)
    supervisor.says("stopping 2 processes")
    assert supervisor.wait() == 0
    assert all(is_gone(each) for _, each in ready(supervisor))


async def test_workers_end_with_a_supervisor_that_is_killed(fleet: Fleet, client: App) -> None:
    supervisor = supervised(fleet, 2)
    supervisor.kill()
    eventually(lambda: all(is_gone(pid) for _, pid in ready(supervisor)), "they are gone, too")


async def test_a_second_signal_ends_all_at_once(fleet: Fleet, client: App) -> None:
    await shop.checkout.options(id="order-1").start(1)
    supervisor = supervised(fleet, 1, grace=60)
    eventually(lambda: "pack" in marks("order-1"), "it is in a step")
    supervisor.send(signal.SIGTERM)
    supervisor.says("stopping 1 process")
    supervisor.send(signal.SIGTERM)
    assert supervisor.wait() == 143


async def test_a_second_signal_is_not_lost_while_the_first_is_pending(fleet: Fleet, client: App) -> None:
    await shop.checkout.options(id="order-1").start(1)
    supervisor = supervised(fleet, 1, grace=60)
    eventually(lambda: "pack" in marks("order-1"), "it is in a step")
    ((_, pid),) = ready(supervisor)
    os.kill(pid, signal.SIGSTOP)
    supervisor.send(signal.SIGTERM)
    supervisor.says("stopping 1 process")
    supervisor.send(signal.SIGTERM)
    supervisor.says("ending them at once")
    os.kill(pid, signal.SIGCONT)
    assert supervisor.wait() == 143


async def test_once_ends_when_all_have_ended(fleet: Fleet, client: App) -> None:
    pack()
    handle = await shop.checkout.start(1)
    supervisor = fleet.process("-m", "mainspring", "worker", SHOP, "--processes", "2", "--once")
    assert supervisor.wait() == 0
    assert await handle.result(timeout=0) == "receipt 1, parcel 1"
