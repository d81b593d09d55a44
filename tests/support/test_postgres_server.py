from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.postgres import PostgresServer, Shutdown

PROJECT = Path(__file__).parents[2]
OWNER = """
from tests.support.postgres import PostgresServer

server = PostgresServer(fsync=False)
server.start()
print(server.pid, server.directory, flush=True)
input()
"""
without_fsync = pytest.mark.parametrize("own_postgres", [{"fsync": False}], indirect=True)


def test_each_test_gets_an_empty_database_of_its_own(shared_postgres: PostgresServer) -> None:
    with shared_postgres.database() as one, shared_postgres.database() as other:
        assert one != other
        execute(one, "CREATE TABLE here (n int)")
        assert tables(one) == ["here"]
        assert tables(other) == []


def test_a_database_is_gone_after_its_block_even_if_someone_is_still_connected(shared_postgres: PostgresServer) -> None:
    with shared_postgres.database() as url:
        lingering = psycopg.connect(url)
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(url)
    lingering.close()


def test_a_database_can_be_the_template_of_the_next(shared_postgres: PostgresServer) -> None:
    template = shared_postgres.create_database()
    execute(template, "CREATE TABLE prepared (n int)")
    name = template.split("?")[0].rsplit("/", 1)[1]
    copy = shared_postgres.create_database(template=name)
    assert tables(copy) == ["prepared"]


def test_the_shared_server_does_not_wait_for_the_disk(postgres_url: str) -> None:
    assert setting(postgres_url, "fsync") == "off"


def test_a_server_of_ones_own_waits_for_the_disk(own_postgres: PostgresServer) -> None:
    assert setting(own_postgres.url(), "fsync") == "on"


@without_fsync
@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_committed_rows_and_the_url_survive_a_restart(own_postgres: PostgresServer, mode: Shutdown) -> None:
    url = own_postgres.create_database()
    execute(url, "CREATE TABLE kept AS SELECT 7 AS n")
    first = own_postgres.pid

    own_postgres.stop(mode)
    assert own_postgres.pid is None
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)

    own_postgres.start()
    assert own_postgres.pid not in {None, first}
    assert fetch(url, "SELECT n FROM kept") == [(7,)]


@without_fsync
def test_stopping_and_starting_twice_is_harmless(own_postgres: PostgresServer) -> None:
    running = own_postgres.pid
    own_postgres.start()
    assert own_postgres.pid == running
    own_postgres.stop()
    own_postgres.stop()


def test_terminating_backends_cuts_the_connections_of_one_database_only(shared_postgres: PostgresServer) -> None:
    with (
        shared_postgres.database() as cut,
        shared_postgres.database() as spared,
        psycopg.connect(spared) as witness,
    ):
        victims = [psycopg.connect(cut, autocommit=True) for _ in range(2)]
        assert shared_postgres.terminate_backends(cut) == 2
        for victim in victims:
            with pytest.raises(psycopg.OperationalError):
                victim.execute("SELECT 1")
            victim.close()
        assert witness.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.processes
def test_the_server_goes_when_its_owner_is_killed() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with owner:
        assert owner.stdout is not None
        pid, directory = owner.stdout.readline().split()
        assert alive(int(pid))
        owner.send_signal(signal.SIGKILL)
    eventually(lambda: not alive(int(pid)) and not Path(directory).exists())


def test_store_url_is_usable_on_either_kind(store_url: str) -> None:
    if store_url.startswith("sqlite:////"):
        path = Path(store_url.removeprefix("sqlite:///"))
        assert not path.exists()
        sqlite3.connect(path).close()
    else:
        assert tables(store_url) == []


def execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def fetch(url: str, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(query.encode()).fetchall()


def tables(url: str) -> list[object]:
    return [name for (name,) in fetch(url, "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")]


def setting(url: str, name: str) -> object:
    return fetch(url, f"SHOW {name}")[0][0]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A process that has ended but that nobody has asked about yet still has a number.
    status = Path(f"/proc/{pid}/stat")
    return not (status.exists() and status.read_text().rsplit(")", 1)[1].split()[0] == "Z")


def eventually(condition: Callable[[], bool], within: float = 20) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
