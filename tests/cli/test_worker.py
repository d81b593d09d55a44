"""`mainspring worker`: a real process that starts, executes, hands back when asked, and may be killed at any time."""

from __future__ import annotations

import asyncio
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from mainspring import State
from mainspring.cli.worker import stuck_threads
from tests.cli import shop
from tests.cli.conftest import connected, marks
from tests.support.processes import Fleet, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mainspring import App
    from tests.support.postgres import PostgresServer
    from tests.support.processes import Process

pytestmark = pytest.mark.processes

SHOP = "tests.cli.shop:app"


@pytest.fixture
def fleet(tmp_path: Path, store_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    monkeypatch.setenv("SHOP_FOLDER", str(tmp_path))
    with Fleet(tmp_path, store_url, lease=1, poll=1) as made:
        yield made


def packing(run_id: str) -> None:
    """Wait until a run stands in the middle of its second step."""
    eventually(lambda: "pack" in marks(run_id), f"{run_id} is being packed")


def pack() -> None:
    (shop.folder / "packed").touch()


async def test_it_executes_what_others_started_and_says_what_it_found(fleet: Fleet, client: App) -> None:
    pack()
    handle = await shop.checkout.start(1)
    worker = fleet.worker(SHOP)
    assert await handle.result(timeout=30) == "receipt 1, parcel 1"
    for words in ("checkout, doomed", "charge, hang, pack", f"version    {client.version}", "database   "):
        assert words in worker.output
    assert (await shop.app.handle(f"{handle.id}").describe()).version == client.version


async def test_the_first_signal_lets_the_step_finish_and_hands_the_run_back(fleet: Fleet, client: App) -> None:
    handle = await shop.checkout.options(id="order-1").start(1)
    first = fleet.worker(SHOP, grace=30)
    packing("order-1")

    first.send(signal.SIGTERM)
    first.says("waiting up to 30 s for a step of order-1 (checkout)")
    pack()
    assert first.wait() == 0
    first.says("stopped")
    info = await handle.describe()
    assert (info.state, info.worker, info.recoveries) == (State.QUEUED, None, 0)

    fleet.worker(SHOP)
    assert await handle.result(timeout=30) == "receipt 1, parcel 1"
    assert marks("order-1") == ["charge", "pack"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
async def test_a_second_signal_ends_it_at_once(fleet: Fleet, client: App, number: signal.Signals, code: int) -> None:
    await shop.checkout.options(id="order-1").start(1)
    worker = fleet.worker(SHOP, grace=60)
    packing("order-1")
    worker.send(signal.SIGTERM)
    worker.says("waiting up to 60 s")
    worker.send(number)
    assert worker.wait() == code


async def test_a_killed_worker_is_replaced_by_another(fleet: Fleet, client: App) -> None:
    handle = await shop.checkout.options(id="order-1").start(1)
    first = fleet.worker(SHOP)
    packing("order-1")
    first.kill()
    pack()
    fleet.worker(SHOP)
    assert await handle.result(timeout=30) == "receipt 1, parcel 1"
    assert marks("order-1") == ["charge", "pack", "pack"]
    assert (await handle.describe()).recoveries == 1


async def test_a_run_that_sleeps_goes_on_in_another_worker(fleet: Fleet, client: App) -> None:
    handle = await shop.slow.options(id="order-1").start(1)
    first = fleet.worker(SHOP)
    asleep = lambda: handle.describe.sync().state is State.WAITING  # noqa: E731
    await asyncio.to_thread(eventually, asleep, "order-1 sleeps")
    first.send(signal.SIGTERM)
    assert first.wait() == 0
    fleet.worker(SHOP)
    assert await handle.result(timeout=30) == "receipt 1"
    assert marks("order-1") == ["charge"]


async def test_a_thread_that_does_not_end_does_not_keep_the_process(fleet: Fleet, client: App) -> None:
    handle = await shop.stuck.options(id="stuck").start()
    worker = fleet.worker(SHOP, grace=0.1)
    eventually(lambda: "hang" in marks("stuck"), "the step hangs")
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert "without waiting for them" in worker.output
    assert not (await handle.describe()).state.ended


async def test_the_concurrency_of_the_command_wins(fleet: Fleet, client: App) -> None:
    for number in (1, 2):
        await shop.checkout.options(id=f"order-{number}").start(number)
    worker = fleet.process("-m", "mainspring", "worker", SHOP, "--concurrency", "1")
    worker.says("ready;")
    packing("order-1")
    pack()
    assert await shop.app.handle("order-2").result(timeout=30) == "receipt 2, parcel 2"


def _stops(worker: Process) -> None:
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0


def test_it_waits_for_a_file_that_cannot_be_opened_yet(tmp_path: Path) -> None:
    with Fleet(tmp_path, f"sqlite:///{tmp_path}/later/store.db") as fleet:
        worker = fleet.start_worker(SHOP)
        worker.says("retrying in 0.5 s")
        (tmp_path / "later").mkdir()
        worker.says("ready;")
        _stops(worker)


def test_it_can_be_stopped_while_it_waits_for_the_database(tmp_path: Path) -> None:
    with Fleet(tmp_path, f"sqlite:///{tmp_path}/never/store.db") as fleet:
        worker = fleet.start_worker(SHOP)
        worker.says("retrying")
        _stops(worker)


async def test_it_waits_for_a_server_that_is_down(
    own_postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_FOLDER", str(tmp_path))
    with own_postgres.database() as url, Fleet(tmp_path, url) as fleet:
        own_postgres.stop()
        worker = fleet.start_worker(SHOP)
        worker.says("retrying")
        own_postgres.start()
        worker.says("ready;")
        for app in connected(url, tmp_path, monkeypatch):
            assert app is shop.app
            assert await (await shop.ship.start(1)).result(timeout=30) == "parcel 1"
        _stops(worker)


@pytest.mark.parametrize("url", ["sqlite:////nowhere/at/all.db", "postgresql://someone:secret@127.0.0.1:1/nothing"])
def test_fail_fast_ends_with_one_sentence_and_no_password(tmp_path: Path, url: str) -> None:
    with Fleet(tmp_path, url) as fleet:
        worker = fleet.process("-m", "mainspring", "worker", SHOP, "--fail-fast")
        assert worker.wait() == 1
        assert worker.output.splitlines()[-1].startswith("error: ")
        assert "Traceback" not in worker.output
        assert "secret" not in worker.output


async def test_once_works_off_what_is_due_and_ends(fleet: Fleet, client: App) -> None:
    pack()
    for number in range(3):
        await shop.checkout.options(id=f"order-{number}").start(number)
    await shop.checkout.options(id="later", after="1d").start(9)
    worker = fleet.process("-m", "mainspring", "worker", SHOP, "--once")
    assert worker.wait() == 0
    states = [(await client.runs.get(each)).state for each in ("order-0", "order-1", "order-2", "later")]
    assert states == ["succeeded"] * 3 + ["scheduled"]


def test_an_idle_thread_of_an_executor_is_not_taken_for_one_that_does_not_end() -> None:
    release = threading.Event()
    with ThreadPoolExecutor(1, thread_name_prefix="of-a-library") as pool:
        pool.submit(int).result()
        eventually(
            lambda: not any(one.name.startswith("of-a-library") for one in stuck_threads()), "the thread is idle"
        )
        busy = pool.submit(release.wait)
        eventually(lambda: any(one.name.startswith("of-a-library") for one in stuck_threads()), "the thread is busy")
        release.set()
        assert busy.result()
