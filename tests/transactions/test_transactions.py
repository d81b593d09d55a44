"""A transaction commits exactly once, together with what it wrote, and with everything that it started."""

from __future__ import annotations

import asyncio
import contextvars
import sqlite3  # noqa: TC003  (what a transaction is given is found by its annotation)
from typing import TYPE_CHECKING, Any, Literal

import psycopg  # noqa: TC002
import pytest

from mainspring import App, State, Tx, run
from mainspring.errors import InTransaction, InvalidInput, RunCancelled
from mainspring.testing import crash, world
from tests.support.samples import covering
from tests.transactions import bank

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring import Handle

app = App("sqlite://")


@app.workflow
async def echo(text: str) -> str:
    return text


@app.transaction
def enter(tx: Tx, entry: str) -> int:
    tx.execute("INSERT INTO ledger VALUES (?)", (entry,))
    found: int = tx.execute("SELECT count(*) FROM ledger").fetchone()[0]
    return found


@app.transaction
def enter_and_fail(tx: Tx, entry: str) -> None:
    tx.execute("INSERT INTO ledger VALUES (:entry)", {"entry": entry})
    echo.start.sync(entry)
    raise LookupError(f"not {entry}")


@app.transaction
def enter_and_start(tx: Tx, entry: str) -> str:
    tx.execute("INSERT INTO ledger VALUES (%s)", (entry,))
    return echo.start.sync(entry).id


@app.workflow
async def two_entries(name: str) -> list[int]:
    return [await enter.aio(f"{name} one"), await enter.aio(f"{name} two")]


@app.workflow
def two_blocking_entries(name: str) -> list[int]:
    return [enter(f"{name} one"), enter(f"{name} two")]


@app.workflow
async def forgiving(name: str) -> str:
    try:
        await enter_and_fail.aio(name)
    except LookupError as error:
        return str(error)
    return "nothing happened"


@app.workflow
async def starting(name: str) -> str:
    run_id = await enter_and_start.aio(name)
    echoed: str = await app.handle(run_id).result()
    return echoed


async def test_a_transaction_is_recorded_with_what_it_wrote(url: str) -> None:
    async with world(app, url=url):
        handle = await two_entries.options(id="a").start("a")
        assert await handle.result() == [1, 2]
        assert await two_blocking_entries.aio("b") == [3, 4]
    assert bank.entries(url) == ["a one", "a two", "b one", "b two"]
    steps = "mainspring_steps" if bank.is_sqlite(url) else "mainspring.steps"
    recorded = bank.rows(url, f"SELECT position, kind, name, attempts FROM {steps} WHERE run = 'a' ORDER BY position")
    assert recorded == [("0", "transaction", "enter", 1), ("1", "transaction", "enter", 1)]


async def test_an_exception_rolls_back_and_is_recorded_once(url: str) -> None:
    async with world(app, url=url):
        assert await forgiving("a") == "not a"
        assert bank.entries(url) == []
        assert bank.count_runs(url, "echo") == 0


async def test_a_transaction_can_be_a_run_of_its_own(url: str) -> None:
    async with world(app, url=url):
        handle = await enter.start("alone")
        assert await handle.result() == 1
        info = await handle.describe()
        assert (info.kind, info.state) == ("transaction", State.SUCCEEDED)
        failing = await enter_and_fail.start("alone")
        with pytest.raises(LookupError, match="not alone"):
            await failing.result()
    assert bank.entries(url) == ["alone"]


async def test_outside_runs_it_is_a_transaction_all_the_same(url: str) -> None:
    async with world(app, url=url):
        assert await enter.aio("plain") == 1
        assert await asyncio.to_thread(enter, "thread") == 2
        with pytest.raises(LookupError):
            await enter_and_fail.aio("gone")
        run_id = await enter_and_start.aio("starts")
        assert await app.handle(run_id).result() == "starts"
    assert bank.entries(url) == ["plain", "starts", "thread"]


async def test_what_it_starts_begins_when_it_commits_and_sees_its_rows(url: str) -> None:
    async with world(app, url=url):
        assert await starting("x") == "x"
        assert bank.count_runs(url, "echo") == 1


nested_app = App("sqlite://")


@nested_app.transaction
def inner(tx: Tx, entry: str) -> None:
    tx.execute("INSERT INTO ledger VALUES (?)", (entry,))
    if entry.startswith("bad"):
        raise ValueError(entry)


@nested_app.transaction
def outer(tx: Tx, *names: str) -> int:
    tx.execute("INSERT INTO ledger VALUES ('outer')")
    for entry in names:
        try:
            inner(entry)
        except ValueError:
            continue
    found: int = tx.execute("SELECT count(*) FROM ledger").fetchone()[0]
    return found


