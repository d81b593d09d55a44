"""`mainspring doctor` tells whether everything is well, and what helps if not."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

import psycopg
import pytest

from mainspring import App, Settings, Tx
from mainspring import run as mainspring_run
from mainspring.operations import health
from mainspring.store.sql.dialect import prefixed
from tests.store.build import StoreSettings
from tests.support.samples import covering

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Mainspring


pytestmark = pytest.mark.empty_database


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


def test_an_old_snapshot_is_named(mainspring: Mainspring, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_LONG_SNAPSHOT", 0.0)
    mainspring("db", "migrate", "--url", postgres_url)
    with psycopg.connect(postgres_url, application_name="nightly dump") as dump:
        dump.execute(b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        dump.execute(b"SELECT count(*) FROM mainspring.runs")
        findings = {
            one["subject"]: one for one in json.loads(mainspring("doctor", "--url", postgres_url, "-o", "json").stdout)
        }
        pid = dump.info.backend_pid
    assert f"session {pid} (nightly dump), idle in transaction, has one open" in findings["snapshot"]["found"]
    assert findings["snapshot"]["verdict"] == "look"
    assert re.fullmatch(r"\d+ of 197 used", findings["connections"]["found"])
    assert findings["retention"]["verdict"] == "ok"


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
            """INSERT INTO mainspring_runs (id, uid, workflow, kind, state, input, due, created, version, fingerprint, blocked)
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


