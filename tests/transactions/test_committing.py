"""The record of a transaction is the last thing in it: where it is refused, forgotten or lost, nothing is half done.

On PostgreSQL it goes to the server together with COMMIT; on SQLite the statement that writes it sees whether it may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from mainspring import App, Tx
from mainspring.errors import InTransaction, RunCancelled, StoreUnavailable
from mainspring.testing import world
from tests.store.proxies import BrokenLine, TransactionPooler
from tests.transactions import bank

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mainspring import Handle

app = App("sqlite://")
seen: list[Any] = []
MEANWHILE: dict[str, Callable[[], None]] = {}
"""What somebody else does while a transaction is open."""


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[str]:
    bank.execute(postgres_url, bank.LEDGER)
    seen.clear()
    yield postgres_url
    MEANWHILE.clear()


@app.transaction
def enter(tx: Tx, entry: str) -> str:
    seen.append(entry)
    tx.execute("INSERT INTO ledger VALUES (?)", (entry,))
    if happens := MEANWHILE.pop(entry, None):
        happens()
    return entry


@app.workflow
def entering(*entries: str) -> list[str]:
    return [enter(entry) for entry in entries]


# -- whatever is found there ---------------------------------------------------------------------------------------------
@app.transaction
def meddle(tx: Tx, statement: str) -> str:
    tx.execute("INSERT INTO ledger VALUES ('meddled')")
    tx.execute(statement)
    return "made"


@app.workflow
def meddling(statement: str) -> str:
    try:
        return meddle(statement)
    except InTransaction:
        return "refused"


_STEP = """
  INSERT INTO {steps} (run, position, kind, name, seq, output, started, completed, attempts, epoch)
  SELECT 'a', '0', 'transaction', 'meddle', {rest}, epoch FROM {runs} WHERE id = 'a'
