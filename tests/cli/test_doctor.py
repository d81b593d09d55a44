"""`mainspring doctor` tells whether everything is well, and what helps if not."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
from contextlib import closing
from typing import TYPE_CHECKING

from mainspring import App

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Mainspring


def test_a_fresh_database_is_well(mainspring: Mainspring, store_url: str) -> None:
    mainspring("db", "migrate", "--url", store_url)
    result = mainspring("doctor", "--url", store_url)
    assert result.exit_code == 0
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in result.stdout
    assert ("journal mode wal" if store_url.startswith("sqlite") else "psycopg 3") in result.stdout
    assert "time zones" in result.stdout


def test_ready_runs_without_a_worker_are_wrong(mainspring: Mainspring, history: str) -> None:
    result = mainspring("doctor", "--url", history)
    assert result.exit_code == 1
    assert "no live one, and 1 runs to execute" in result.stdout
    assert "1 queued, 1 scheduled" in result.stdout
    assert "mainspring worker" in result.stderr


async def test_a_living_worker_is_well(mainspring: Mainspring, client: App, store_url: str) -> None:
    async with client:
        result = await asyncio.to_thread(mainspring, "doctor", "--url", store_url, "-o", "json")
    assert result.exit_code == 0
    findings = {one["subject"]: one for one in json.loads(result.stdout)}
    assert findings["worker"]["verdict"] == "ok"
    assert f"version {client.version}" in findings["worker"]["found"]


async def test_workers_are_listed_while_they_live(mainspring: Mainspring, client: App, store_url: str) -> None:
    async with client:
        (found,) = json.loads(
            (await asyncio.to_thread(mainspring, "workers", "list", "--url", store_url, "-o", "json")).stdout
        )
        table = (await asyncio.to_thread(mainspring, "workers", "list", "--url", store_url)).stdout
        ids = (await asyncio.to_thread(mainspring, "workers", "list", "--url", store_url, "-o", "ids")).stdout
    assert (found["version"], found["pid"]) == (client.version, os.getpid())
    assert table.splitlines()[1].startswith(found["id"])
    assert ids == f"{found['id']}\n"
    assert mainspring("workers", "list", "--url", store_url, "-o", "ids").stdout == ""


async def test_runs_that_no_worker_knows_are_wrong(mainspring: Mainspring, client: App, store_url: str) -> None:
    other = App(store_url)

    @other.workflow
    async def unheard_of() -> None: ...

    await unheard_of.start()
    other.close()
    async with client:
        result = await asyncio.to_thread(mainspring, "doctor", "--url", store_url)
    assert result.exit_code == 1
    assert "1 of unheard_of, which no worker knows" in result.stdout


def test_stranded_runs_are_shown_with_what_helps(mainspring: Mainspring, sqlite_url: str) -> None:
    mainspring("db", "migrate", "--url", sqlite_url)
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as database, database:
        database.execute(
            """INSERT INTO runs (id, uid, workflow, kind, state, input, due, created, version, fingerprint, stranded)
               VALUES ('order-7', 'u', 'checkout', 'workflow', 'queued', '{}', 0, 0, 'v1', 'f', '{"reason": "its source has changed"}')"""
        )
    result = mainspring("doctor", "--url", sqlite_url)
    assert result.exit_code == 1
    assert "order-7: its source has changed" in result.stdout
    assert "MAINSPRING_CONTINUE_ON=compatible" in result.stderr
    assert mainspring("runs", "list", "--stranded", "-o", "ids", "--url", sqlite_url).stdout == "order-7\n"


def test_a_database_that_cannot_be_reached_is_wrong_and_the_password_is_not_shown(mainspring: Mainspring) -> None:
    result = mainspring("doctor", "--url", "postgresql://someone:secret@127.0.0.1:1/nothing")
    assert result.exit_code == 1
    assert "database" in result.stdout
    assert "secret" not in result.output


def test_tables_that_are_behind_are_wrong(mainspring: Mainspring, tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    result = mainspring("doctor", "--url", f"sqlite:///{tmp_path}/empty.db")
    assert result.exit_code == 1
    assert "mainspring db migrate" in result.stderr