@pytest.mark.parametrize(
    "content", [b"not a database at all", None, b"SQLite format 3\x00" + b"\x10\x00\x01\x01" * 1_000]
)
def test_a_file_that_is_no_database_is_a_finding(mainspring: Mainspring, tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "odd.db"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    result = mainspring("doctor", "--url", f"sqlite:///{file}")
    assert result.exit_code == 1
    assert f"wrong    database    sqlite:///{file} cannot be read: " in result.stdout
    assert "restore a backup" in result.stderr


def test_tables_that_are_behind_are_wrong(mainspring: Mainspring, tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    result = mainspring("doctor", "--url", f"sqlite:///{tmp_path}/empty.db")
    assert result.exit_code == 1
    assert "mainspring db migrate" in result.stderr


# -- what can never go on ------------------------------------------------------------------------------------------------
RUN = (
    "INSERT INTO runs (id, uid, workflow, kind, state, input, due, created, completed)"
    " VALUES ('{id}', '{id}', 'checkout', '{kind}', '{state}', '{{}}', {due}, 1, {completed})"
)
STEP = (
    "INSERT INTO steps (run, position, kind, name, epoch, child, due, completed)"
    " VALUES ('{run}', '0', '{kind}', 'pay', 1, {child}, {due}, NULL)"
)


def run(id: str, state: str, *, kind: str = "workflow", due: str = "NULL", completed: str = "NULL") -> str:  # noqa: A002
    return RUN.format(id=id, kind=kind, state=state, due=due, completed=completed)


def step(of: str, kind: str = "step", child: str = "NULL", due: str = "NULL") -> str:
    return STEP.format(run=of, kind=kind, child=child, due=due)


ODD = {
    "a run that waits for nothing": (
        [run("lost", "waiting")],
        "stuck",
        "run lost of checkout is waiting, and has nothing that it waits for",
        "runs SET due = 0 WHERE id = 'lost'",
    ),
    "a run whose open step nothing completes": (
        [run("lost", "waiting"), step("lost")],
        "stuck",
        "run lost of checkout is waiting, and has nothing that it waits for",
        "runs SET due = 0 WHERE id = 'lost'",
    ),
    "a promised run without its tick": (
        [run("lost", "scheduled")],
        "stuck",
        "run lost of checkout is scheduled at no time, and no tick of a schedule waits to start it",
        "runs SET due = 0 WHERE id = 'lost'",
    ),
    "a retry that is too late": (
        [run("lost", "waiting", due="6"), step("lost", due="5")],
        "stuck",
        "run lost of checkout is waiting for a time, and is not due then",
        "runs SET due = 0 WHERE id = 'lost'",
    ),
    "a retry that nobody wakes": (
        [run("lost", "waiting"), step("lost", due="5")],
        "stuck",
        "run lost of checkout is waiting for a time, and is not due then",
        "runs SET due = 0 WHERE id = 'lost'",
    ),
    "a wait for a run that is not there": (
        [run("lost", "waiting"), step("lost", "result", "'nobody'")],
        "stuck",
        "run lost of checkout is waiting for run nobody, which is not there",
        "runs SET due = 0 WHERE id = 'lost'",
    ),
    "a wait for a run that has ended": (
        [run("lost", "waiting"), step("lost", "result", "'done'"), run("done", "succeeded", completed="2")],
        "stuck",
        "run lost of checkout is waiting for something that has happened",
        "runs SET due = 0 WHERE id = 'lost'",
    ),
    "a run that nobody owns": (
        [run("lost", "running")],
        "stuck",
        "run lost of checkout is running, and no worker owns it",
        "SET state = 'queued'",
    ),
    "an ended run with a step under way": (
        [run("odd", "succeeded", completed="2"), step("odd")],
        "unfinished record",
        "run odd of checkout has succeeded, and its step pay at position 0 has no outcome",
        "look at what it does",
    ),
    "an ended transaction without its record": (
        [run("odd", "succeeded", kind="transaction", completed="2")],
        "lost record",
        "run odd of checkout has succeeded, and has no record of its transaction",
        "leave it as it is",
    ),
    "a queue that cannot be read": (
        ["INSERT INTO queues (name, limits, created) VALUES ('mails', '{\"concurrency\":\"x\"}', 1)"],
        "unreadable",
        "table queues, row mails: ValidationError",
        "mainspring queues set mails",
    ),
    "a table that is missing": (["DROP TABLE ticks"], "tables", "the table ticks is missing", ""),
    "a view that is missing": (
        ["DROP VIEW scheduled_functions"],
        "tables",
        "the view scheduled_functions is missing",
        "",
    ),
    "an index that is missing": (
        ["DROP INDEX runs_due"],
        "tables",
        "the index runs_due is missing",
        "CREATE INDEX runs_due",
    ),
    "a column that is missing": (
        ["ALTER TABLE workers DROP COLUMN crontab"],
        "tables",
        "the column crontab of table workers is missing",
        "mainspring db sql",
    ),
    "an index that is another one": (
        ["DROP INDEX schedules_due", "CREATE INDEX schedules_due ON schedules (cursor)"],
        "tables",
        "the index schedules_due is not as it should be",
        "schedules",
    ),
}


def on_sqlite(statement: str) -> str:
    """The statement with the names that tables and indexes have on SQLite."""
    named = re.sub(r"\b(TABLE|INDEX|ON) (?=[a-z])", r"\1 mainspring_", statement)
    return prefixed(named)


def change(url: str, statements: list[str]) -> None:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as file:
            for statement in statements:
                file.execute(on_sqlite(statement))
    else:
        with psycopg.connect(url) as session:
            session.execute("SET search_path TO mainspring")
            for statement in statements:  # a view depends on each column
                session.execute(f"{statement} CASCADE".encode() if "DROP" in statement else statement.encode())


@covering
@pytest.mark.parametrize("name", list(ODD))
@pytest.mark.parametrize("command", ["doctor", "db check"])
def test_what_should_not_be_so_is_found_and_says_what_helps(
    mainspring: Mainspring, store_url: str, name: str, command: str
) -> None:
    mainspring("db", "migrate", "--url", store_url)
    statements, what, which, hint = ODD[name]
    change(store_url, statements)
    result = mainspring(*command.split(), "--url", store_url)
    assert result.exit_code == 1, result.output
    (line,) = [each for each in result.stdout.replace("mainspring_", "").splitlines() if which in each]
    assert line.startswith("wrong")
    assert what in line
    assert hint in (line if command == "db check" else result.stderr.replace("mainspring_", ""))
    assert "Traceback" not in result.output


@pytest.mark.parametrize("command", ["doctor", "db check"])
def test_a_step_that_the_code_gave_up_between_two_attempts_is_well(
    mainspring: Mainspring, store_url: str, command: str
) -> None:
    mainspring("db", "migrate", "--url", store_url)
    change(store_url, [run("fine", "succeeded", completed="2"), step("fine", due="5")])
    result = mainspring(*command.split(), "--url", store_url)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("command", ["doctor", "db check"])
async def test_jobs_whose_end_is_their_only_record_are_well(
    mainspring: Mainspring, store_url: str, command: str
) -> None:
    """A job of a batch function that succeeds at once, and jobs that an operator completed before they began."""
    app = App(store_url)

    @app.step(batch=10)
    async def total(amounts: list[int]) -> list[int]:
        return amounts

    @app.step
    async def pay() -> None: ...

    @app.transaction
    def book(tx: Tx) -> None: ...

    async with app:
        assert await (await total.start(3)).result() == 3
        for number, job in enumerate((pay, book)):
            await job.options(id=f"by hand {number}", after="1d").start()
            await app.runs.complete(f"by hand {number}")
    result = await asyncio.to_thread(mainspring, *command.split(), "--url", store_url)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("command", ["doctor", "db check"])
async def test_a_step_that_was_under_way_when_an_operator_completed_its_run_is_well(
    mainspring: Mainspring, store_url: str, command: str
) -> None:
    mainspring("db", "migrate", "--url", store_url)
    change(store_url, [run("cut off", "queued", due="1"), step("cut off")])
    async with App(store_url, settings=Settings(work=False)) as app:
        assert await app.runs.complete("cut off")
    result = await asyncio.to_thread(mainspring, *command.split(), "--url", store_url)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("command", ["doctor", "db check"])
async def test_a_database_after_much_work_is_well(mainspring: Mainspring, store_url: str, command: str) -> None:
    """Runs that sleep, wait for others and for messages, were cancelled and have failed: all of that is as it should be."""
    app = App(store_url)

    @app.workflow(name="waits")
    async def waits(how: str) -> None:
        if how == "sleep":
            await mainspring_run.sleep(3_600)
        elif how == "message":
            await mainspring_run.receive("word")
        elif how == "child":
            await waits("sleep")
        elif how == "fail":
            raise ValueError(how)

    async with app:
        handles = [await waits.start(how) for how in ("sleep", "message", "child", "fail", "sleep")]
        await handles[-1].cancel()
        await waits("done")
        with pytest.raises(ValueError, match="fail"):
            await handles[3].result(timeout=10)
    result = await asyncio.to_thread(mainspring, *command.split(), "--url", store_url)
    assert result.exit_code == 0, result.output
    assert "wrong" not in result.stdout
    assert "look" not in result.stdout


@pytest.mark.parametrize("command", ["doctor", "db check"])
def test_a_garbage_page_is_found(mainspring: Mainspring, sqlite_url: str, command: str) -> None:
    mainspring("db", "migrate", "--url", sqlite_url)
    change(sqlite_url, [run(f"r{number:04}", "succeeded", completed="2") for number in range(500)])
    change(sqlite_url, ["PRAGMA wal_checkpoint(TRUNCATE)"])
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as file:
        (page,) = file.execute("SELECT rootpage FROM sqlite_master WHERE name = 'mainspring_runs_uid'").fetchone()
    with open(sqlite_url.removeprefix("sqlite:///"), "r+b") as raw:  # noqa: PTH123
        raw.seek((page - 1) * 4_096)
        raw.write(os.urandom(4_096))
    result = mainspring(*command.split(), "--url", sqlite_url)
    assert result.exit_code == 1
    assert "damage" in result.stdout
    assert "restore a backup" in result.output
    assert "Traceback" not in result.output


def test_a_process_that_holds_the_lock_is_named(mainspring: Mainspring, store_url: str) -> None:
    mainspring("db", "migrate", "--url", store_url)
    if store_url.startswith("sqlite"):
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLD, store_url.removeprefix("sqlite:///")], stdout=subprocess.PIPE
        )
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            result = mainspring("doctor", "--url", store_url)
        finally:
            holder.kill()
            holder.communicate()
        assert f"process {holder.pid} on" in result.stdout
    else:
        with (
            closing(psycopg.connect(store_url)) as session,
            ThreadPoolExecutor(1) as pool,
            closing(psycopg.connect(store_url, application_name="mainspring elsewhere-1")) as waiting,
        ):
            session.execute(b"LOCK TABLE mainspring.workers IN EXCLUSIVE MODE")
            waits = pool.submit(waiting.execute, b"DELETE FROM mainspring.workers")
            pid = session.info.backend_pid
            result = mainspring("doctor", "--url", store_url)
            session.rollback()
            waits.result(10)
        assert f"the session {pid}" in result.stdout
    assert result.exit_code == 1
    assert "locks" in result.stdout


@pytest.mark.parametrize("holds", ["one", "many"])
def test_a_process_that_holds_the_lock_again_and_again_is_well(monkeypatch: pytest.MonkeyPatch, holds: str) -> None:
    """It is the same process at every look, but not the same hold: a busy worker."""
    seconds = itertools.count()

    def busy(_url: str, _settings: object, *, everywhere: bool) -> list[str]:
        assert everywhere
        since = next(seconds) // 4 if holds == "many" else 0
        return [f"process 4711 on host holds the lock for writing since 12:00:{since:02} UTC, and is stopped"]

    monkeypatch.setattr(health, "blockers", busy)
    monkeypatch.setattr(health, "_MOMENT", 0)
    assert len(list(health._locks("sqlite://", StoreSettings()))) == (1 if holds == "one" else 0)


HOLD = """
import sqlite3, sys, time
file = sqlite3.connect(sys.argv[1], isolation_level=None)
file.execute("BEGIN IMMEDIATE")
print("held", flush=True)
time.sleep(60)
"""
