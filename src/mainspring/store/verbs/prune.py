"""Delete ended runs that were kept long enough, with all that they recorded, sent and received.

A run is kept, however old, while something needs it: the run that started it or waits for it, a child that has not ended, a schedule
that has yet to process its end.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from mainspring.store.sql.retention import COUNT_OLD, FIND_OLD, OLDEST_ENDS, PRUNE, TABLES_OF_RUN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainspring.store.transaction import Script, Transaction, Transactor


class Keep(Struct, frozen=True):
    """How long ended runs are kept, in microseconds; None: for ever."""

    runs: int | None = None
    functions: int | None = None
    """Those scheduled with run_after and run_at."""
    names: Mapping[str, int | None] = field(default_factory=dict[str, "int | None"])
    """Runs and functions of these names, instead of the above."""

    def of(self, name: str, *, function: bool) -> int | None:
        return self.names.get(name, self.functions if function else self.runs)

    @property
    def shortest(self) -> int | None:
        """How long the first of them is kept."""
        return min(
            (each for each in (self.runs, self.functions, *self.names.values()) if each is not None), default=None
        )


class Pruned(Struct, frozen=True):
    """What pruning came to. `next_due` is when the next run will have been kept long enough, if any will."""

    runs: int
    next_due: int | None


class Retention:
    """The verbs, in transactions of a `Transactor`."""

    def __init__(self, transactor: Transactor) -> None:
        self._transactor = transactor

    def prune(self, keep: Keep, now: int, limit: int) -> Pruned:
        """Delete at most `limit` runs, in one short transaction. Runs that another transaction has locked are left for another time."""
        rules, next_due = self._rules(keep, now)
        if not rules:
            return Pruned(0, next_due)
        return Pruned(self._transactor.change(lambda tx: _prune(tx, rules, limit), now), next_due)

    def expired(self, keep: Keep, now: int) -> dict[str, int]:
        """How many runs of each name would be deleted. Changes nothing."""
        rules, _ = self._rules(keep, now)
        found: dict[str, int] = {}
        for name, count in self._transactor.read(COUNT_OLD, rules=rules, limit=None) if rules else ():
            found[name] = found.get(name, 0) + count
        return found

    def _rules(self, keep: Keep, now: int) -> tuple[str, int | None]:
        """Which names have runs to delete that ended when, as JSON; and when the next of the others will be to delete."""
        due: list[dict[str, Any]] = []
        later: list[int] = []
        for function, name, oldest in self._transactor.read(OLDEST_ENDS):
            length = keep.of(name, function=bool(function))
            if length is not None and oldest <= now - length:
                due.append({"name": name, "before": now - length, "function": bool(function)})
            elif length is not None:
                later.append(oldest + length)
        return json.dumps(due) if due else "", min(later, default=None)


def _prune(tx: Transaction, rules: str, limit: int) -> Script[int]:
    if tx.dialect.locks:
        return len((yield from tx.execute(PRUNE, rules=rules, limit=limit)))
    ids = [row[0] for row in (yield from tx.execute(FIND_OLD, rules=rules, limit=limit))]
    for table in TABLES_OF_RUN:
        yield from tx.execute(f"DELETE FROM {table} WHERE run = ANY(:ids)", ids=ids)
    yield from tx.execute("DELETE FROM runs WHERE id = ANY(:ids)", ids=ids)
    return len(ids)
