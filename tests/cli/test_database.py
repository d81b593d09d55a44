"""`mainspring db` makes, checks and prints the tables."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from mainspring import Settings
from mainspring.store.open import open_store, sqlite_path
from tests.cli import shop
from tests.store import raw

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainspring import App
    from tests.cli.conftest import Mainspring

pytestmark = pytest.mark.empty_database

FIRST = "0001_initial"


def test_a_dry_run_names_the_migrations_and_makes_nothing(mainspring: Mainspring, store_url: str) -> None:
    result = mainspring("db", "migrate", "--dry-run", "--url", store_url)
    assert (result.exit_code, result.stdout.split()[0]) == (0, FIRST)
    assert mainspring("db", "check", "--url", store_url).exit_code == 1


def test_tables_are_made_once(mainspring: Mainspring, store_url: str) -> None:
    first = mainspring("db", "migrate", "--url", store_url)
    assert first.stdout.split()[0] == FIRST
    again = mainspring("db", "migrate", "--url", store_url)
    assert (again.exit_code, again.stdout) == (0, "")
    assert "up to date" in again.stderr
    checked = mainspring("db", "check", "--url", store_url)
    assert (checked.exit_code, checked.stdout) == (0, first.stdout.split()[-1] + "\n")


def test_tables_of_a_newer_version_are_refused(mainspring: Mainspring, sqlite_url: str) -> None:
    mainspring("db", "migrate", "--url", sqlite_url)
    with contextlib.closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as database, database:
        database.execute("INSERT INTO mainspring_migrations VALUES ('9999_something_new', '')")
    for verb in ("check", "migrate"):
        result = mainspring("db", verb, "--url", sqlite_url)
        assert result.exit_code == 1
        assert "9999_something_new" in result.stderr
        assert "newer" in result.stderr


def test_an_edited_migration_is_named_with_what_to_do(mainspring: Mainspring, store_url: str) -> None:
    mainspring("db", "migrate", "--url", store_url)
    raw.execute(store_url, "UPDATE {schema}migrations SET checksum = 'of another file'")
    for verb in (["db", "check"], ["db", "migrate"], ["doctor"], ["runs", "list"]):
        result = mainspring(*verb, "--url", store_url)
        assert result.exit_code == 1
        assert FIRST in result.output
        assert "edited after it was applied" in result.output
        assert "set its checksum in the table migrations to " in result.output


async def test_the_printed_sql_can_be_run_by_hand(mainspring: Mainspring, client: App, store_url: str) -> None:
    dialect = "sqlite" if store_url.startswith("sqlite") else "postgres"
    script = mainspring("db", "sql", "--dialect", dialect)
    assert script.exit_code == 0
    _execute(store_url, script.stdout)
    assert mainspring("db", "check", "--url", store_url).exit_code == 0
    async with client:
        assert await shop.ship(1) == "parcel 1"


def _execute(url: str, script: str) -> None:
    if url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
            database.executescript(script)
    else:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(script.encode())


def test_the_dialect_is_that_of_the_url_in_the_environment(mainspring: Mainspring) -> None:
    env = {"MAINSPRING_URL": "postgresql://nobody@nowhere/nothing"}
    assert "CREATE SCHEMA" in mainspring("db", "sql", env=env).stdout
    assert "WITHOUT ROWID" in mainspring("db", "sql").stdout


@pytest.mark.parametrize(
    "arguments",
    [["runs", "list"], ["runs", "show", "a"], ["runs", "cancel", "a"], ["db", "check"], ["doctor"]],
    ids=" ".join,
)
def test_looking_does_not_make_a_file(mainspring: Mainspring, tmp_path: Path, arguments: list[str]) -> None:
    result = mainspring(*arguments, "--url", f"sqlite:///{tmp_path}/absent.db")
    assert result.exit_code == 1
    assert "there is no database file" in result.output
    assert list(tmp_path.iterdir()) == []


def test_looking_at_tables_that_are_behind_says_what_to_do(mainspring: Mainspring, tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "empty.db").close()
    (tmp_path / "empty.db").touch()
    result = mainspring("runs", "list", "--url", f"sqlite:///{tmp_path}/empty.db")
    assert result.exit_code == 1
    assert "mainspring db migrate" in result.stderr


def test_a_database_that_was_migrated_by_an_app_is_up_to_date(mainspring: Mainspring, store_url: str) -> None:
    store = open_store(store_url, Settings())
    store.open()
    store.close()
    assert mainspring("db", "check", "--url", store_url).exit_code == 0


@pytest.mark.parametrize("table", ["runs", "steps", "migrations"])
def test_tables_of_somebody_else_are_left_alone_and_named(mainspring: Mainspring, store_url: str, table: str) -> None:
    if store_url.startswith("sqlite"):
        table = f"mainspring_{table}"
    statements = [f"CREATE TABLE {table} (title text)", f"INSERT INTO {table} VALUES ('mine')"]
    if store_url.startswith("sqlite"):
        with closing(sqlite3.connect(sqlite_path(store_url))) as file, file:
            for statement in statements:
                file.execute(statement)
    else:
        with psycopg.connect(store_url) as session:
            for statement in ("CREATE SCHEMA mainspring", "SET search_path TO mainspring", *statements):
                session.execute(statement.encode())
    result = mainspring("db", "migrate", "--url", store_url)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    for name in ("OperationalError", "DuplicateTable", "UndefinedColumn", "Traceback"):
        assert name not in result.output
    assert table in result.stderr or "title" in result.stderr or "name" in result.stderr
    look = f"SELECT title FROM {table}"
    if store_url.startswith("sqlite"):
        with closing(sqlite3.connect(sqlite_path(store_url))) as file:
            assert file.execute(look).fetchall() == [("mine",)]
            assert file.execute("SELECT count(*) FROM sqlite_master WHERE type = 'table'").fetchall() == [(1,)]
    else:
        with psycopg.connect(store_url) as session:
            assert session.execute(look.replace("FROM ", "FROM mainspring.").encode()).fetchall() == [("mine",)]


@pytest.fixture
def read_only_folder() -> Iterator[Path]:
    """A folder that this process may not write to, also if it is root's."""
    folder = Path(tempfile.mkdtemp(prefix="mainspring-read-only-"))
    was = os.geteuid()
    yield folder
    os.seteuid(was)
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.parametrize("arguments", [["db", "migrate"], ["db", "check"], ["doctor"], ["runs", "list"]])
def test_a_folder_that_cannot_be_written_to_is_an_error_in_words(
    mainspring: Mainspring, read_only_folder: Path, tmp_path: Path, arguments: list[str]
) -> None:
    mainspring(*arguments, "--url", f"sqlite:///{tmp_path / 'fine.db'}")  # what is loaded late is loaded now
    file = read_only_folder / "store.db"
    if arguments != ["db", "migrate"]:
        file.touch()
    file.parent.chmod(0o555)
    if os.geteuid() == 0:
        os.seteuid(pwd.getpwnam("nobody").pw_uid)
    result = mainspring(*arguments, "--url", f"sqlite:///{file}")
    assert result.exit_code == 1
    assert "Permission denied" in result.output
    assert str(read_only_folder) in result.output
    assert "PermissionError" not in result.output
    assert "Traceback" not in result.output


def test_tables_of_plain_names_are_the_users_own(mainspring: Mainspring, sqlite_url: str) -> None:
    """A file that has tables of its own can be used, whatever they are called."""
    names = ["runs", "messages", "events", "queues", "steps", "migrations"]
    with closing(sqlite3.connect(sqlite_path(sqlite_url))) as file, file:
        for name in names:
            file.execute(f"CREATE TABLE {name} (title text)")
            file.execute(f"INSERT INTO {name} VALUES ('mine')")
    assert mainspring("db", "migrate", "--url", sqlite_url).exit_code == 0
    assert mainspring("db", "check", "--url", sqlite_url).exit_code == 0
    with closing(sqlite3.connect(sqlite_path(sqlite_url))) as file:
        assert {file.execute(f"SELECT title FROM {name}").fetchone() for name in names} == {("mine",)}
