"""`mainspring db` makes, checks and prints the tables."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING

import psycopg
import pytest

from mainspring import Settings
from mainspring.store.open import open_store
from tests.cli import shop

if TYPE_CHECKING:
    from pathlib import Path

    from mainspring import App
    from tests.cli.conftest import Mainspring

FIRST = "0001_runs_and_steps"


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
        database.execute("INSERT INTO migrations VALUES ('9999_something_new')")
    for verb in ("check", "migrate"):
        result = mainspring("db", verb, "--url", sqlite_url)
        assert result.exit_code == 1
        assert "9999_something_new" in result.stderr
        assert "newer" in result.stderr


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
