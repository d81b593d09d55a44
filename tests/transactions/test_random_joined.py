"""Users' own transactions at random, side by side, committed and rolled back in all orders: what was committed is there once, and nothing else.

`SAMPLES=all` plays a hundred programs instead of the first two, which takes minutes.
"""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from mainspring import App, State, run
from mainspring.errors import Conflict, StoreUnavailable
from mainspring.store.open import sqlite_path
from mainspring.testing import world
from tests.support.samples import of
from tests.transactions import bank

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SEEDS = range(of(100, 2))
THREADS = 4
TRANSACTIONS = 12
IDS = [f"shared-{number}" for number in range(6)]
KEYS = ["red", "green"]
LISTENERS = ["first", "second"]
LEVELS = {
    "read committed": psycopg.IsolationLevel.READ_COMMITTED,
    "repeatable read": psycopg.IsolationLevel.REPEATABLE_READ,
}
_NOTE = "INSERT INTO ledger VALUES (?)"
_LOST = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected, Conflict)
"""What somebody who shares rows with others has to expect: the whole transaction is rolled back."""


class Program:
    """Threads with transactions of their own, each of which notes in the ledger what it does besides."""

    def __init__(self, url: str, isolation: str, seed: int) -> None:
        self.url, self._isolation, self._seed = url, isolation, seed
        self.app = app = App("sqlite://")
        self.lost = self.rolled_back = 0

        @app.workflow
        async def job(name: str) -> str:
            return name

        @app.workflow
        async def listener() -> list[str]:
            arrived: list[str] = []
            while (said := await run.receive("news")) != "stop":
                arrived.append(said)
            return arrived

        self.job, self.listener = job, listener

    def _connect(self) -> Any:
        if bank.is_sqlite(self.url):
            return sqlite3.connect(sqlite_path(self.url), timeout=60)
        connection = psycopg.connect(self.url)
        connection.isolation_level = LEVELS[self._isolation]
        return connection

    def thread(self, number: int) -> None:
        lot = random.Random(f"{self._seed}/{number}")
        connection = self._connect()
        for turn in range(TRANSACTIONS):
            self._transaction(connection, lot, f"{number}-{turn}")
        connection.close()

    def _transaction(self, connection: Any, lot: random.Random, name: str) -> None:
        try:
            with self.app.joined(connection):
                for part in range(lot.randint(1, 4)):
                    self._do(connection, lot, f"{name}-{part}")
            if lot.random() < 0.6:
                connection.commit()
            else:
                self.rolled_back += 1
                connection.rollback()
        except (*_LOST, StoreUnavailable):
            self.lost += 1
            connection.rollback()

    def _do(self, connection: Any, lot: random.Random, name: str) -> None:
        what = lot.choice(["start", "start", "shared", "keyed", "send", "send again"])
        if what in {"start", "shared"}:
            wanted = name if what == "start" else lot.choice(IDS)
            self.job.options(id=wanted).start.sync(wanted)
            note = ["run", wanted]
        elif what == "keyed":
            note = ["run", self.job.options(key=lot.choice(KEYS)).start.sync(name).id]
        else:
            to = lot.choice(LISTENERS)
            said = name if what == "send" else f"again-{lot.randint(0, 3)}"
            self.app.send.sync(to, "news", said, key=said)
            note = ["said", to, said]
        text = _NOTE if bank.is_sqlite(self.url) else _NOTE.replace("?", "%s")
        connection.execute(text, (json.dumps(note),))


def _committed(url: str, kind: str) -> set[tuple[str, ...]]:
    notes: list[list[str]] = [json.loads(entry) for entry in bank.entries(url)]
    return {tuple(rest) for first, *rest in notes if first == kind}


async def _audit(program: Program, handles: dict[str, Any], play: Callable[[], Any]) -> None:
    url = program.url
    await play()
    for name in LISTENERS:
        await program.app.send(name, "news", "stop")
    for name, handle in handles.items():
        arrived = await asyncio.wait_for(handle.result(), 60)
        assert sorted(arrived) == sorted(said for to, said in _committed(url, "said") if to == name)
    wanted = {name for (name,) in _committed(url, "run")}
    for name in wanted:
        await asyncio.wait_for(program.app.handle(name).result(), 60)
    there = bank.rows(url, f"SELECT id, state FROM {bank.runs_table(url)} WHERE workflow LIKE '%job'")
    assert {name for name, _ in there} == wanted
    assert {state for _, state in there} <= {State.SUCCEEDED}


@pytest.mark.sampled
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("isolation", LEVELS)
async def test_what_was_committed_is_there_once_and_nothing_else(store_url: str, isolation: str, seed: int) -> None:
    if bank.is_sqlite(store_url) and isolation != "read committed":
        pytest.skip("SQLite has one level")
    bank.execute(store_url, bank.LEDGER)
    program = Program(store_url, isolation, seed)

    async def play() -> None:
        threads: Sequence[Any] = [asyncio.to_thread(program.thread, number) for number in range(THREADS)]
        await asyncio.gather(*threads)

    async with world(program.app, url=store_url):
        handles = {name: await program.listener.options(id=name).start() for name in LISTENERS}
        await _audit(program, handles, play)
    assert program.rolled_back
    assert program.lost < THREADS * TRANSACTIONS - program.rolled_back
