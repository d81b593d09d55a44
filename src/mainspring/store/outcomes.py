"""The table that says, in a database which is not the app's own, which transactions have been committed there.

Its statements are plain enough for whatever a SQLAlchemy engine may be for. Like the verbs of `store/joining.py` they are
conversations, so that blocking and awaiting connections speak the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mainspring.store.conversations import Talk
    from mainspring.store.joining import Place

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


def look(key: Key) -> Talk[Outcome | None]:
    """What it came to, if it was made before."""
    rows = yield _LOOK, key.values()
    return Outcome(*rows[0]) if rows else None


def keep(key: Key, store: str, outcome: Outcome) -> Talk[None]:
    """Note what it came to, for the app whose database goes by the name `store`."""
    yield _KEEP, {**key.values(), "output": outcome.output, "deferred": outcome.deferred, "store": store}


def forget(keys: Iterable[Key]) -> Talk[None]:
    """Nobody will ask for these any more."""
    for key in keys:
        yield _FORGET, key.values()


def left(store: str) -> Talk[Sequence[Place]]:
    """All that is there for one app. Others may use the same table."""
    rows = yield _LEFT, {"store": store}
    return [(run, generation, position) for run, generation, position in rows]
