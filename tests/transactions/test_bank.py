"""Transfers between accounts, as scheduled transactions, while workers are killed: the sum stays, each is applied once."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from mainspring import Settings
from tests.support.processes import Fleet, eventually
from tests.transactions import bank, transfers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mainspring import App

pytestmark = pytest.mark.processes
APP = "tests.transactions.transfers:app"
TRANSFERS = int(os.environ.get("BANK_TRANSFERS", "60"))
KILLS = int(os.environ.get("BANK_KILLS", "3"))


@pytest.fixture
def fleet(tmp_path: Path, store_url: str) -> Iterator[Fleet]:
    rows = ", ".join(f"({number}, 100)" for number in range(transfers.ACCOUNTS))
    bank.execute(
        store_url,
        "CREATE TABLE accounts (id integer PRIMARY KEY, balance integer NOT NULL)",
        f"INSERT INTO accounts VALUES {rows}",
        "CREATE TABLE applied (transfer text NOT NULL)",
        "CREATE TABLE receipts (transfer text NOT NULL)",
    )
    with Fleet(tmp_path, store_url, lease=0.6, poll=1) as made:
        yield made


@pytest.fixture
def client(store_url: str) -> Iterator[App]:
    runtime = transfers.app._runtime
    runtime.url, runtime.settings = store_url, Settings(poll=60, work=False)
    yield transfers.app
    transfers.app.close()


def audit(url: str, applied: list[str], receipts: list[str]) -> None:
    """The ledger in the user's own tables: each transfer once, each receipt once, and no money made or lost."""
    assert bank.value(url, "SELECT sum(balance) FROM accounts") == 100 * transfers.ACCOUNTS
    assert sorted(row[0] for row in bank.rows(url, "SELECT transfer FROM applied")) == sorted(applied)
    assert sorted(row[0] for row in bank.rows(url, "SELECT transfer FROM receipts")) == sorted(receipts)


def unfinished(url: str) -> int:
    found: int = bank.value(url, f"SELECT count(*) FROM {bank.runs_table(url)} WHERE completed IS NULL")
    return found


async def test_a_commit_that_nobody_was_told_of_is_not_made_again(
    fleet: Fleet, client: App, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL between the user's commit and our acknowledgement, for each transfer once."""
    monkeypatch.setenv("BANK_DEATHS", str(tmp_path))
    worker = fleet.start_worker(APP)
    await client.run_after(0, transfers.transfer.options(id="t0").bind(0, 1, 7))
    worker.wait()
    worker = fleet.start_worker(APP)
    eventually(lambda: not unfinished(store_url), "the next worker finishes it")
    await transfers.both_ways.options(id="w").start(2, 3, 5)
    worker.wait()
    fleet.start_worker(APP)
    eventually(lambda: not unfinished(store_url), "the last worker finishes all")
    expected = ["t0", "w", "w"]  # a transaction inside a run has the id of its run
    audit(store_url, expected, receipts=["t0", "w"])
    assert bank.rows(store_url, "SELECT balance FROM accounts ORDER BY id")[:4] == [(93,), (107,), (100,), (100,)]


async def test_the_sum_stays_while_workers_are_killed(fleet: Fleet, client: App, store_url: str) -> None:
    chance = random.Random(store_url)
    workers = fleet.workers(2, APP)
    ids = [f"t{number}" for number in range(TRANSFERS)]
    for number, run_id in enumerate(ids):
        source, target = chance.sample(range(transfers.ACCOUNTS), 2)
        call = transfers.transfer.options(id=run_id).bind(source, target, chance.randrange(1, 50))
        await client.run_after(chance.random() / 4, call)
        if number % (TRANSFERS // KILLS) == TRANSFERS // KILLS - 1:
            victim = chance.choice(workers)
            victim.kill()
            workers = [each for each in workers if each is not victim] + [fleet.start_worker(APP)]
    eventually(lambda: not unfinished(store_url), "all transfers are done", within=60)
    audit(store_url, ids, receipts=ids)
