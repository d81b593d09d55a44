"""A bank whose workers may die right after a commit. Executed by processes of its own.

With BANK_DEATHS, a folder, the first commit of each transfer is the last thing its process does: nobody is told of it.
"""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

from mainspring import App, Tx, run
from mainspring.store.postgres.transactions import PostgresTransactions
from mainspring.store.sqlite.transactions import SqliteTransactions

ACCOUNTS = 5
app = App()
_local = threading.local()


@app.transaction
def transfer(tx: Tx, source: int, target: int, amount: int) -> str:
    _local.run = run.id
    for account, change in sorted(
        [(source, -amount), (target, amount)]
    ):  # in one order, so that nobody waits in a circle
        tx.execute("UPDATE accounts SET balance = balance + ? WHERE id = ?", (change, account))
    tx.execute("INSERT INTO applied (transfer) VALUES (?)", (run.id,))
    app.run_after.sync(0, receipt.options(id=f"receipt-{run.id}").bind(run.id))
    return run.id


@app.transaction
def receipt(tx: Tx, transfer_id: str) -> None:
    tx.execute("INSERT INTO receipts (transfer) VALUES (?)", (transfer_id,))


@app.workflow
async def both_ways(source: int, target: int, amount: int) -> list[str]:
    """There and back: two transactions in one workflow."""
    return [await transfer.aio(source, target, amount), await transfer.aio(target, source, amount)]


def _deadly(original: Any) -> Any:
    def transact(self: Any, *args: Any, **kwargs: Any) -> Any:
        _local.run = None
        answer = original(self, *args, **kwargs)
        if _local.run is not None:
            mark = Path(os.environ["BANK_DEATHS"], f"died-{_local.run.replace('/', '-')}")
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return answer

    return transact


if "BANK_DEATHS" in os.environ:
    for kind in (SqliteTransactions, PostgresTransactions):
        kind.transact = _deadly(kind.transact)  # type: ignore[method-assign]
