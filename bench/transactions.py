"""Transactions and scheduled functions.

| what it yields                           | of what                                                                      |
|------------------------------------------|------------------------------------------------------------------------------|
| transaction, def run                     | ms per transaction of one `def` run: an update and an insert of the user's   |
| bare: transaction                        | ms for the same two statements and one insert more; the two take turns       |
| run_after(0) to first instruction        | ms, p50, from the last instruction of the transaction that schedules: its commit is included |
| … in another process                     | the same, PostgreSQL only                                                    |
| functions scheduled                      | per second, with `start_many`, a thousand at a time                          |
| bare: batched rows, in turns             | the same as in `bare.py`, a thousand rows at a time; the two take turns      |
"""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg

from bench.bare import BATCH, PAYLOAD, writers
from bench.harness import PROJECT, Figure, Target, seconds
from mainspring import App, Tx

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

TRANSACTIONS = 300
TURN = 30
HANDOVERS = 60
SCHEDULED = 20_000
_AT_ONCE = 1_000
_UPDATE = "UPDATE accounts SET balance = balance + ? WHERE id = ?"
_INSERT = "INSERT INTO entries (account, amount) VALUES (?, ?)"
_RECORD = "INSERT INTO bare VALUES (?, ?, ?, ?)"
_TABLES = (
    "CREATE TABLE accounts (id integer PRIMARY KEY, balance bigint NOT NULL)",
    "INSERT INTO accounts VALUES (1, 0), (2, 0), (3, 0)",
    "CREATE TABLE entries (account integer, amount integer)",
    "CREATE TABLE bare (run text, position text, output text, at bigint, PRIMARY KEY (run, position))",
)


class Bank:
    """An app with tables of its user's. Its transactions take turns with what is done `beside` them, so that whatever else the disk
    has to do meanwhile is the same for both; a few at a time, so that each has the processor's caches to itself.
    """

    def __init__(self, url: str, beside: Callable[[], None] = lambda: None) -> None:
        self.app = app = App(url, version="bench")
        self.times: list[float] = []

        @app.transaction
        def post(tx: Tx, number: int) -> dict[str, int]:
            tx.execute(_UPDATE, (1, number % 3 + 1))
            tx.execute(_INSERT, (number % 3 + 1, 1))
            return {"number": number}

        @app.workflow
        def posts(count: int) -> list[float]:
            own, bare = list[float](), list[float]()
            for begin in range(0, count, TURN):
                own += [seconds(partial(post, number)) for number in range(begin, begin + TURN)]
                bare += [seconds(beside) for _ in range(TURN)]
            return [statistics.median(own) * 1e3, statistics.median(bare) * 1e3]

        @app.step
        async def first_instruction() -> float:
            return time.monotonic()

        @app.transaction
        def hand_over(tx: Tx) -> list[Any]:
            tx.execute(_UPDATE, (1, 1))
            handle = app.run_after.sync(0, first_instruction.bind())
            return [handle.id, time.monotonic()]

        self.posts, self.first_instruction, self.hand_over = posts, first_instruction, hand_over


def transactions(target: Target) -> Iterator[Figure]:
    own, bare = _posts(target)
    yield Figure("bare", "transaction", target.kind, bare, "ms", "two statements and an insert, p50")
    yield Figure("mainspring", "transaction, def run", target.kind, own, "ms", "the same two, recorded; p50")
    here = asyncio.run(_handed_over(_prepared(target), work=True))
    yield Figure("mainspring", "run_after(0) to first instruction", target.kind, here, "ms", "same process, p50")
    if target.kind == "postgres":
        there = _in_another_process(_prepared(target))
        yield Figure("mainspring", "run_after(0) in another process", target.kind, there, "ms", "p50")
    rate, beside = asyncio.run(_scheduled(target))
    yield Figure("bare", "batched rows, in turns", target.kind, beside, "/s", f"{BATCH} rows in each commit")
    yield Figure("mainspring", "functions scheduled", target.kind, rate, "/s", "start_many, 1,000 at a time")


