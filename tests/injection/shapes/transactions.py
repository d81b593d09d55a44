"""Transactions, here and in another database, and patches before steps and before transactions."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any

from mainspring import Tx, run
from mainspring.store.open import sqlite_path
from tests.injection.scene import Caller, Drive, Scene, shape

if TYPE_CHECKING:
    from collections.abc import Generator

_MAKE = "CREATE TABLE IF NOT EXISTS mine (what TEXT)"
_ADD = "INSERT INTO mine VALUES (?)"
_COUNT = "SELECT count(*) FROM mine"


@shape({"r": ["a", "b", "c"], "t": "d", "rows": 3, "after": "after"}, main=("r",), optional=("after",))
def transactions(s: Scene) -> Drive:
    """`def` transactions in `async def` and `def` workflows and alone; one of them starts a run."""

    @s.app.workflow
    async def after() -> str:
        return "after"

    @s.app.transaction
    def save(tx: Tx, what: str) -> str:
        tx.execute(_ADD, (what,))
        if what == "b":
            after.options(id="after").start.sync()
        return what

    @s.app.transaction
    def rows(tx: Tx) -> int:
        return int(tx.execute(_COUNT).fetchone()[0])

    @s.app.step
    def note(what: str) -> str:
        return s.effect_blocking(what)

    @s.app.workflow
    async def work() -> list[str]:
        return [await save.aio("a"), await save.aio("b"), await note.aio("c")]

    await_rows = _prepared(s, _MAKE)

    async def drive(caller: Caller) -> None:
        await await_rows(caller)
        await caller.start(work, "r")
        await caller.start(save, "t", "d")
        await caller.results_of("r", "t")
        await caller.results_of("after")
        await caller.start(rows, "rows")
        await caller.results_of("rows")

    return drive


def _prepared(s: Scene, statement: str, database: Any = None) -> Any:
    """Make the shape's own table, once."""

    @s.app.transaction(database=database)
    def prepare(tx: Tx) -> None:
        tx.execute(statement)

    async def made(caller: Caller) -> None:
        await caller.do("make table", prepare.aio)

    return made


@shape({"r": ["a", "b"], "rows": 2}, main=("r",))
def def_transactions(s: Scene) -> Drive:
    """Transactions of a `def` workflow, and one that asks for a level."""

    @s.app.transaction
    def save(tx: Tx, what: str) -> str:
        tx.execute(_ADD, (what,))
        return what

    @s.app.transaction(isolation="serializable")
    def save_strictly(tx: Tx, what: str) -> str:
        tx.execute(_ADD, (what,))
        return what

    @s.app.transaction
    def rows(tx: Tx) -> int:
        return int(tx.execute(_COUNT).fetchone()[0])

    @s.app.workflow
    def work() -> list[str]:
        return [save("a"), save_strictly("b")]

    made = _prepared(s, _MAKE)

    async def drive(caller: Caller) -> None:
        await made(caller)
        await caller.start(work, "r")
        await caller.results_of("r")
        await caller.start(rows, "rows")
        await caller.results_of("rows")

    return drive