"""
MEDDLING = {
    "a beginning of it": (_STEP.replace("{rest}", "NULL, NULL, 1, NULL, 1"), "made"),
    "another outcome": (_STEP.replace("{rest}", "7, '\"before\"', 1, 2, 1"), "refused"),
    "a run that waits": ("UPDATE {runs} SET state = 'waiting' WHERE id = 'a'", "made"),
    "another's run": ("UPDATE {runs} SET owner = 'another' WHERE id = 'a'", "refused"),
    "a later claim": ("UPDATE {runs} SET epoch = epoch + 1 WHERE id = 'a'", "refused"),
    "a run that is over": ("UPDATE {runs} SET state = 'failed' WHERE id = 'a'", "refused"),
    "no run": ("DELETE FROM {runs} WHERE id = 'a'", "refused"),
}


@pytest.mark.parametrize("case", MEDDLING)
async def test_it_is_recorded_and_committed_or_neither_whatever_is_found(url: str, case: str) -> None:
    statement, expected = MEDDLING[case]
    steps, runs = bank.runs_table(url).replace("runs", "steps"), bank.runs_table(url)
    async with world(app, url=url):
        handle = await meddling.options(id="a").start(statement.format(steps=steps, runs=runs))
        assert await handle.result() == expected
    made = expected == "made"
    assert bank.entries(url) == (["meddled"] if made else [])
    recorded = bank.rows(url, f"SELECT output IS NOT NULL, completed IS NOT NULL FROM {steps} WHERE run = 'a'")
    assert [(bool(output), bool(completed)) for output, completed in recorded] == [(made, True)]


async def test_what_is_asked_to_stop_meanwhile_is_recorded_and_stops(url: str) -> None:
    stop = f"UPDATE {bank.runs_table(url)} SET state = 'cancelling' WHERE id = 'a'"
    async with world(app, url=url):
        handle = await meddling.options(id="a").start(stop)
        with pytest.raises(RunCancelled):
            await handle.result()
    assert bank.entries(url) == ["meddled"]


# -- refused -----------------------------------------------------------------------------------------------------------
async def test_a_run_that_was_taken_over_meanwhile_commits_nothing(postgres: str) -> None:
    taken = "UPDATE mainspring.runs SET owner = 'another', epoch = epoch + 1 WHERE id = 'a'"
    MEANWHILE["two"] = lambda: bank.execute(postgres, taken)
    async with world(app, url=postgres) as w:
        await entering.options(id="a").start("one", "two", "three")
        await w.drain()
        assert seen == ["one", "two"]
        assert bank.entries(postgres) == ["one"]


async def test_a_run_that_was_deleted_meanwhile_commits_nothing(postgres: str) -> None:
    MEANWHILE["two"] = lambda: bank.execute(postgres, "DELETE FROM mainspring.runs WHERE id = 'a'")
    async with world(app, url=postgres) as w:
        await entering.options(id="a").start("one", "two", "three")
        await w.drain()
        assert seen == ["one", "two"]
        assert bank.entries(postgres) == ["one"]


async def test_what_is_recorded_already_is_not_committed_again(postgres: str) -> None:
    recorded = """
      INSERT INTO mainspring.steps (run, position, kind, name, seq, output, started, completed, attempts, epoch)
      SELECT 'a', '1', 'transaction', 'enter', 1, '"as recorded"', 1, 1, 1, epoch FROM mainspring.runs WHERE id = 'a'
    """
    MEANWHILE["two"] = lambda: bank.execute(postgres, recorded)
    async with world(app, url=postgres):
        handle = await entering.options(id="a").start("one", "two", "three")
        assert await handle.result() == ["one", "as recorded", "three"]
    assert bank.entries(postgres) == ["one", "three"]


@app.transaction
def enter_twice(tx: Tx, entry: str) -> None:
    tx.execute("INSERT INTO owed VALUES (?)", (entry,))


@app.workflow
def forgiving(entry: str) -> list[str]:
    try:
        enter_twice(entry)
    except psycopg.errors.ForeignKeyViolation as error:
        return [error.sqlstate or "", enter(entry)]
    return []


async def test_what_fails_at_the_commit_is_the_outcome_and_leaves_nothing(postgres: str) -> None:
    bank.execute(
        postgres,
        "CREATE TABLE debtors (name text PRIMARY KEY)",
        "CREATE TABLE owed (name text REFERENCES debtors DEFERRABLE INITIALLY DEFERRED)",
    )
    async with world(app, url=postgres):
        for number in range(3):
            assert await forgiving.aio(str(number)) == ["23503", str(number)]
    assert bank.value(postgres, "SELECT count(*) FROM owed") == 0
    assert len(seen) == 3


# -- forgotten ---------------------------------------------------------------------------------------------------------
@app.transaction
def enter_after(tx: Tx, entry: str, statements: list[str]) -> str:
    seen.append(entry)
    tx.execute("INSERT INTO ledger VALUES (?)", (entry,))
    for statement in statements:
        tx.execute(statement)
    if entry.startswith("bad"):
        raise LookupError(entry)
    return entry


@app.workflow
def many(statements: list[str]) -> list[str]:
    found: list[str] = []
    for number in range(20):  # psycopg prepares what it has seen five times
        try:
            found.append(enter_after(f"{number:02}", statements if number % 3 == 1 else []))
            enter_after("bad", [])
        except LookupError:
            continue
    return found


FORGETTING = [
    ["DEALLOCATE ALL"],
    ["SAVEPOINT mine", "INSERT INTO ledger VALUES ('undone')", "ROLLBACK TO SAVEPOINT mine"],
    ["CREATE TABLE passing (x int)", "DROP TABLE passing"],
    ["SET LOCAL client_encoding TO 'LATIN1'"],
    ["SET statement_timeout TO '50s'"],
]


@pytest.mark.parametrize("statements", FORGETTING, ids=lambda each: each[-1].split()[0])
async def test_a_function_may_make_the_connection_forget_what_was_prepared(
    postgres: str, statements: list[str]
) -> None:
    expected = [f"{number:02}" for number in range(20)]
    async with world(app, url=postgres):
        assert await many.aio(statements) == expected
    assert bank.entries(postgres) == expected
    assert [entry for entry in seen if entry != "bad"] == expected


async def test_also_where_nobody_can_see_it(postgres: str) -> None:
    expected = [f"{number:02}" for number in range(20)]
    async with world(app, url=postgres):
        assert await many.aio(["DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$"]) == expected
    assert bank.entries(postgres) == expected


@app.transaction
def told(tx: Tx, words: str, *, latin: bool) -> str:
    if latin:
        tx.execute("SET LOCAL client_encoding TO 'LATIN1'")
    tx.execute("INSERT INTO ledger VALUES (?)", (words,))
    return words


async def test_what_is_recorded_is_spelled_as_the_connection_is(postgres: str) -> None:
    async with world(app, url=postgres):
        for latin in (True, False):
            assert await (await told.start("déjà vu", latin=latin)).result() == "déjà vu"
    assert bank.rows(postgres, "SELECT DISTINCT output::text FROM mainspring.steps") == [('"déjà vu"',)]
    assert bank.entries(postgres) == ["déjà vu"] * 2


# -- who goes on -------------------------------------------------------------------------------------------------------
@app.transaction
def hides_an_error(tx: Tx) -> str:
    tx.execute("INSERT INTO ledger VALUES ('lost')")
    try:
        tx.execute("SELECT 1/0")
    except psycopg.Error:
        return "all is well"
    return "never"


@app.transaction
def hides_an_error_of_psycopg(connection: psycopg.Connection[Any]) -> str:
    connection.execute("INSERT INTO ledger VALUES ('lost')")
    try:
        connection.execute("SELECT 1/0")
    except psycopg.Error:
        return "all is well"
    return "never"


@pytest.mark.parametrize("fn", [hides_an_error, hides_an_error_of_psycopg])
async def test_who_hides_an_error_is_not_told_that_it_was_committed(postgres: str, fn: Any) -> None:
    async with world(app, url=postgres):
        for made in (fn.aio, lambda: _run_of(fn)):
            with pytest.raises(psycopg.errors.InFailedSqlTransaction):
                await made()
    assert bank.entries(postgres) == []


async def _run_of(fn: Any) -> Any:
    return await (await fn.start()).result()


@app.transaction
def ends_it(connection: psycopg.Connection[Any], how: str) -> None:
    connection.execute("INSERT INTO ledger VALUES ('inner')")
    getattr(connection, how)()


@app.transaction
def outer(tx: Tx, how: str) -> None:
    tx.execute("INSERT INTO ledger VALUES ('outer')")
    ends_it(how)


@pytest.mark.parametrize("how", ["commit", "rollback"])
async def test_the_transaction_of_a_tx_cannot_be_ended_through_a_connection(postgres: str, how: str) -> None:
    async with world(app, url=postgres):
        with pytest.raises(InTransaction, match=r"leave that to @app\.transaction"):
            await outer.aio(how)
        assert bank.entries(postgres) == []
        assert await enter.aio("afterwards") == "afterwards"
    assert bank.entries(postgres) == ["afterwards"]


# -- lost --------------------------------------------------------------------------------------------------------------
@app.transaction
def enter_pair(tx: Tx, entry: str) -> str:
    tx.execute("INSERT INTO ledger VALUES (?)", (entry,))
    if happens := MEANWHILE.pop(entry, None):
        happens()
    tx.execute("INSERT INTO ledger VALUES (?)", (f"{entry} too",))
    return entry


@app.workflow
def pairs(*entries: str) -> list[str]:
    return [enter_pair(entry) for entry in entries]


async def test_an_answer_that_is_lost_makes_nothing_happen_twice(postgres: str) -> None:
    """The first answer lost is that of a statement, the next that of the record and the commit; now and then somebody else's."""
    names = [str(number) for number in range(8)]
    with BrokenLine(postgres) as line:
        for number, name in enumerate(names):
            MEANWHILE[name] = lambda number=number: line.lose_answer(1 + number % 4)  # type: ignore[misc]
        async with world(app, url=line.url):
            handle = await pairs.start(*names)
            assert await _result(handle) == names
            line.lose_answer(0)
    assert bank.entries(postgres) == sorted([*names, *(f"{name} too" for name in names)])


async def _result(handle: Handle[list[str]]) -> list[str]:
    """Wait for a run on a line that may lose the answers to the one who waits."""
    while True:
        try:
            return await handle.result()
        except StoreUnavailable:
            continue


@app.transaction
def who(tx: Tx) -> int:
    found: int = tx.execute("SELECT pg_backend_pid()").fetchone()[0]
    seen.append(found)
    return found


async def test_a_connection_that_the_server_has_closed_is_given_to_nobody(postgres: str) -> None:
    async with world(app, url=postgres):
        first = await who.aio()
        bank.execute(postgres, f"SELECT pg_terminate_backend({first}, 60000)")
        assert await who.aio() != first
        assert len(seen) == 2


async def test_behind_a_pooler_a_transaction_stays_on_one_connection(postgres: str) -> None:
    with TransactionPooler(postgres) as pooler:
        async with world(app, url=pooler.url):
            for number in range(8):
                assert await entering.aio(f"{number} one", f"{number} two") == [f"{number} one", f"{number} two"]
    assert len(bank.entries(postgres)) == 16
