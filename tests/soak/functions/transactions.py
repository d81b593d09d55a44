"""Transactions in the app's own database and in others: each leaves a row in a table of the user's, which has no unique key.

So a transaction that commits twice is two rows, and one that was rolled back is none.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import psycopg  # noqa: TC002  (arguments are read by their annotations)

from mainspring import Retry, Tx, run
from mainspring.errors import Interrupted
from tests.soak.functions.effects import KIND, app, by_name, effect, fail_if_planned

TABLE = "soak_effects"
CREATE = f"CREATE TABLE IF NOT EXISTS {TABLE} (run TEXT NOT NULL, label TEXT NOT NULL, token TEXT NOT NULL)"
CREATE_JOINED = "CREATE TABLE IF NOT EXISTS soak_joined (run TEXT NOT NULL, listener TEXT NOT NULL)"
INSERT = f"INSERT INTO {TABLE} (run, label, token) VALUES (?, ?, ?)"
OTHER_FILE = os.environ.get("SOAK_OTHER_FILE", "sqlite:////nonexistent/soak-other.db")
OTHER_SERVER = os.environ.get("SOAK_OTHER_SERVER", "postgresql://nobody@/nothing")


def _insert(tx: Tx, label: str, before: str, fails: int) -> str:
    with effect(label, before, transaction=True) as outcome:
        tx.execute(INSERT, (run.id, label, outcome))
        fail_if_planned(outcome, fails)
        return outcome


@app.transaction
def note(tx: Tx, label: str, before: str = "", fails: int = 0) -> str:
    """A row in the app's own database."""
    return _insert(tx, label, before, fails)


@app.transaction(isolation="serializable")
def note_serializable(tx: Tx, label: str, before: str = "", fails: int = 0) -> str:
    """The same, and a look at what others do, so that some are rolled back for the sake of others."""
    tx.execute(f"SELECT count(*) FROM {TABLE} WHERE run = ?", (run.id,)).fetchone()
    return _insert(tx, label, before, fails)


@app.transaction(database=OTHER_FILE)
def note_in_file(tx: Tx, label: str, before: str = "", fails: int = 0) -> str:
    """A row in another database, a SQLite file."""
    return _insert(tx, label, before, fails)


@app.transaction(database=OTHER_SERVER)
def note_on_server(tx: Tx, label: str, before: str = "", fails: int = 0) -> str:
    """A row in another database, of a PostgreSQL."""
    return _insert(tx, label, before, fails)


TRANSACTIONS = by_name([note, note_serializable, note_in_file, note_on_server])

if KIND == "postgres":

    @app.transaction
    async def note_awaited(
        connection: psycopg.AsyncConnection[Any], label: str, before: str = "", fails: int = 0
    ) -> str:
        """A row in the app's own database, by a connection that is awaited."""
        with effect(label, before, transaction=True) as outcome:
            await connection.execute(
                f"INSERT INTO {TABLE} (run, label, token) VALUES (%s, %s, %s)".encode(), (run.id, label, outcome)
            )
            fail_if_planned(outcome, fails)
            return outcome

    TRANSACTIONS.update(by_name([note_awaited]))


# -- chains of functions that schedule the next one ------------------------------------------------------------------------
@app.transaction
def link(tx: Tx, chain: str, number: int, length: int) -> None:
    """Link `number` of a chain: it is there if, and only if, the next one is scheduled."""
    label = f"link {number}"
    with effect(label, transaction=True) as outcome:
        tx.execute(INSERT, (chain, label, outcome))
        if number + 1 < length:
            app.run_after.sync(0.2 * (number % 3), link.bind(chain, number + 1, length))


@app.transaction(database=OTHER_FILE)
def link_in_file(tx: Tx, chain: str, number: int, length: int) -> None:
    """The same in another database."""
    label = f"link {number}"
    with effect(label, transaction=True) as outcome:
        tx.execute(INSERT, (chain, label, outcome))
        if number + 1 < length:
            app.run_after.sync(0.1, link_in_file.bind(chain, number + 1, length))


@app.step(retry=Retry(4, first=0.05))
def link_step(chain: str, number: int, length: int) -> str:
    """A chain of steps. Each schedules the next one before it fails for the first time: still it is scheduled once."""
    with effect(f"link {number}", chain=chain) as outcome:
        if number + 1 < length:
            app.run_after.sync(0.1, link_step.bind(chain, number + 1, length))
        fail_if_planned(outcome, number % 2)
        return outcome


# -- at most once ----------------------------------------------------------------------------------------------------------
@app.step(at_most_once=True)
async def once(label: str = "once", seconds: float = 0.1) -> str:
    with effect(label) as outcome:
        await asyncio.sleep(seconds)
        return outcome


@app.step(at_most_once=True)
def once_blocking(label: str = "once", seconds: float = 0.1) -> str:
    with effect(label) as outcome:
        time.sleep(seconds)
        return outcome


@app.workflow(at_most_once=True)
async def once_flow(seconds: float) -> list[str]:
    """The whole workflow is started once: its steps are, too."""
    first = await once("first", seconds)
    return [first, await once_blocking.aio("second", seconds)]


@app.workflow
async def with_once(seconds: float) -> list[str]:
    """Steps that are begun once, in a workflow that goes on after a crash."""
    found: list[str] = []
    for number in range(2):
        try:
            function = once_blocking.aio if number else once
            found.append(await function(f"once {number}", seconds))
        except Interrupted:
            found.append("interrupted")
    return found
