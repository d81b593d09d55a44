"""A run that is held by its id comes to what its function says, however the handle was come by."""

from __future__ import annotations

import asyncio
import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from mainspring import App, Client, Handle, RunInfo
from mainspring.app.waits import EndingLookups
from mainspring.errors import InvalidInput, NotFound
from mainspring.model.clock import SystemClock

if TYPE_CHECKING:
    from mainspring.model.runs import Ending


@dataclass
class Receipt:
    number: int
    total: Decimal


RECEIPT = Receipt(1, Decimal("1.10"))
app = App()


@app.workflow
async def pay() -> Receipt:
    return RECEIPT


@app.workflow
async def several() -> tuple[set[int], datetime, timedelta, UUID, bytes, dict[int, str]]:
    return {1}, datetime(2026, 1, 1, tzinfo=UTC), timedelta(days=1), UUID(int=7), b"x", {1: "a"}


@app.workflow
async def either() -> list[Receipt | Decimal]:
    return [RECEIPT, Decimal("2.20")]


@app.workflow
async def asks(ids: list[str]) -> list[str]:
    handles = [app.handle(each) for each in ids]
    typed = [pay.handle(ids[0])]
    found: list[Any] = [await handle.result() for handle in handles]
    found += await app.gather(*handles, *typed)
    winner: Handle[Any] = await app.first(*handles)
    return [repr(each) for each in found] + [str(winner.id in ids)]


@app.workflow
def asks_in_def(run_id: str) -> str:
    return repr(app.handle(run_id).result.sync())


@app.workflow
async def finds(run_id: str) -> RunInfo:
    (found,) = await app.runs.list(ids=run_id)
    assert await found.handle.result() == RECEIPT
    return found


@pytest.fixture(autouse=True)
def database(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app._runtime, "url", store_url)


async def test_a_handle_by_id_gives_what_the_handle_of_the_start_gives() -> None:
    async with app:
        for function in (pay, several, either):
            started: Handle[Any] = await function.start()
            expected = await started.result()
            assert await app.handle(started.id).result() == expected
            assert await function.handle(started.id).result() == expected
            assert type(await app.handle(started.id).result()) is type(expected)
        assert expected == [RECEIPT, Decimal("2.20")]


async def test_so_does_the_handle_of_a_fork() -> None:
    async with app:
        started = await pay.start()
        await started.result()
        fork = await app.runs.fork(started.id)
        assert await fork.result() == RECEIPT


async def test_so_do_the_handles_of_runs_that_were_listed() -> None:
    async with app:
        await (await pay.options(id="listed").start()).result()
        (listed,) = await app.runs.list(ids="listed")
        assert await listed.handle.result() == RECEIPT
        assert await (await app.runs.get("listed")).handle.result() == RECEIPT
        assert "handle" not in repr(listed)


async def test_a_record_that_is_passed_on_as_a_value_has_no_handle_and_says_so() -> None:
    async with app:
        await (await pay.options(id="listed").start()).result()
        found = await finds.options(id="finds")("listed")
        assert found.id == "listed"
        with pytest.raises(InvalidInput, match=r"write app\.handle\(info\.id\)"):
            _ = found.handle
        fork = await app.runs.fork("finds")
        assert (await fork.result()).id == "listed"


async def test_inside_a_run_too_and_a_replay_gets_the_same() -> None:
    async with app:
        ids = [(await pay.start()).id, (await several.start()).id]
        await app.gather(*(app.handle(each) for each in ids))
        first = await asks.options(id="asks")(ids)
        assert first[0] == first[4] == repr(RECEIPT)
        assert first[1].startswith("({1}, datetime")
        fork = await app.runs.fork("asks")
        assert await fork.result() == first
        assert await asks_in_def.aio(ids[0]) == repr(RECEIPT)


async def test_a_client_has_no_types_and_gives_plain_json(store_url: str) -> None:
    async with app:
        started = await pay.start()
        await started.result()
        many = await either.start()
        await many.result()
        async with Client(store_url) as client:
            assert await client.handle(started.id).result() == {"number": 1, "total": "1.10"}
            assert await client.handle(many.id).result() is not None
            assert await (await client.start("pay")).result() == {"number": 1, "total": "1.10"}
            (listed,) = await client.runs.list(ids=started.id)
            assert await listed.handle.result() == {"number": 1, "total": "1.10"}


async def test_a_handle_of_nothing_is_an_error_when_it_is_used() -> None:
    async with app:
        with pytest.raises(NotFound):
            await app.handle("nothing").result()
        with pytest.raises(InvalidInput, match="the id of a run is a text"):
            pay.handle(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def test_whatever_fails_while_runs_are_looked_up_nobody_waits_for_ever() -> None:
    async def closed(_: set[str]) -> dict[str, Ending | None]:
        raise sqlite3.ProgrammingError("Cannot operate on a closed database")

    lookups = EndingLookups(closed, SystemClock())
    async with asyncio.timeout(20):
        with pytest.raises(sqlite3.ProgrammingError):
            await lookups.at("r")
