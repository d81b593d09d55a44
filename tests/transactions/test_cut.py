"""A connection is cut at every message of a transaction, before, during and after COMMIT: its effect is there once, and its record agrees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import psycopg  # noqa: TC002  (what a transaction is given is found by its annotation)
import pytest

from mainspring import App, Tx
from mainspring.testing import world
from tests.support.samples import covering, of
from tests.transactions import bank
from tests.transactions.cutting import HOWS, CutLine, How

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from mainspring import Handle

STRIDE = of(1, 9)
"""In CI every way to be cut has its turn at every fourth message, each at others; 1 cuts in every way at every message."""
LEDGER = (
    "CREATE TABLE ledger (entry text PRIMARY KEY)",
    """
    CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.02); RETURN NULL; END $$
    """,
    """
    CREATE CONSTRAINT TRIGGER slowly AFTER INSERT ON ledger DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    EXECUTE FUNCTION slowly()
    """,
)
"""A commit takes a while, as with a standby that is waited for. Whoever makes an entry twice waits for the first one, and is refused."""
_INSERT = "INSERT INTO ledger VALUES (%s)"


class Shop:
    """Transactions of every form, in the app's own database or in another one."""

    def __init__(self, database: str | None = None) -> None:
        self.app = app = App("sqlite://")
        self.made: list[str] = []

        @app.workflow
        async def told(entry: str) -> str:
            return entry

        @app.transaction(database=database)
        def with_tx(tx: Tx, entry: str) -> str:
            self.made.append(entry)
            tx.execute(_INSERT, (entry,))
            return entry

        @app.transaction(database=database)
        def starting(tx: Tx, entry: str) -> str:
            tx.execute(_INSERT, (entry,))
            told.options(id=f"told {entry}").start.sync(entry)
            return entry

        @app.transaction(database=database)
        def with_connection(connection: psycopg.Connection[Any], entry: str) -> str:
            connection.execute(_INSERT, (entry,))
            return entry

        @app.transaction(database=database)
        async def awaited(connection: psycopg.AsyncConnection[Any], entry: str) -> str:
            await connection.execute(_INSERT, (entry,))
            return entry

        self.forms: dict[str, Any] = {
            "Tx": with_tx,
            "starting": starting,
            "connection": with_connection,
            "awaited": awaited,
        }

        @app.workflow
        def blocking(form: str, entry: str) -> str:
            found: str = self.forms[form](entry)
            return found

        @app.workflow
        async def coroutine(form: str, entry: str) -> str:
            found: str = await (self.forms[form](entry) if form == "awaited" else self.forms[form].aio(entry))
            return found

        self.blocking, self.coroutine = blocking, coroutine


@pytest.fixture(params=["own", "elsewhere"])
def line(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[tuple[str, CutLine, Shop, str]]:
    """The app's URL, the line that is cut, the shop, and where its ledger is."""
    bank.execute(postgres_url, *LEDGER)
    if request.param == "own":
        with CutLine(postgres_url) as cut:
            yield cut.url, cut, Shop(), postgres_url
        return
    with request.getfixturevalue("shared_postgres").database() as other:
        bank.execute(other, *LEDGER)
        with CutLine(other) as cut:
            yield postgres_url, cut, Shop(cut.url), other


Start: TypeAlias = "Callable[[str], Awaitable[Handle[str]]]"
"""Starts what makes an entry, as a run whose id is the entry."""


def _in_a_workflow(shop: Shop, form: str, how: How) -> Start:
    blocking = form != "awaited" and HOWS.index(how) % 2 == 0
    workflow: Any = shop.blocking if blocking else shop.coroutine
    return lambda entry: workflow.options(id=entry).start(form, entry)


def _as_a_run(shop: Shop, form: str, how: How) -> Start:
    """A run that is one transaction ends in the commit of the transaction."""
    del how
    transaction: Any = shop.forms[form]
    return lambda entry: transaction.options(id=entry).start(entry)


async def _cut_everywhere(cut: CutLine, form: str, how: How, start: Start) -> list[str]:
    """The entries that were to be made, one for each message at which the line was cut, and one that was left alone."""
    entries: list[str] = []
    for _ in range(3):  # statements are prepared by now
        entries.append(f"{how} {form} {len(entries)}")
        assert await (await start(entries[-1])).result() == entries[-1]
    for number in range(1 + HOWS.index(how) % STRIDE, 200, STRIDE):
        entry = f"{how} {form} {len(entries)}"
        before = cut.cut
        cut.arm(number, how)
        handle = await start(entry)
        assert await handle.result() == entry
        cut.arm(0, how)
        entries.append(entry)
        if cut.cut == before:
            assert number > 3
            return entries
    raise AssertionError("no transaction was left alone")


@covering
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("starter", [_in_a_workflow, _as_a_run])
async def test_a_transaction_whose_connection_is_cut_happens_once(
    line: tuple[str, CutLine, Shop, str], postgres_url: str, how: How, starter: Callable[[Shop, str, How], Start]
) -> None:
    url, cut, shop, ledger = line
    async with world(shop.app, url=url):
        wanted = [
            entry for form in shop.forms for entry in await _cut_everywhere(cut, form, how, starter(shop, form, how))
        ]
    assert bank.entries(ledger) == sorted(wanted)
    recorded = bank.rows(
        postgres_url,
        "SELECT r.state, r.reason, r.output::text = s.output::text, s.error FROM mainspring.runs r "
        "JOIN mainspring.steps s ON s.run = r.id WHERE s.kind = 'transaction'",
    )
    assert set(recorded) == {("succeeded", None, True, None)}
    assert len(recorded) == len(wanted)
    told = bank.rows(postgres_url, "SELECT output::text FROM mainspring.runs WHERE id LIKE 'told %'")
    assert sorted(told) == sorted((f'"{entry}"',) for entry in wanted if " starting " in entry)