@shape({"r": ["a", "b"], "rows": 2}, main=("r",), databases=("sqlite",))
def transactions_within(s: Scene) -> Drive:
    """Transactions on connections that the user's own code opens, as an ORM does."""
    opened: list[sqlite3.Connection] = []

    @contextlib.contextmanager
    def within() -> Generator[sqlite3.Connection]:
        with contextlib.closing(sqlite3.connect(sqlite_path(s.life.database.url), isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            opened.append(db)
            try:
                yield db
                db.commit()
            except BaseException:
                db.rollback()
                raise
            finally:
                opened.remove(db)

    @s.app.transaction(within=within)
    def save(what: str) -> str:
        opened[0].execute(_ADD, (what,))
        return what

    @s.app.transaction
    def rows(tx: Tx) -> int:
        return int(tx.execute(_COUNT).fetchone()[0])

    @s.app.workflow
    async def work() -> list[str]:
        return [await save.aio("a"), await save.aio("b")]

    made = _prepared(s, _MAKE)

    async def drive(caller: Caller) -> None:
        await made(caller)
        await caller.start(work, "r")
        await caller.results_of("r")
        await caller.start(rows, "rows")
        await caller.results_of("rows")

    return drive


@shape({"r": ["a", "b"], "rows": 2}, main=("r",), databases=("postgres",))
def async_transactions(s: Scene) -> Drive:
    """`async def` transactions, which PostgreSQL has."""
    import psycopg  # noqa: PLC0415, TC002  (its annotation says what is wanted)

    @s.app.transaction
    async def save(connection: psycopg.AsyncConnection[Any], what: str) -> str:
        await connection.execute("INSERT INTO mine VALUES (%s)", (what,))
        return what

    @s.app.transaction
    def rows(tx: Tx) -> int:
        return int(tx.execute(_COUNT).fetchone()[0])

    @s.app.workflow
    async def work() -> list[str]:
        return [await save("a"), await save("b")]

    made = _prepared(s, _MAKE)

    async def drive(caller: Caller) -> None:
        await made(caller)
        await caller.start(work, "r")
        await caller.results_of("r")
        await caller.start(rows, "rows")
        await caller.results_of("rows")

    return drive


@shape({"r": ["a", "b"], "rows": 2, "greeted": "hello"}, main=("r",), optional=("greeted",))
def elsewhere(s: Scene) -> Drive:
    """Transactions in another database, one of which starts a run here."""

    @s.app.workflow
    async def greet() -> str:
        return "hello"

    @s.app.transaction(database=s.elsewhere)
    def save(tx: Tx, what: str) -> str:
        tx.execute(_ADD, (what,))
        if what == "b":
            greet.options(id="greeted").start.sync()
        return what

    @s.app.transaction(database=s.elsewhere)
    def rows(tx: Tx) -> int:
        return int(tx.execute(_COUNT).fetchone()[0])

    @s.app.workflow
    async def work() -> list[str]:
        return [await save.aio("a"), await save.aio("b")]

    made = _prepared(s, _MAKE, database=s.elsewhere)

    async def drive(caller: Caller) -> None:
        await made(caller)
        await caller.start(work, "r")
        await caller.results_of("r")
        await caller.results_of("greeted")
        await caller.start(rows, "rows")
        await caller.results_of("rows")

    return drive


@shape({"r": ["new a", "b"], "d": ["new c"]}, main=("r", "d"))
def patched_steps(s: Scene) -> Drive:
    """Patches before steps."""

    @s.app.step
    async def note(what: str) -> str:
        return await s.effect(what)

    @s.app.step
    def note_blocking(what: str) -> str:
        return s.effect_blocking(what)

    @s.app.workflow
    async def work() -> list[str]:
        first = await note("new a") if run.patched("one") else await note("old a")
        return [first, await note("b")]

    @s.app.workflow
    def work_blocking() -> list[str]:
        return [note_blocking("new c") if run.patched("two") else note_blocking("old c")]

    async def drive(caller: Caller) -> None:
        await caller.start(work, "r")
        await caller.start(work_blocking, "d")
        await caller.results_of("r", "d")

    return drive


@shape({"r": ["new", "b"], "rows": 1}, main=("r",))
def patched_transactions(s: Scene) -> Drive:
    """A patch before a transaction, which goes past the committer."""

    @s.app.transaction
    def save(tx: Tx, what: str) -> str:
        tx.execute(_ADD, (what,))
        return what

    @s.app.transaction
    def rows(tx: Tx) -> int:
        return int(tx.execute(_COUNT).fetchone()[0])

    @s.app.step
    async def note(what: str) -> str:
        return await s.effect(what)

    @s.app.workflow
    async def work() -> list[str]:
        if run.patched("new-path"):
            return [await save.aio("new"), await note("b")]
        return ["old"]

    made = _prepared(s, _MAKE)

    async def drive(caller: Caller) -> None:
        await made(caller)
        await caller.start(work, "r")
        await caller.results_of("r")
        await caller.start(rows, "rows")
        await caller.results_of("rows")

    return drive
