"""The bare databases: what a commit and a batched insert cost here, before any library.

Both write rows of the size of a step's checkpoint, durably: SQLite with a write-ahead log and `synchronous=FULL`,
PostgreSQL with fsync, each through the driver that Mainspring uses.
"""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

import psycopg

from bench.harness import Figure, Target, median_of_three, p50_ms, seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Writers = tuple[Callable[[], object], Callable[[], object], Callable[[], object]]

PAYLOAD: Final = '{"total": 1299, "currency": "EUR", "receipt": "r-000000000000", "items": [1, 2, 3]}'
BATCH: Final = 100
_TABLE: Final = "CREATE TABLE bare (run text, position text, output text, at bigint, PRIMARY KEY (run, position))"


def measure(target: Target, *, commits: int = 500, batches: int = 200) -> Iterator[Figure]:
    """A single-row commit (p50 and per second), the same awaited, and rows per second in batches of a hundred."""
    commit, batch, close = writers(target)
    try:
        for warm_up in (commit, batch):
            for _ in range(20):
                warm_up()
        once = median_of_three(lambda: p50_ms(commit, commits))
        awaited = median_of_three(lambda: asyncio.run(_awaited_ms(commit, commits)))
        rate = median_of_three(lambda: commits / seconds(lambda: _repeat(commit, commits)))
        rows = median_of_three(lambda: batches * BATCH / seconds(lambda: _repeat(batch, batches)))
    finally:
        close()
    yield Figure("bare", "commit", target.kind, once, "ms", "one row, p50")
    yield Figure("bare", "commit, awaited", target.kind, awaited, "ms", "made on a thread for an event loop, p50")
    yield Figure("bare", "commits", target.kind, rate, "/s", "one row each, one after the other")
    yield Figure("bare", "batched rows", target.kind, rows, "/s", f"{BATCH} rows in each commit")


def writers(target: Target) -> Writers:
    """What makes a single-row commit, what makes one of a hundred rows, and what closes it, on a database of its own."""
    return {"sqlite": _on_sqlite, "postgres": _on_postgres}[target.kind](target.fresh())


def _on_sqlite(url: str) -> Writers:
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"{_TABLE} WITHOUT ROWID")
    numbers = iter(range(10**9))
    insert = "INSERT INTO bare VALUES (?, ?, ?, ?)"

    def commit() -> None:
        connection.execute(insert, _row(next(numbers)))

    def batch() -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(insert, [_row(next(numbers)) for _ in range(BATCH)])
        connection.execute("COMMIT")

    return commit, batch, connection.close


def _on_postgres(url: str) -> Writers:
    connection = psycopg.connect(url, autocommit=True, prepare_threshold=1)
    connection.execute(_TABLE.encode())
    numbers = iter(range(10**9))

    def commit() -> None:
        connection.execute("INSERT INTO bare VALUES (%s, %s, %s, %s)", _row(next(numbers)))

    def batch() -> None:
        columns = [list(column) for column in zip(*(_row(next(numbers)) for _ in range(BATCH)), strict=True)]
        connection.execute(  # as binary, arrays arrive 2.5 times as fast as quoted text
            "INSERT INTO bare SELECT * FROM unnest(%b::text[], %b::text[], %b::text[], %b::bigint[])", columns
        )

    return commit, batch, connection.close


def _row(number: int) -> tuple[str, str, str, int]:
    return f"run-{number // 5:012d}", str(number % 5), PAYLOAD, 1_790_000_000_000_000 + number


async def _awaited_ms(commit: Callable[[], object], times: int) -> float:
    """What is left of a library that never blocks its event loop, if it does nothing else: to a thread, and back."""
    loop, queue = asyncio.get_running_loop(), SimpleQueue[asyncio.Future[None] | None]()

    def work() -> None:
        while (asked := queue.get()) is not None:
            commit()
            loop.call_soon_threadsafe(asked.set_result, None)

    thread = threading.Thread(target=work)
    thread.start()
    took: list[float] = []
    for _ in range(times):
        begun = time.perf_counter()
        answer = loop.create_future()
        queue.put(answer)
        await answer
        took.append(time.perf_counter() - begun)
    queue.put(None)
    thread.join()
    return statistics.median(took) * 1000


def _repeat(action: Callable[[], object], times: int) -> None:
    for _ in range(times):
        action()