@nested_app.transaction
def outer_fails(tx: Tx) -> None:
    inner("good")
    raise RuntimeError("after all")


async def test_a_transaction_inside_another_is_part_of_it_and_undone_alone_when_it_fails(url: str) -> None:
    async with world(nested_app, url=url):
        assert await outer.aio("good", "bad", "fine") == 3
        assert bank.entries(url) == ["fine", "good", "outer"]
        with pytest.raises(RuntimeError):
            await outer_fails.aio()
        assert bank.entries(url) == ["fine", "good", "outer"]


@nested_app.transaction
def takes_from_nothing(tx: Tx, entry: str) -> str:
    tx.execute("INSERT INTO ledger VALUES (?)", (entry,))
    return next(iter(()))


@nested_app.transaction
def takes_inside(tx: Tx, entry: str) -> str:
    tx.execute("INSERT INTO ledger VALUES ('outer')")
    try:
        return takes_from_nothing(entry)
    except RuntimeError as error:
        return str(error)


async def test_a_stop_iteration_rolls_back_and_is_a_runtime_error_everywhere(url: str) -> None:
    """It would be taken for the end of a coroutine or of a generator around the function."""
    async with world(nested_app, url=url):
        with pytest.raises(RuntimeError, match="raised StopIteration"):
            await asyncio.to_thread(takes_from_nothing, "plain")
        with pytest.raises(RuntimeError, match="raised StopIteration"):
            await (await takes_from_nothing.start("run")).result()
        assert "raised StopIteration" in await takes_inside.aio("nested")
    assert bank.entries(url) == ["outer"]


waiting_app = App("sqlite://")


@waiting_app.workflow
async def child() -> int:
    return 1


@waiting_app.transaction
def waits_for_a_run(tx: Tx) -> None:
    del tx
    child.start.sync().result.sync()


@waiting_app.transaction
def calls_a_run(tx: Tx) -> int:
    del tx
    return child.sync()


@waiting_app.transaction
def sleeps(tx: Tx) -> None:
    del tx
    run.sleep.sync(1)


async def test_what_would_wait_for_its_own_end_is_an_error_that_says_so(url: str) -> None:
    async with world(waiting_app, url=url):
        for fn in (waits_for_a_run, calls_a_run):
            with pytest.raises(InTransaction, match="after the transaction"):
                await fn.aio()
        with pytest.raises(RuntimeError, match="run"):
            await sleeps.aio()
        assert bank.count_runs(url, "child") == 0


@app.transaction
def says(tx: Tx, statement: str) -> None:
    tx.execute("INSERT INTO ledger VALUES ('early')")
    tx.execute(statement)


@app.transaction
def says_and_goes_on(tx: Tx, statement: str) -> None:
    with pytest.raises(InTransaction):
        tx.execute(statement)
    tx.execute("SAVEPOINT mine")
    tx.execute("INSERT INTO ledger VALUES ('undone')")
    tx.execute("ROLLBACK TO SAVEPOINT mine")
    tx.execute("INSERT INTO ledger VALUES ('kept')")


ENDINGS = ["COMMIT", "  commit ;", "END", "ROLLBACK", "begin", "-- now\n/* really */ rollback transaction"]


async def test_a_function_that_ends_its_transaction_is_told_not_to_and_nothing_is_ended(url: str) -> None:
    async with world(app, url=url):
        for statement in ENDINGS:
            with pytest.raises(InTransaction, match=r"leave that to @app\.transaction"):
                await says.aio(statement)
            assert bank.entries(url) == []
            await says_and_goes_on.aio(statement)
            assert bank.entries(url) == ["kept"]
            bank.execute(url, "DELETE FROM ledger")


@app.transaction
def commits_postgres(connection: psycopg.Connection[Any]) -> None:
    connection.execute("INSERT INTO ledger VALUES ('early')")
    connection.execute("COMMIT")


@app.transaction
async def commits_postgres_awaited(connection: psycopg.AsyncConnection[Any]) -> None:
    await connection.execute("INSERT INTO ledger VALUES ('early')")
    await connection.execute("COMMIT")


