"""Looks at the rows of the database while the soak goes on, each time by single statements: what must hold at any moment.

It also says how many runs are unfinished, so that the load can wait.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from typing import TYPE_CHECKING, Any

import psycopg

from mainspring.store.open import sqlite_path
from mainspring.store.sql.dialect import prefixed
from tests.soak.functions.jobs import LIMITS

if TYPE_CHECKING:
    from collections.abc import Iterator

_LIVE = "state NOT IN ('succeeded', 'failed', 'cancelled')"
_PAUSE = 0.25
_MOST = 50


class Watcher:
    """A thread with a connection of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.backlog = 0
        self.looks = 0
        self.findings: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watcher")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_PAUSE):
            with (
                contextlib.suppress(psycopg.Error, sqlite3.OperationalError),
                contextlib.closing(connect(self._url)) as db,
            ):
                while not self._stop.wait(_PAUSE):
                    self.look(db)

    def look(self, db: Any) -> None:
        """Look once."""
        self.backlog = rows(db, f"SELECT count(*) FROM runs WHERE {_LIVE} AND workflow <> 'nobody_writes'")[0][0]
        for finding in [*_keys(db), *_queues(db)]:
            if finding not in self.findings and len(self.findings) < _MOST:
                self.findings.append(finding)
        self.looks += 1


def connect(url: str) -> Any:
    """A connection that reads the library's tables by their plain names and sees what is committed."""
    if url.startswith("sqlite"):
        return sqlite3.connect(sqlite_path(url), timeout=30, isolation_level=None)
    return psycopg.connect(url, autocommit=True, options="-c search_path=mainspring,public", connect_timeout=10)


def rows(db: Any, text: str) -> list[Any]:
    found: list[Any] = db.execute(prefixed(text) if isinstance(db, sqlite3.Connection) else text).fetchall()
    return found


def _keys(db: Any) -> Iterator[str]:
    text = f"SELECT key, count(*) FROM runs WHERE key IS NOT NULL AND {_LIVE} GROUP BY key HAVING count(*) > 1"
    for key, count in rows(db, text):
        yield f"keys: {count} unfinished runs had the key {key!r} at once"


def _queues(db: Any) -> Iterator[str]:
    """Runs that have begun and not ended occupy their queue, whether they are executed, wait or sleep."""
    text = f"SELECT queue, partition, count(*) FROM runs WHERE queue IS NOT NULL AND attempt_started IS NOT NULL AND {_LIVE} AND state <> 'scheduled' GROUP BY queue, partition"
    found: dict[str, dict[str, int]] = {}
    for queue, partition, count in rows(db, text):
        found.setdefault(queue, {})[partition] = count
    for queue, partitions in found.items():
        limits = LIMITS.get(queue, {})
        if sum(partitions.values()) > limits.get("concurrency", 1_000_000):
            yield f"queues: {sum(partitions.values())} runs had begun and not ended in queue {queue}"
        for partition, count in partitions.items():
            if count > limits.get("partition_concurrency", 1_000_000):
                yield f"queues: {count} runs had begun and not ended in partition {partition} of queue {queue}"
