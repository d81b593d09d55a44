"""From a URL to a store."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from mainspring import App
from mainspring.errors import InvalidInput, InvalidSettings, NotFound, StoreError, StoreReplaced, StoreUnavailable
from mainspring.store.external.other_database import OtherDatabase
from mainspring.store.open import open_store, shown, sqlite_path
from mainspring.store.postgres.store import PostgresStore
from mainspring.store.sqlite.store import SqliteStore
from tests.store.build import StoreSettings

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.empty_database


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///orders.db", "orders.db"),
        ("sqlite:////var/lib/orders.db", "/var/lib/orders.db"),
        ("sqlite:///a%20b.db", "a b.db"),
        ("sqlite://", ""),
    ],
)
def test_a_sqlite_url_names_a_file(url: str, path: str) -> None:
    assert sqlite_path(url) == path
    store = open_store(url, StoreSettings())
    assert isinstance(store, SqliteStore)
    store.close()


def test_a_file_that_is_ready_is_opened_without_a_turn_at_writing(sqlite_url: str) -> None:
    """Who has the turn may be waiting for a transaction of the very caller that opens it."""
    first, second = (open_store(sqlite_url, StoreSettings()) for _ in range(2))
    assert isinstance(first, SqliteStore)
    first.open()
    opening = threading.Thread(target=second.open)
    with first._db.write():
        opening.start()
        opening.join(60)
        assert not opening.is_alive()
    second.close()
    first.close()


def test_a_file_that_another_program_has_locked_is_waited_for(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while its journal mode is changed, for which SQLite itself does not wait."""
    with closing(sqlite3.connect(sqlite_path(sqlite_url), isolation_level=None, check_same_thread=False)) as another:
        another.execute("CREATE TABLE theirs (x)")
        another.execute("BEGIN IMMEDIATE")

        here, sleep = threading.get_ident(), time.sleep

        def let_go(seconds: float) -> None:
            if threading.get_ident() != here:  # a thread that another test has left
                sleep(seconds)
            elif another.in_transaction:
                another.execute("COMMIT")

        monkeypatch.setattr(time, "sleep", let_go)
        with closing(open_store(sqlite_url, StoreSettings())) as store:
            store.open()
        assert not another.in_transaction
    with closing(sqlite3.connect(sqlite_path(sqlite_url))) as reader:
        assert reader.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_relative_path_needs_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(StoreUnavailable, match="was removed; write the whole path"):
        open_store("sqlite:///orders.db", StoreSettings())


def test_a_sqlite_that_is_too_old_is_refused(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with (
        closing(open_store(sqlite_url, StoreSettings())) as store,
        pytest.raises(StoreError, match=r"SQLite 3\.35 or newer"),
    ):
        store.open()


@pytest.mark.parametrize("url", ["postgresql://user@host/name", "postgres://user@host/name"])
def test_a_postgres_url_names_a_database(url: str) -> None:
    assert isinstance(open_store(url, StoreSettings()), PostgresStore)


@pytest.mark.parametrize(
    "url", ["", "orders.db", "mysql://host/name", "sqlite:orders.db", "postgresql://host/name?nonsense=1"]
)
def test_anything_else_is_refused_with_words(url: str) -> None:
    with pytest.raises(InvalidInput):
        open_store(url, StoreSettings())


@pytest.mark.parametrize("schema", ["", "a" * 51, "nul\0"])
def test_a_schema_that_cannot_be_is_refused(schema: str) -> None:
    with pytest.raises(InvalidSettings):
        open_store("postgresql://host/name", StoreSettings(schema=schema))


def test_a_password_is_not_shown() -> None:
    assert shown("postgresql://me:secret@host/name") == "postgresql://me:***@host/name"
    store = PostgresStore("postgresql://me:secret@127.0.0.1:1/name?connect_timeout=1")
    with pytest.raises(StoreUnavailable) as refused:
        store.open()
    assert "secret" not in str(refused.value)
    assert "127.0.0.1:1" in str(refused.value)


def test_a_password_among_the_options_is_not_shown() -> None:
    url = "postgresql://me@host/name?password=secret&sslmode=require&sslpassword=secret&application_name=shop"
    assert shown(url) == url.replace("secret", "***")
    assert shown("postgresql:///name?host=/run&password=secret") == "postgresql:///name?host=/run&password=***"


def test_a_password_is_not_shown_whatever_it_contains() -> None:
    """libpq reads it up to the next @, urllib only up to a # or a question mark."""
    for secret in ("se#cret", "se?cret", "se:cret", ""):
        assert shown(f"postgresql://me:{secret}@host:5432/name?sslmode=require") == (
            "postgresql://me:***@host:5432/name?sslmode=require"
        )
    for url in (
        "sqlite:////var/lib/orders.db",
        "postgresql://me@host:5432/name",
        "postgresql://host:5432/name?user=a@b",
    ):
        assert shown(url) == url


def test_a_url_that_is_refused_does_not_show_its_password() -> None:
    with pytest.raises(InvalidInput, match=r"postgresql\+psycopg://me:\*\*\*@host/name"):
        open_store("postgresql+psycopg://me:secret@host/name", StoreSettings())
    with pytest.raises(InvalidInput, match=r"mysql://me:\*\*\*@host/name"):
        OtherDatabase("mysql://me:secret@host/name")


def test_psycopg_is_imported_only_where_it_is_used() -> None:
    code = "import sys, mainspring, mainspring.store.open; sys.exit('psycopg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_psycopg_the_line_to_install_it_is_named() -> None:
    """In a process of its own: here, threads of other tests may need it."""
    code = """
import sys
sys.modules["psycopg"] = None
from mainspring import Settings
from mainspring.errors import MissingExtra
from mainspring.store.external.other_database import OtherDatabase
from mainspring.store.open import open_store
try:
    open_store("postgresql://host/name", Settings())
except MissingExtra as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True)
    assert "pip install 'mainspring[postgres]'" in done.stdout


async def test_who_goes_to_another_folder_stays_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    app = App("sqlite:///shop.db")

    @app.workflow
    async def greet() -> str:
        return "hello"

    await greet.options(id="first").start()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    async with app:
        assert await app.handle("first").result() == "hello"
    assert not (tmp_path / "elsewhere" / "shop.db").exists()


async def test_nothing_is_acknowledged_that_goes_to_a_file_nobody_will_find(tmp_path: Path) -> None:
    app, file = App(f"sqlite:///{tmp_path / 'shop.db'}"), tmp_path / "shop.db"

    @app.workflow
    async def greet() -> str:
        return "hello"

    await greet.options(id="first").start()
    file.rename(tmp_path / "away.db")
    with pytest.raises(StoreReplaced, match=r"shop\.db was removed or replaced"):
        await greet.options(id="second").start()
    file.write_bytes(b"")
    with pytest.raises(StoreReplaced):
        await app.runs.get("first")
    (tmp_path / "away.db").replace(file)
    async with app:
        assert await app.handle("first").result() == "hello"
    with pytest.raises(NotFound):
        await app.runs.get("second")
