"""A fresh database for each case, in a millisecond or a few: copies of one that was made ready once."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mainspring import Settings
from tests.injection.seams import SharedMemory, open_store

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.support.postgres import PostgresServer


class Database:
    """One case's database: `url` for its apps, `store` where they have to share one, `elsewhere` for transactions in another one."""

    def __init__(self, kind: str, url: str, elsewhere: str, shared: SharedMemory | None = None) -> None:
        self.kind = kind
        self.url = url
        self.elsewhere = elsewhere
        self._shared = shared

    @property
    def store(self) -> Any:
        return None if self._shared is None else self._shared.store

    def notify(self, life: Any, notify: Any) -> None:
        assert self._shared is not None
        self._shared.notify(life, notify)

    @contextlib.contextmanager
    def reading(self) -> Generator[Any]:
        """A store of the auditor's own."""
        if self._shared is not None:
            yield self._shared.store
            return
        store = open_store(self.url, Settings(synchronous="OFF"))
        store.open(migrate=False)
        try:
            yield store
        finally:
            store.close()


class SqliteFiles:
    """A new file for each case, on a file system in memory where there is one."""

    kind = "sqlite"

    def __init__(self) -> None:
        base = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self._folder = tempfile.TemporaryDirectory(prefix="injection-", dir=base)
        self._template = Path(self._folder.name, "template.db")
        store = open_store(f"sqlite:///{self._template}", Settings())
        store.open()
        store.close()
        self._count = 0

    @contextlib.contextmanager
    def fresh(self) -> Generator[Database]:
        self._count += 1
        folder = Path(self._folder.name, str(self._count))
        folder.mkdir()
        shutil.copy(self._template, folder / "case.db")
        try:
            yield Database(self.kind, f"sqlite:///{folder / 'case.db'}", f"sqlite:///{folder / 'other.db'}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        self._folder.cleanup()


class SqliteMemory(SqliteFiles):
    """A temporary database, which the library uses on the loop's own thread."""

    kind = "memory"

    @contextlib.contextmanager
    def fresh(self) -> Generator[Database]:
        with super().fresh() as beside:
            shared = SharedMemory()
            try:
                yield Database(self.kind, shared.url, beside.elsewhere, shared)
            finally:
                shared.close()


class Postgres:
    """Two databases on one server, emptied for each case."""

    kind = "postgres"

    def __init__(self, server: PostgresServer) -> None:
        self._databases = contextlib.ExitStack()
        self._url = self._databases.enter_context(server.database())
        self._other = self._databases.enter_context(server.database())
        store = open_store(self._url, Settings())
        store.open()
        store.close()
        import psycopg  # noqa: PLC0415  (only where it is used)

        self._own = self._databases.enter_context(psycopg.connect(self._url, autocommit=True))
        self._elsewhere = self._databases.enter_context(psycopg.connect(self._other, autocommit=True))
        self._clean: str | None = None

    @contextlib.contextmanager
    def fresh(self) -> Generator[Database]:
        self._empty()
        yield Database(self.kind, self._url, self._other)

    def _empty(self) -> None:
        """What every case may have left: rows of the library's, and tables of the shapes' own."""
        for connection in (self._own, self._elsewhere):
            connection.execute("DROP SCHEMA IF EXISTS public CASCADE")
            connection.execute("CREATE SCHEMA public")
        if self._clean is None:
            tables = self._own.execute(
                "SELECT table_name FROM information_schema.tables WHERE table_schema = 'mainspring' AND table_type = 'BASE TABLE' "
                "AND table_name NOT IN ('migrations', 'meta')"
            ).fetchall()
            self._clean = "; ".join(f'DELETE FROM mainspring."{name}"' for (name,) in tables)
        self._own.execute(self._clean.encode())

    def close(self) -> None:
        self._databases.close()


def databases(kind: str, server: PostgresServer | None = None) -> SqliteFiles | Postgres:
    """Where databases of a kind come from."""
    if kind == "postgres":
        assert server is not None
        return Postgres(server)
    return SqliteMemory() if kind == "memory" else SqliteFiles()
