"""SQLite on a disk without room: a clear error at the call, work that pauses, and goes on when there is room again."""

from __future__ import annotations

import asyncio
import subprocess
from typing import TYPE_CHECKING

import pytest

from mainspring.errors import StoreFull
from tests.fleet import apps
from tests.fleet.conftest import connected
from tests.support.processes import Fleet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mainspring import App

pytestmark = pytest.mark.processes


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of four megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.fixture
def fleet(tmp_path: Path, small_disk: Path) -> Iterator[Fleet]:
    with Fleet(tmp_path, f"sqlite:///{small_disk}/store.db", lease=2, poll=60) as made:
        yield made


@pytest.fixture
def client(fleet: Fleet) -> Iterator[App]:
    yield from connected(fleet.url)


async def test_a_full_disk_is_a_clear_error_and_work_goes_on_when_there_is_room(
    fleet: Fleet, client: App, small_disk: Path
) -> None:
    worker = fleet.worker()
    handles = [await apps.gated.options(id=f"r{n}").start("middle") for n in range(3)]
    for n in range(3):
        fleet.wait_for_step(f"r{n}", "gate-middle")
    ballast = small_disk / "ballast"
    fill(ballast)

    with pytest.raises(StoreFull, match=r"the disk of .* is full"):
        await start_many()
    fleet.open_gate("middle")
    worker.says("is full: ")
    fleet.wait_for_step("r0", "passed-middle")

    ballast.unlink()
    assert {await handle.result(timeout=20) for handle in handles} == {worker.pid}
    for n in range(3):
        assert fleet.ledger.steps(f"r{n}") == ["one", "two", "gate-middle", "passed-middle", "three"]
    assert await asyncio.wait_for(apps.three_steps(1), 20) == 4


async def start_many() -> None:
    """What is left in the database's own files is used first."""
    for number in range(10_000):
        await apps.three_steps.options(id=f"more{number}", after=3600).start(number)


def fill(ballast: Path) -> None:
    """Use up all the room there is."""
    with ballast.open("wb", buffering=0) as file:
        for size in (64 * 1024, 4096, 512, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                continue
