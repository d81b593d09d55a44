"""`@app.transaction(database=…)` with an AsyncEngine: awaited, committed once, in a database that is not the app's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import psycopg  # noqa: TC002  (the annotation is read when the function is registered)
import pytest
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine

from mainspring import App
from mainspring.errors import InTransaction, InvalidInput
from mainspring.testing import crash

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

CREATE = "CREATE TABLE IF NOT EXISTS ledger (entry text)"


@pytest.fixture(params=["aiosqlite", "psycopg", "asyncpg"])
async def engine(request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str) -> AsyncGenerator[AsyncEngine]:
    driver = request.param
    url = f"sqlite+aiosqlite:///{tmp_path / 'tables.db'}"
    if driver != "aiosqlite":
        pytest.importorskip(driver)
        url = postgres_url.replace("postgresql://", f"postgresql+{driver}://")
    made = create_async_engine(url)
    yield made
    await made.dispose()


async def entries(engine: AsyncEngine) -> list[str]:
    async with engine.connect() as connection:
        return [row[0] for row in await connection.execute(text("SELECT entry FROM ledger"))]


async def test_it_commits_once_with_its_record(engine: AsyncEngine, store_url: str) -> None:
    app = App(store_url)

    @app.transaction(database=engine)
    async def save(session: AsyncSession, entry: str) -> str:
        await session.execute(text(CREATE))
        await session.execute(text("INSERT INTO ledger VALUES (:entry)"), {"entry": entry})
        await note.start(entry)
        return entry

    @app.transaction(database=engine)
    async def save_by_connection(connection: AsyncConnection, entry: str) -> str:
        await connection.execute(text("INSERT INTO ledger VALUES (:entry)"), {"entry": entry})
        return entry

    @app.transaction(database=engine)
    def save_blocking(connection: Connection, entry: str) -> str:
        connection.execute(text("INSERT INTO ledger VALUES (:entry)"), {"entry": entry})
        return entry

    @app.transaction(database=engine)
    async def fail(session: AsyncSession, entry: str) -> None:
        await session.execute(text("INSERT INTO ledger VALUES (:entry)"), {"entry": entry})
        raise ValueError(entry)

    @app.workflow
    async def note(entry: str) -> str:
        return entry

    @app.workflow
    async def main() -> list[str]:
        done = [await save("a"), await save_by_connection("b"), await save_blocking.aio("c")]
        with pytest.raises(ValueError, match="d"):
            await fail("d")
        return done

    async with app:
        assert await main() == ["a", "b", "c"]
        assert sorted(await entries(engine)) == ["a", "b", "c"]
        (started,) = await app.runs.list(workflow="note")
        assert await app.handle(started.id).result() == "a"


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_at_any_point_makes_it_once(tmp_path: Path, when: Literal["before", "after"]) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'tables.db'}")
    async with engine.begin() as connection:
        await connection.execute(text(CREATE))
    app = App()

    @app.transaction(database=engine)
    async def save(session: AsyncSession, entry: str) -> str:
        await session.execute(text("INSERT INTO ledger VALUES (:entry)"), {"entry": entry})
        return entry

    @app.workflow
    async def main(entry: str) -> str:
        return await save(entry)

    at = 0
    for number in range(1, 60):
        entry = f"{when} {number}"

        async def work(entry: str = entry) -> str:
            return await main.options(id="main")(entry)

        outcome = await crash(app, work, at=number, when=when)
        assert outcome.result == entry
        assert (await entries(engine)).count(entry) == 1
        if not outcome.crashed:
            at = number
            break
    assert at > 3
    await engine.dispose()


async def test_mistakes_are_named(engine: AsyncEngine) -> None:
    app = App("sqlite://")

    @app.transaction(database=engine)
    async def save(connection: psycopg.AsyncConnection) -> None:
        del connection

    async with app:
        with pytest.raises(InTransaction, match="AsyncSession or AsyncConnection"):
            await save()
    with pytest.raises(InvalidInput, match="takes a URL or a SQLAlchemy engine"):
        app.transaction(database=object())
