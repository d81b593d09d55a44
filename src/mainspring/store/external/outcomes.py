"""The table of outcomes in another database, which says which transactions have been committed there.

Its statements are plain enough for any database of a SQLAlchemy engine. Like the verbs of a store they are scripts, for blocking and for
async connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from mainspring.model.retry_scope import FORGOTTEN, Edition
from mainspring.store.sql.runs import GENERATIONS
from mainspring.store.sql.steps import RECORDED_TRANSACTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mainspring.store.transaction import Script, Transaction

TABLE = "mainspring_outcomes"
_CREATE = f"""
  CREATE TABLE IF NOT EXISTS {TABLE} (
    run        VARCHAR(64) NOT NULL,
    generation VARCHAR(32) NOT NULL,
    position   VARCHAR(250) NOT NULL,
    output     TEXT NOT NULL,
    deferred   TEXT NOT NULL,
    store      VARCHAR(64) NOT NULL,
    PRIMARY KEY (run, generation, position))
"""
_LOOK = f"SELECT output, deferred FROM {TABLE} WHERE run = :run AND generation = :generation AND position = :position"
_KEEP = f"""
  INSERT INTO {TABLE} (run, generation, position, output, deferred, store)
  VALUES (:run, :generation, :position, :output, :deferred, :store)
"""
_KEEP_FOR_A_WHILE = f"""
  INSERT INTO {TABLE} (run, generation, position, output, deferred, store)
  SELECT :run, :generation, :position, :output, :deferred, :store
  FROM set_config('idle_in_transaction_session_timeout', :idle, true)
"""
_FORGET = f"DELETE FROM {TABLE} WHERE run = :run AND generation = :generation AND position = :position"
_LEFT = f"SELECT run, generation, position FROM {TABLE} WHERE store = :store"


def generation_of(generation: int, forgotten: int) -> str:
    """Distinguish transactions at one position of one run: by the run's generation, and by when the run last forgot the transaction.

    Nothing else may be part of it, so that every attempt finds an outcome that was committed and not recorded.
    """
    return f"{generation}.{forgotten}"


class Key(Struct, frozen=True):
    """The key of a transaction: the uid of its run, its generation (`generation_of`), and its position."""

    run: str
    generation: str
    position: str

    def values(self) -> dict[str, Any]:
        return {"run": self.run, "generation": self.generation, "position": self.position}


class Outcome(Struct, frozen=True):
    """The return value of a transaction as JSON, and the verbs that it defers to the app's own database."""

    output: str
    deferred: str


def create() -> Script[None]:
    """Create the table, if it does not exist."""
    yield _CREATE, {}


def look(key: Key) -> Script[Outcome | None]:
    """Look up the outcome of a transaction, if it has committed."""
    rows = yield _LOOK, key.values()
    return Outcome(*rows[0]) if rows else None


def keep(key: Key, store: str, outcome: Outcome, idle: float | None) -> Script[None]:
    """Insert the outcome of a transaction, for the app whose database has the name `store`.

    Another worker that executes the same transaction waits for this row until it is committed. PostgreSQL rolls the transaction back if its
    session is idle for `idle` seconds, because the process is frozen or gone. None: not PostgreSQL.
    """
    values = {**key.values(), "output": outcome.output, "deferred": outcome.deferred, "store": store}
    if idle is None:
        yield _KEEP, values
    else:
        yield _KEEP_FOR_A_WHILE, {**values, "idle": str(round(idle * 1_000))}


def forget(keys: Iterable[Key]) -> Script[None]:
    """Delete outcomes that no run needs."""
    for key in keys:
        yield _FORGET, key.values()


def left(store: str) -> Script[list[Key]]:
    """All outcomes of one app. Other apps may use the same table."""
    return [Key(*row) for row in (yield _LEFT, {"store": store})]


def no_longer_needed(tx: Transaction, keys: Sequence[Key]) -> Script[list[Key]]:
    """The transactions in another database that no run needs any more. A script for the app's own database.

    Their outcome is recorded here, or their run has started over, or was deleted.
    """
    rows = yield from tx.execute(GENERATIONS, uids=sorted({key.run for key in keys}))
    runs = {uid: (run, generation) for uid, run, generation in rows}
    rows = yield from tx.execute(RECORDED_TRANSACTIONS, ids=sorted(run for run, _ in runs.values()))
    recorded = {(run, position): output for run, position, output in rows}

    def is_needed(key: Key) -> bool:
        if key.run not in runs:
            return False
        run, latest = runs[key.run]
        forgotten = Edition.decode(recorded.get((run, f"{FORGOTTEN}{key.position}")))
        return key.generation == generation_of(latest, forgotten.succeeded) and (run, key.position) not in recorded

    return [key for key in keys if not is_needed(key)]
