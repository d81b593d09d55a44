"""Inside @app.transaction every verb is part of it; and the ways in which a database can get in the way of one."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import psycopg  # noqa: TC002  (what a transaction is given is found by its annotation)
import pytest

from mainspring import App, Spec, State, Tx, run
from mainspring.errors import InTransaction, InvalidInput, NotFound
from mainspring.recurrence import Interval
from mainspring.testing import world
from tests.transactions import bank

app = App("sqlite://")
EVERY_DAY = Spec(intervals=[Interval("1d")])


@app.workflow
async def echo(what: str) -> str:
    return what


@app.workflow
async def listen() -> list[Any]:
    return [await run.receive("news", timeout="1h"), await run.receive("news", timeout="1h")]


@app.transaction
def say_everything(tx: Tx, *, good: bool) -> None:
    tx.execute("INSERT INTO ledger VALUES ('said')")
    app.send.sync("listener", "news", "first")
    app.send.sync("listener", "news", "second", key="k")
    app.send.sync("listener", "news", "second again", key="k")
    run.set_event.sync("progress", 99)
    run.write_stream.sync("lines", "a line")
    run.close_stream.sync("lines")
    app.schedules.create.sync("daily", echo.bind("tick"), EVERY_DAY)
    triggered = app.schedules.trigger.sync("daily")
    assert triggered is not None
    assert app.schedules.describe.sync("daily").starts == 1
    if not good:
        raise RuntimeError("rolled back")


@app.workflow
async def saying(*, good: bool) -> str:
    try:
        await say_everything.aio(good=good)
    except RuntimeError as error:
        return str(error)
    return "committed"


async def test_what_a_transaction_says_is_said_if_and_only_if_it_commits(url: str) -> None:
    async with world(app, url=url):
        listener = await listen.options(id="listener").start()
        bad = await saying.start(good=False)
        assert await bad.result() == "rolled back"
        assert await app.get_event(bad.id, "progress") is None
        with pytest.raises(NotFound):
            await app.schedules.describe("daily")
        assert (await listener.describe()).state is State.WAITING

        good = await saying.start(good=True)
        assert await good.result() == "committed"
        assert await listener.result() == ["first", "second"]
        assert await app.get_event(good.id, "progress") == 99
        assert [line async for line in app.read_stream(good.id, "lines")] == ["a line"]
        assert (await app.schedules.describe("daily")).starts == 1


async def test_outside_runs_a_transaction_has_nothing_to_set_events_of(url: str) -> None:
    async with world(app, url=url):
        await listen.options(id="listener").start()
        with pytest.raises(RuntimeError, match="run"):
            await say_everything.aio(good=True)
        assert bank.rows(url, "SELECT entry FROM ledger") == []


@app.transaction
def sends_to_nobody(tx: Tx) -> str:
    tx.execute("INSERT INTO ledger VALUES ('kept')")
    try:
        app.send.sync("nobody", "news", 1)
    except NotFound as error:
        return str(error)
    return "sent"


async def test_a_message_to_nobody_is_an_error_that_the_transaction_may_survive(url: str) -> None:
    async with world(app, url=url):
        assert "nobody" in await sends_to_nobody.aio()
        assert bank.rows(url, "SELECT entry FROM ledger") == [("kept",)]


escaped: list[Any] = []


@app.transaction
def lets_its_context_escape(tx: Tx) -> None:
    del tx
    escaped.append(contextvars.copy_context())


async def test_a_verb_after_the_end_of_its_transaction_is_refused(url: str) -> None:
    async with world(app, url=url):
        await lets_its_context_escape.aio()

        def late() -> None:
            echo.start.sync("late")

        with pytest.raises(InTransaction, match="the transaction has ended"):
            await asyncio.to_thread(escaped.pop().run, late)


# -- asynchronous ones -------------------------------------------------------------------------------------------------
awaiting = App("sqlite://")


@awaiting.workflow
async def told(entry: str) -> str:
    return f"told {entry}"


@awaiting.transaction
async def enter(connection: psycopg.AsyncConnection[Any], entry: str) -> str:
    await connection.execute("INSERT INTO ledger VALUES (%s)", (entry,))
    handle = await told.start(entry)
    await awaiting.run_after("1h", told.options(id=f"later {entry}").bind(entry))
    await run.set_event("entered", entry)
    await awaiting.schedules.create(f"daily {entry}", told.bind("tick"), EVERY_DAY)
    if entry.startswith("bad"):
        raise LookupError(entry)
    return handle.id


@awaiting.transaction
async def inner(connection: psycopg.AsyncConnection[Any], entry: str) -> None:
    await connection.execute("INSERT INTO ledger VALUES (%s)", (entry,))
    if entry.startswith("bad"):
        raise ValueError(entry)


@awaiting.transaction
async def outer(connection: psycopg.AsyncConnection[Any]) -> None:
    await connection.execute("INSERT INTO ledger VALUES ('outer')")
    await inner("good")
    with pytest.raises(ValueError, match="bad"):
        await inner("bad")


@awaiting.workflow
async def entering(entry: str) -> str:
    try:
        found: str = await awaiting.handle(await enter(entry)).result()
    except LookupError as error:
        return f"failed {error}"
    return found


async def test_an_async_transaction_is_recorded_with_what_it_wrote_and_started(postgres_url: str) -> None:
    bank.execute(postgres_url, "CREATE TABLE ledger (entry text NOT NULL)")
    async with world(awaiting, url=postgres_url):
        good = await entering.start("good")
        assert await good.result() == "told good"
        assert await awaiting.get_event(good.id, "entered") == "good"
        assert (await awaiting.schedules.describe("daily good")).starts == 0
        assert await entering("bad") == "failed bad"
        with pytest.raises(NotFound):
            await awaiting.handle("later bad").describe()
        assert bank.rows(postgres_url, "SELECT entry FROM ledger") == [("good",)]
        await outer()
        assert len(bank.rows(postgres_url, "SELECT entry FROM ledger")) == 3


async def test_an_async_transaction_on_sqlite_is_refused_with_the_line_to_write(sqlite_url: str) -> None:
    async with world(awaiting, url=sqlite_url):
        with pytest.raises(InvalidInput, match="annotate its first parameter with Tx"):
            await enter("x")


# -- in each other's way -----------------------------------------------------------------------------------------------
counting = App("sqlite://")
meeting = threading.Barrier(2, timeout=60)
attempts: list[str] = []


@counting.transaction(isolation="serializable")
def add_one(tx: Tx, name: str) -> int:
    attempts.append(name)
    before: int = tx.execute("SELECT total FROM counter").fetchone()[0]
    if attempts.count(name) == 1 and not meeting.broken:
        meeting.wait()
    tx.execute("UPDATE counter SET total = ?", (before + 1,))
    return before + 1


@counting.transaction
def lock_both(tx: Tx, first: int, second: int) -> None:
    attempts.append(f"{first} {second}")
    tx.execute("UPDATE pair SET total = total + 1 WHERE id = ?", (first,))
    if attempts.count(f"{first} {second}") == 1:
        meeting.wait()
    tx.execute("UPDATE pair SET total = total + 1 WHERE id = ?", (second,))


@counting.workflow
async def adding(name: str) -> int:
    return await add_one.aio(name)


@pytest.mark.parametrize("inside", [True, False])
async def test_a_serialization_failure_is_made_again_and_counts_once(postgres_url: str, *, inside: bool) -> None:
    bank.execute(postgres_url, "CREATE TABLE counter (total int)", "INSERT INTO counter VALUES (0)")
    meeting.reset()
    attempts.clear()
    async with world(counting, url=postgres_url):
        call = adding if inside else add_one.aio
        assert sorted(await asyncio.gather(call("a"), call("b"))) == [1, 2]
    assert bank.value(postgres_url, "SELECT total FROM counter") == 2
    assert len(attempts) == 3


async def test_a_deadlock_is_made_again(postgres_url: str) -> None:
    bank.execute(
        postgres_url, "CREATE TABLE pair (id int PRIMARY KEY, total int)", "INSERT INTO pair VALUES (1, 0), (2, 0)"
    )
    meeting.reset()
    attempts.clear()
    async with world(counting, url=postgres_url):
        await asyncio.gather(lock_both.aio(1, 2), lock_both.aio(2, 1))
    assert bank.rows(postgres_url, "SELECT total FROM pair ORDER BY id") == [(2,), (2,)]
    assert len(attempts) == 3


@counting.transaction(isolation="repeatable read")
def level(tx: Tx) -> str:
    found: str = tx.execute("SHOW transaction_isolation").fetchone()[0]
    return found


@counting.transaction
def default_level(tx: Tx) -> str:
    found: str = tx.execute("SHOW transaction_isolation").fetchone()[0]
    return found


async def test_the_isolation_that_is_asked_for_is_had_and_does_not_stay(postgres_url: str) -> None:
    async with world(counting, url=postgres_url):
        for _ in range(2):
            assert await level.aio() == "repeatable read"
            assert await default_level.aio() == "read committed"


talking = App("sqlite://")
looked, sent = threading.Event(), threading.Event()
looks: list[int] = []


@talking.workflow
async def two_messages() -> list[str]:
    await run.sleep("1h")  # whoever sends does not wake it, so its row stays as it is
    return sorted([await run.receive("news") for _ in range(2)])


@talking.transaction(isolation="repeatable read")
def send_late(tx: Tx) -> None:
    looks.append(tx.execute("SELECT 1").fetchone()[0])
    looked.set()
    assert sent.wait(60)
    talking.send.sync("listener", "news", "late")


async def test_a_message_from_an_old_snapshot_gets_a_number_of_its_own(postgres_url: str) -> None:
    async with world(talking, url=postgres_url) as w:
        listener = await two_messages.options(id="listener").start()
        await w.drain()
        late = asyncio.create_task(send_late.aio())
        await asyncio.to_thread(looked.wait, 60)
        await talking.send("listener", "news", "early")
        sent.set()
        await late
        assert await listener.result() == ["early", "late"]
        assert len(looks) == 2
