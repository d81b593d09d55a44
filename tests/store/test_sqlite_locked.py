"""A SQLite file that somebody else is writing to."""

from __future__ import annotations

import logging
import sqlite3
import threading
from typing import TYPE_CHECKING

import pytest

from mainspring import Client
from mainspring.store.sqlite import database

if TYPE_CHECKING:
    from pathlib import Path


class Said(logging.Handler):
    """Notes what is logged, and lets a test wait for the first line."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.first = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self.first.set()


@pytest.fixture
def said() -> Said:
    return Said()


def test_a_write_that_waits_for_another_process_says_so_and_goes_on(
    tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_SILENT_SECONDS", 0.05)
    logging.getLogger("mainspring.store").addHandler(said)
    path = tmp_path / "shop.db"
    try:
        with Client(f"sqlite:///{path}") as client:
            client.start.sync("checkout")
            other = sqlite3.connect(path, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            writing = threading.Thread(target=client.start.sync, args=("checkout",))
            writing.start()
            assert said.first.wait(20)
            other.execute("COMMIT")
            writing.join(20)
            assert len(client.runs.list.sync()) == 2
            other.close()
    finally:
        logging.getLogger("mainspring.store").removeHandler(said)
    assert len(said.lines) == 1
    assert f"the database {path} is locked, waiting for up to 30 s" in said.lines[0]
