"""The table that says, in a database which is not the app's own, which transactions have been committed there.

Its statements are plain enough for whatever a SQLAlchemy engine may be for. Like the verbs of a store
they are scripts, for blocking and for awaited connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from mainspring.model.retry_scope import FORGOTTEN_TRANSACTION
from mainspring.store.sql.runs import GENERATIONS
from mainspring.store.sql.steps import RECORDED_TRANSACTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mainspring.store.transaction import Script, Transaction

Place = tuple[str, str, str]
"""A transaction: the uid of its run, its generation there (`generation_of`), and its position."""

TABLE = "mainspring_outcomes"
CREATE = f"""
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
    """What tells transactions at one position of one run apart: how often the run has begun anew, and when it last forgot this one.

    Nothing else: what was committed and not recorded is found again, in whichever attempt.
    """
    return f"{generation}.{forgotten}"


class Key(Struct, frozen=True):
    """Which transaction it is: of which run (by its uid), of which generation, at which position."""

    run: str
    generation: str
    position: str

    def values(self) -> dict[str, Any]:
        return {"run": self.run, "generation": self.generation, "position": self.position}


class Outcome(Struct, frozen=True):
    """What a transaction returned, as JSON, and what it wants to happen in the app's own database."""

    output: str
    deferred: str


def look(key: Key) -> Script[Outcome | None]:
    """What it came to, if it was made before."""
    rows = yield _LOOK, key.values()
    return Outcome(*rows[0]) if rows else None


def keep(key: Key, store: str, outcome: Outcome, idle: float | None) -> Script[None]:
    """Insert the outcome of a transaction, for the app whose database has the name `store`.

    Another worker that makes the same transaction waits for this row until it is committed. PostgreSQL rolls the transaction back if
    its session is idle for `idle` seconds, because the process is frozen or gone. None: not PostgreSQL.
    """
    values = {**key.values(), "output": outcome.output, "deferred": outcome.deferred, "store": store}
    if idle is None:
        yield _KEEP, values
    else:
        yield _KEEP_FOR_A_WHILE, {**values, "idle": str(round(idle * 1_000))}


def forget(keys: Iterable[Key]) -> Script[None]:
    """No run will ask for these any more."""
    for key in keys:
        yield _FORGET, key.values()


def left(store: str) -> Script[Sequence[Place]]:
    """All that is there for one app. Others may use the same table."""
    rows = yield _LEFT, {"store": store}
    return [(run, generation, position) for run, generation, position in rows]


def no_longer_needed(tx: Transaction, keys: Sequence[Place]) -> Script[list[Place]]:
    """Which transactions in another database no run will ask for any more. For a transaction in the app's own database.

    Their outcome is recorded here, or their run has begun anew since, or it was deleted.
    """
    rows = yield from tx.execute(GENERATIONS, ids=sorted({uid for uid, _, _ in keys}))
    runs = {uid: (run, generation) for uid, run, generation in rows}
    rows = yield from tx.execute(RECORDED_TRANSACTIONS, ids=sorted(run for run, _ in runs.values()))
    recorded = {(run, position): output for run, position, output in rows}

    def is_needed(key: Place) -> bool:
        uid, generation, position = key
        if uid not in runs:
            return False
        run, latest = runs[uid]
        forgotten = int(recorded.get((run, f"{FORGOTTEN_TRANSACTION}{position}"), 0))
        return generation == generation_of(latest, forgotten) and (run, position) not in recorded

    return [key for key in keys if not is_needed(key)]