@app.transaction
def commits_sqlite(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO ledger VALUES ('early')")
    connection.execute("COMMIT")
    connection.execute("BEGIN")


async def test_one_that_has_the_drivers_own_connection_is_told_afterwards_and_not_recorded_as_done(url: str) -> None:
    fns: list[Any] = [commits_sqlite] if bank.is_sqlite(url) else [commits_postgres, commits_postgres_awaited]
    async with world(app, url=url):
        for fn in fns:
            handle = await fn.start()
            with pytest.raises(InTransaction, match=r"leave that to @app\.transaction"):
                await handle.result()
            assert (await handle.describe()).state is State.FAILED


# -- crashes -----------------------------------------------------------------------------------------------------------
crashing = App("sqlite://")
executed: list[str] = []


@crashing.workflow
async def told(entry: str) -> str:
    return f"told {entry}"


@crashing.transaction
def post(tx: Tx, entry: str) -> str:
    executed.append(entry)
    tx.execute("INSERT INTO ledger VALUES (?)", (entry,))
    return told.start.sync(entry).id


@crashing.workflow
async def posting(name: str) -> list[str]:
    first = await post.aio(f"{name} one")
    pair = await asyncio.gather(post.aio(f"{name} left"), post.aio(f"{name} right"))
    handles: list[Handle[str]] = [crashing.handle(each) for each in (first, *pair)]
    return [await handle.result() for handle in handles]


@crashing.workflow
def blocking_posting(name: str) -> list[str]:
    ids = [post(f"{name} one"), post(f"{name} two")]
    return [crashing.handle(each).result.sync() for each in ids]


@covering
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("colour", ["async", "def"])
async def test_a_crash_at_any_call_to_the_store_repeats_no_effect(
    url: str, when: Literal["before", "after"], colour: str
) -> None:
    expected = 3 if colour == "async" else 2
    for at in range(1, 200, bank.STRIDE):
        name = f"crash-{at}"

        async def work(name: str = name) -> list[str]:
            if colour == "async":
                return await (await posting.options(id=name).start(name)).result()
            return await (await blocking_posting.options(id=name).start(name)).result()

        outcome = await crash(crashing, work, at=at, when=when, url=url)
        assert len(outcome.result) == expected
        mine = [entry for entry in bank.entries(url) if entry.startswith(f"{name} ")]
        assert len(mine) == len(set(mine)) == expected, (at, mine)
        if not outcome.crashed:
            assert at > 8
            return
    raise AssertionError("the workload never came to its end without a crash")


# -- cancelling --------------------------------------------------------------------------------------------------------
cancelling = App("sqlite://")


@cancelling.workflow
async def after() -> int:
    return 1


@cancelling.transaction
def slow(tx: Tx, entry: str) -> None:
    tx.execute("INSERT INTO ledger VALUES (?)", (entry,))
    after.start.sync()
    # A cancel from outside waits for its turn on SQLite; on PostgreSQL it comes in between.
    holder.began(entry)


class Holder:
    def began(self, entry: str) -> None: ...


holder = Holder()


async def test_a_cancelled_transaction_has_either_all_of_its_effect_or_none(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank.execute(postgres_url, "CREATE TABLE ledger (entry text NOT NULL)")
    async with world(cancelling, url=postgres_url):
        loop = asyncio.get_running_loop()

        def cancel_it() -> None:
            work = cancelling.handle("c").cancel(reason="no")
            assert asyncio.run_coroutine_threadsafe(work, loop).result()

        # Not from within the transaction's own context, where it would be part of it.
        monkeypatch.setattr(holder, "began", _Outside(cancel_it))
        handle = await slow.options(id="c").start("never")
        with pytest.raises(RunCancelled):
            await handle.result()
        assert (await handle.describe()).state is State.CANCELLED
        await _quiet(cancelling)
    assert bank.entries(postgres_url) == []
    assert bank.count_runs(postgres_url, "after") == 0


class _Outside:
    """Called in a transaction, does something that is no part of it."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work

    def __call__(self, _: str) -> None:
        contextvars.Context().run(self._work)


async def _quiet(an_app: App) -> None:
    engine = an_app._runtime.engine
    assert engine is not None
    await engine.wait_until_empty(60)


# -- registration ------------------------------------------------------------------------------------------------------
def test_what_a_transaction_cannot_be_given_is_an_error_at_registration() -> None:
    with pytest.raises(InvalidInput, match="first parameter"):

        @app.transaction  # type: ignore[arg-type]
        def nothing() -> None: ...

    with pytest.raises(InvalidInput, match="none of"):

        @app.transaction
        def wrong(tx: int) -> None: ...

    with pytest.raises(InvalidInput, match="AsyncConnection"):

        @app.transaction
        async def coroutine(tx: Tx) -> None: ...

    with pytest.raises(InvalidInput, match="isolation"):

        @app.transaction(isolation="strict")
        def level(tx: Tx) -> None: ...
