"""A worker that waits for others, or for something that hangs: it says what it waits for, and leaves when it is told to."""

from __future__ import annotations

import fcntl
import os
import signal
import sqlite3
import threading
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest

from mainspring import Settings
from mainspring.errors import StoreUnavailable
from mainspring.store.open import open_store, sqlite_path
from mainspring.store.sqlite.store import SqliteStore
from tests.fleet import apps, hanging
from tests.support.processes import Fleet, eventually

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from mainspring import App
    from mainspring.store.protocol import Store

pytestmark = pytest.mark.processes
HANGING = "tests.fleet.hanging:app"
FEW_SECONDS = 8.0


@contextmanager
def locked(url: str) -> Generator[str]:
    """Somebody else holds what a worker needs to enter the fleet; how a worker calls them."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(sqlite_path(url), isolation_level=None)) as file:
            file.execute("BEGIN IMMEDIATE")
            yield f"process {os.getpid()} on"
    else:
        with psycopg.connect(url) as session:
            session.execute(b"LOCK TABLE mainspring.workers IN EXCLUSIVE MODE")
            yield f"the session {session.info.backend_pid}"
            session.rollback()


def test_a_worker_that_cannot_start_says_for_whom_it_waits_and_goes_on_when_it_is_free(
    fleet: Fleet, store: Store, store_url: str
) -> None:
    with locked(store_url) as who:
        worker = fleet.start_worker()
        worker.says(f"not ready yet: entering the fleet and declaring queues and schedules; {who}")
    worker.says("ready;")


def test_a_worker_that_cannot_start_leaves_when_it_is_told_to(fleet: Fleet, store: Store, store_url: str) -> None:
    with locked(store_url) as who:
        worker = fleet.start_worker()
        worker.says(who)
        worker.send(signal.SIGTERM)
        assert worker.wait(FEW_SECONDS) == 0


async def test_a_worker_whose_database_is_locked_leaves_when_it_is_told_to(
    fleet: Fleet, client: App, store: Store, store_url: str
) -> None:
    worker = fleet.worker(grace=1)
    with locked(store_url):
        worker.send(signal.SIGTERM)
        assert worker.wait(1 + FEW_SECONDS) in {0, 1}


@pytest.mark.parametrize("what", ["opening, async", "opening, def"])
def test_a_resource_that_hangs_while_it_opens_does_not_keep_the_worker(
    tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setenv("HANGING", what)
    with Fleet(tmp_path, sqlite_url, grace=1) as fleet:
        worker = fleet.start_worker(HANGING)
        worker.says("opening")
        worker.send(signal.SIGTERM)
        assert worker.wait(FEW_SECONDS) == 0


@pytest.mark.parametrize("what", ["closing, async", "closing, def"])
def test_a_resource_that_hangs_while_it_closes_does_not_keep_the_worker(
    tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setenv("HANGING", what)
    with Fleet(tmp_path, sqlite_url, grace=1) as fleet:
        worker = fleet.worker(HANGING)
        worker.send(signal.SIGTERM)
        assert worker.wait(1 + FEW_SECONDS) == 1
        name = "awaited" if "async" in what else "blocking"
        assert f"closing the resource '{name}'; ending the process, other workers recover its runs" in worker.output


def test_a_second_signal_ends_a_worker_whose_resource_hangs_at_once(
    tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANGING", "opening, def")
    with Fleet(tmp_path, sqlite_url, grace=60) as fleet:
        worker = fleet.start_worker(HANGING)
        worker.says("opening")
        for _ in range(2):
            worker.send(signal.SIGTERM)
            time.sleep(0.3)
        assert worker.wait(1) == 128 + signal.SIGTERM


async def test_a_step_that_does_not_care_to_be_cancelled_does_not_keep_the_worker(
    tmp_path: Path, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Fleet(tmp_path, store_url, grace=1) as fleet:
        worker = fleet.worker(HANGING)
        hanging.app._runtime.url, hanging.app._runtime.settings = store_url, Settings(work=False)
        try:
            await hanging.stands.start()
            worker.says("under way")
            worker.send(signal.SIGTERM)
            assert worker.wait(1 + FEW_SECONDS) == 1
        finally:
            hanging.app.close()


# -- turns at writing ----------------------------------------------------------------------------------------------------
@pytest.fixture
def turn(sqlite_url: str) -> Iterator[int]:
    """The turn at writing, taken by this process and never given back, as by one that froze."""
    descriptor = os.open(f"{sqlite_path(sqlite_url)}-turn", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.pwrite(descriptor, b"1 elsewhere", 0)
    yield descriptor
    os.close(descriptor)


async def test_a_process_that_froze_with_the_turn_at_writing_stops_nobody_for_longer_than_a_lease(
    tmp_path: Path, sqlite_url: str, turn: int
) -> None:
    with Fleet(tmp_path, sqlite_url, lease=1) as fleet:
        fleet.workers(2)
        apps.app._runtime.url, apps.app._runtime.settings = sqlite_url, Settings(work=False, lease=1)
        try:
            began = time.monotonic()
            assert await apps.three_steps(1) == 4
            assert time.monotonic() - began < 5
            fcntl.flock(turn, fcntl.LOCK_UN)
            assert await apps.three_steps(1) == 4
        finally:
            apps.app.close()


def test_a_turn_that_comes_too_late_is_given_back(sqlite_url: str, turn: int) -> None:
    path = sqlite_path(sqlite_url)
    with closing(SqliteStore(path, url=sqlite_url, lease=0.3)) as store:
        store.open()
        store.remember_version("v1", 1)
        fcntl.flock(turn, fcntl.LOCK_UN)

        def is_free() -> bool:
            try:
                fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            fcntl.flock(turn, fcntl.LOCK_UN)
            return True

        eventually(is_free, "nobody has the turn")
        eventually(lambda: "mainspring-turn" not in {each.name for each in threading.enumerate()}, "nobody waits")


def test_turns_are_taken_in_order_however_long_each_lasts(sqlite_url: str) -> None:
    """Longer than is asked again and again for it: then a thread waits."""
    path = sqlite_path(sqlite_url)
    with (
        closing(SqliteStore(path, url=sqlite_url)) as store,
        closing(SqliteStore(path, url=sqlite_url)) as other,
    ):
        store.open()
        other.open()
        waits = threading.Thread(target=other.remember_version, args=("v2", 2))
        with store._db.write() as db:  # pyright: ignore[reportPrivateUsage]
            waits.start()
            eventually(lambda: "mainspring-turn" in {each.name for each in threading.enumerate()}, "it waits")
            db.execute("INSERT INTO mainspring_versions VALUES ('v1', 1)")
        waits.join(5)
        assert not waits.is_alive()
        assert store.versions.first_seen() == {"v1": 1, "v2": 2}


def test_the_process_that_froze_in_a_transaction_is_named(
    tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.store.sqlite.database._LEAST_BUSY_SECONDS", 0.1)
    monkeypatch.setattr("mainspring.store.sqlite.database._BUSY_SECONDS", 0.2)
    frozen_in = (
        "import time; from mainspring.store.open import open_store; from mainspring import Settings\n"
        f"store = open_store({sqlite_url!r}, Settings()); store.open()\n"
        "with store._db.write(): print('in the middle', flush=True); time.sleep(60)"
    )
    with Fleet(tmp_path, sqlite_url) as fleet:
        frozen = fleet.process("-c", frozen_in)
        frozen.says("in the middle")
        frozen.freeze()
        with closing(open_store(sqlite_url, Settings(lease=0.3))) as store:
            store.open()
            with pytest.raises(StoreUnavailable, match=f"process {frozen.pid} on .* since .* stopped"):
                store.remember_version("v1", 1)
            assert [f"process {frozen.pid} on" in each for each in store.blockers()] == [True]
            frozen.thaw()
            frozen.kill()
            assert store.blockers() == []
