"""Delete ended runs after their retention, with all that they recorded, sent and received.

A run is kept, however old, while it is needed: by the run that started it or waits for it, by a child that has not ended, or by a schedule
that has not processed its end.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from mainspring.model.clock import SECOND, SystemClock
from mainspring.store.sql.retention import COUNT_OLD, FIND_OLD, NTH_END, OLDEST_ENDS, PRUNE, TABLES_OF_RUN, VALUES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mainspring.store.transaction import Script, Transaction, Transactor

_CLOCK = SystemClock()
_MINUTE = 60 * SECOND
BEGIN_SWEEP = """
  INSERT INTO meta (key, value) VALUES ('payload_sweep', :now)
  ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE CAST(meta.value AS bigint) <= :before RETURNING key
"""


class Keep(Struct, frozen=True):
    """How long ended runs are kept, in microseconds; None: for ever."""

    runs: int | None = None
    functions: int | None = None
    """Runs scheduled with `run_after` and `run_at`."""
    names: Mapping[str, int | None] = field(default_factory=dict[str, "int | None"])
    """By name of a run's function: its retention instead of the above."""
    last: int | None = None
    """How many ended runs of each name are kept, the latest ones, and as many scheduled functions; None: any number."""
    last_names: Mapping[str, int | None] = field(default_factory=dict[str, "int | None"])
    """By name: the number instead of the above."""

    def of(self, name: str, *, function: bool) -> int | None:
        return self.names.get(name, self.functions if function else self.runs)

    def last_of(self, name: str) -> int | None:
        return self.last_names.get(name, self.last)

    @property
    def shortest(self) -> int | None:
        """The shortest time between the end of a run and its deletion. Runs beyond a number are deleted once a minute."""
        numbered = any(each is not None for each in (self.last, *self.last_names.values()))
        lengths = (self.runs, self.functions, *self.names.values(), _MINUTE if numbered else None)
        return min((each for each in lengths if each is not None), default=None)


class Due(Struct, frozen=True):
    """Runs whose retention has ended."""

    rules: str = ""
    """Their names and the times until which they ended, as JSON; empty: none."""
    next_due: int | None = None
    """The time at which the retention of the next run of another name ends."""
    behind: int = 0
    """How long ago, in microseconds, the oldest of them should have been deleted."""


class Retention:
    """The verbs of retention, in transactions of a `Transactor`. With `in_one_statement`, a batch is one round trip."""

    def __init__(self, transactor: Transactor, *, in_one_statement: bool = False) -> None:
        self._transactor = transactor
        self._in_one_statement = in_one_statement
        self._begun: Due | None = None
        self._ends: dict[tuple[str, int], int] = {}
        """By name: the end of the last deleted run."""

    def due(self, keep: Keep, now: int) -> Due:
        """The runs to delete. Changes nothing."""
        due: list[dict[str, Any]] = []
        later: list[int] = []
        behind = 0
        for function, name, oldest in self._transactor.read(OLDEST_ENDS):
            length = keep.of(name, function=bool(function))
            surplus = self._surplus(keep, name, function)
            aged = length is not None and oldest <= now - length
            if length is not None and aged:
                behind = max(behind, now - length - oldest)
            elif length is not None:
                later.append(oldest + length)
            if length is not None and aged and (surplus is None or surplus < now - length):
                before = now - length
            elif surplus is not None and surplus >= oldest:
                before = surplus
            else:
                continue
            due.append({"name": name, "oldest": oldest, "before": before, "function": function})
        return Due(json.dumps(due) if due else "", min(later, default=None), behind)

    def _surplus(self, keep: Keep, name: str, function: int) -> int | None:
        """The time until which the surplus runs of a name ended. Runs that ended at the same time are kept or deleted together."""
        last = keep.last_of(name)
        if last is None:
            return None
        found = self._transactor.read(NTH_END, name=name, function=function, newer=last - 1)
        return found[0][0] - 1 if found else None

    def prune(self, due: Due, limit: int) -> int:
        """Delete at most `limit` of these runs, in one short transaction. Skip runs that another transaction has locked."""
        if not due.rules:
            return 0
        if self._in_one_statement:
            return self._prune_from(due, limit)
        return self._transactor.change(lambda tx: _prune(tx, due.rules, limit))

    def _prune_from(self, due: Due, limit: int) -> int:
        """Delete from where the previous batch ended, until there is a new `due`.

        That skips dead rows that vacuum cannot remove yet, and runs that the previous batches left.
        """
        if self._begun is not due:
            self._begun, self._ends = due, {}
        rules = json.loads(due.rules)
        for rule in rules:
            rule["oldest"] = self._ends.get((rule["name"], rule["function"]), rule["oldest"])
        rows = self._transactor.execute(PRUNE, rules=json.dumps(rules), limit=limit)
        for name, function, completed in rows:
            self._ends[name, function] = max(self._ends.get((name, function), 0), completed)
        return len(rows)

    def texts_with(self, marker: str) -> Iterator[str]:
        """All stored values that contain a marker. Reads every stored value."""
        for table, columns in VALUES.items():
            for column in columns:
                found = self._transactor.read(
                    f"SELECT CAST({column} AS text) FROM {table} WHERE CAST({column} AS text) LIKE :pattern",
                    pattern=f"%{marker}%",
                )
                yield from (row[0] for row in found)

    def begin_sweep(self, now: int, every: int) -> bool:
        """Begin a sweep of values outside of the database. Return False if a process has begun one in the last `every` microseconds."""
        return bool(self._transactor.execute(BEGIN_SWEEP, now=str(now), before=now - every))

    def round_trip(self) -> float:
        """The seconds of one round trip to the database."""
        begun = _CLOCK.monotonic()
        self._transactor.read("SELECT 1")
        return _CLOCK.monotonic() - begun

    def expired(self, keep: Keep, now: int) -> dict[str, int]:
        """The number of runs of each name that would be deleted. Changes nothing."""
        rules = self.due(keep, now).rules
        found: dict[str, int] = {}
        for name, count in self._transactor.read(COUNT_OLD, rules=rules, limit=None) if rules else ():
            found[name] = found.get(name, 0) + count
        return found


def _prune(tx: Transaction, rules: str, limit: int) -> Script[int]:
    ids = [row[0] for row in (yield from tx.execute(FIND_OLD, rules=rules, limit=limit))]
    yield from delete_runs(tx, ids)
    return len(ids)


def delete_runs(tx: Transaction, ids: list[str]) -> Script[None]:
    """Delete runs with all that they recorded, sent and received."""
    for table in TABLES_OF_RUN:
        yield from tx.execute(f"DELETE FROM {table} WHERE run = ANY(:ids)", ids=ids)
    yield from tx.execute("DELETE FROM runs WHERE id = ANY(:ids)", ids=ids)