def execute(url: str, *statements: str) -> None:
    """Execute statements of a user's own, each of which commits."""
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as database:
            for statement in statements:
                database.execute(statement)
        database.close()
    else:
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())


def _prepared(target: Target) -> str:
    url = target.fresh()
    execute(url, *_TABLES)
    return url


@contextmanager
def _bare(target: Target) -> Generator[Callable[[], None], None, None]:
    """The transaction without the library, in a database of its own."""
    url = _prepared(target)
    numbers = iter(range(10**9))
    if target.kind == "sqlite":
        database = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, check_same_thread=False)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")

        def on_sqlite() -> None:
            number = next(numbers)
            database.execute("BEGIN IMMEDIATE")
            database.execute(_UPDATE, (1, number % 3 + 1))
            database.execute(_INSERT, (number % 3 + 1, 1))
            database.execute(_RECORD, (f"run-{number}", "0", PAYLOAD, number))
            database.execute("COMMIT")

        with closing(database):
            yield on_sqlite
    else:
        connection = psycopg.connect(url, autocommit=True)

        def on_postgres() -> None:
            number = next(numbers)
            with connection.transaction():
                connection.execute(_UPDATE.replace("?", "%s").encode(), (1, number % 3 + 1))
                connection.execute(_INSERT.replace("?", "%s").encode(), (number % 3 + 1, 1))
                connection.execute(_RECORD.replace("?", "%s").encode(), (f"run-{number}", "0", PAYLOAD, number))

        with closing(connection):
            yield on_postgres


def _posts(target: Target) -> tuple[float, float]:
    """Milliseconds of a recorded transaction and of a bare one: medians of three rounds, the first of which only warms up."""
    with _bare(target) as bare:
        bank = Bank(_prepared(target), bare)
        with bank.app:
            _, *rounds = [bank.posts(TRANSACTIONS) for _ in range(4)]
    own, beside = zip(*rounds, strict=True)
    return statistics.median(own), statistics.median(beside)


async def _handed_over(url: str, *, work: bool) -> float:
    bank = Bank(url)
    if work:
        async with bank.app:
            return await _p50(bank)
    found = await _p50(bank)
    await asyncio.to_thread(bank.app.close)
    return found


async def _p50(bank: Bank) -> float:
    took: list[float] = []
    for _ in range(HANDOVERS):
        run_id, committed = await bank.hand_over.aio()
        begun: float = await bank.app.handle(run_id).result()
        took.append(begun - committed)
        await asyncio.sleep(0.005)
    return statistics.median(took[5:]) * 1e3


def _in_another_process(url: str) -> float:
    """`time.monotonic` is one clock for all processes of a machine."""
    words = [sys.executable, "-m", "bench.transactions", url]
    with subprocess.Popen(words, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        try:
            return asyncio.run(_handed_over(url, work=False))
        finally:
            worker.terminate()


async def _scheduled(target: Target) -> tuple[float, float]:
    """Functions scheduled, and rows inserted without the library, per second: in turns, the median of them."""
    bank = Bank(target.fresh())
    app, now = bank.app, time.perf_counter
    _, batch, close = writers(target)
    own, bare = list[float](), list[float]()
    for _ in range(SCHEDULED // _AT_ONCE):
        begin = now()
        await app.start_many([bank.first_instruction.options(after="30d").bind() for _ in range(_AT_ONCE)])
        middle = now()
        for _ in range(_AT_ONCE // BATCH):
            batch()
        own.append(middle - begin)
        bare.append(now() - middle)
    await asyncio.to_thread(app.close)
    close()
    return _AT_ONCE / statistics.median(own), _AT_ONCE / statistics.median(bare)


async def _work(url: str) -> None:
    async with Bank(url).app:
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_work(sys.argv[1]))
