"""Connections of the user's own, of every kind that can be joined, behind one face."""

from __future__ import annotations

import contextlib
import importlib
import sqlite3
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import psycopg
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session

from mainspring.store.open import sqlite_path
from tests.transactions.bank import is_sqlite

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

SQLITE = ("sqlite3", "sqlite3 by hand")
POSTGRES = ("psycopg", "psycopg async")
ALCHEMY = (
    "connection",
    "session",
    "scoped session",
    "async connection",
    "async session",
    *(("sqlmodel session", "async sqlmodel session") if find_spec("sqlmodel") else ()),
)
KINDS = [("sqlite", kind) for kind in (*SQLITE, *ALCHEMY)] + [("postgres", kind) for kind in (*POSTGRES, *ALCHEMY)]


def session_of(kind: str) -> Any:
    """The class of a kind of sessions."""
    if "sqlmodel" not in kind:
        return AsyncSession if kind.startswith("async") else Session
    module = "sqlmodel.ext.asyncio.session" if kind.startswith("async") else "sqlmodel"
    return getattr(importlib.import_module(module), "AsyncSession" if kind.startswith("async") else "Session")


class Own:
    """An open connection: `given` is what the user has in hand, and hands to `joined`."""

    def __init__(self, given: Any, say: Callable[[str], Any] | None = None) -> None:
        self.given = given
        self._say = say

    async def execute(self, statement: str) -> None:
        await done((self._say or self.given.execute)(statement))

    async def commit(self) -> None:
        await done(self.given.commit())

    async def rollback(self) -> None:
        await done(self.given.rollback())


async def done(found: Any) -> Any:
    return await found if hasattr(found, "__await__") else found


@contextlib.asynccontextmanager
async def opened(url: str, kind: str) -> AsyncGenerator[Own]:
    if kind.startswith("sqlite3"):
        connection = sqlite3.connect(sqlite_path(url), timeout=30)
        if kind.endswith("by hand"):
            connection.isolation_level = None
            connection.execute("BEGIN IMMEDIATE")
        connection.row_factory = sqlite3.Row
        with contextlib.closing(connection):
            yield Own(connection)
    elif kind == "psycopg":
        with psycopg.connect(url) as postgres:
            yield Own(postgres)
    elif kind == "psycopg async":
        async with await psycopg.AsyncConnection.connect(url) as awaited:
            yield Own(awaited)
    elif kind.startswith("async"):
        driver = "sqlite+aiosqlite" if is_sqlite(url) else "postgresql+psycopg"
        async_engine = create_async_engine(url.replace(url.split(":", maxsplit=1)[0], driver, 1))
        made: Any = async_engine.connect() if kind.endswith("connection") else session_of(kind)(async_engine)
        async with made as there:
            yield Own(there, lambda statement: (there.exec if "sqlmodel" in kind else there.execute)(text(statement)))
        await async_engine.dispose()
    else:
        driver = "sqlite" if is_sqlite(url) else "postgresql+psycopg"
        engine = create_engine(url.replace(url.split(":", maxsplit=1)[0], driver, 1))
        with engine.connect() if kind == "connection" else session_of(kind)(engine) as here:
            mine: Any = here
            registry: Any = lambda: mine  # noqa: E731
            given: Any = scoped_session(registry) if kind.startswith("scoped") else mine
            yield Own(given, lambda statement: here.execute(text(statement)))
        engine.dispose()
