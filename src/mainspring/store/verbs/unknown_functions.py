"""Runs of functions or instances that no live worker has: started by name from outside, or left when the function was removed.

Such runs wait, marked with the reason. They fail after no live worker has had their function or instance for long enough. A worker that has
it removes the mark.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from mainspring.model.runs import error_record
from mainspring.store.bad_rows import readable
from mainspring.store.sql.claims import INSTANCE
from mainspring.store.sql.conditions import IN_FAILED
from mainspring.store.sql.dialect import per_database
from mainspring.store.sql.queues import QUEUED_RUNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mainspring.store.transaction import Script, Transaction, Transactor

_AT_ONCE = 200
_FLEET = "SELECT functions, instances, id FROM workers"
_WAITING = f"FROM {QUEUED_RUNS} WHERE fingerprint = '' AND blocked IS NULL AND due <= :now"
_NAMES = f"SELECT DISTINCT workflow {_WAITING}"
_UNMARKED = f"SELECT id {_WAITING} AND workflow = :workflow LIMIT :limit"
_INSTANCES = per_database(f"SELECT DISTINCT {{instance}} {_WAITING} AND workflow = :workflow", instance=INSTANCE)
_UNMARKED_OF = per_database(
    f"SELECT id {_WAITING} AND workflow = :workflow AND {{instance}} = CAST(:instance AS text) LIMIT :limit",
    instance=INSTANCE,
)
_MARKED = per_database(
    f"""
  SELECT id, workflow, blocked, {{instance}} FROM runs
  WHERE blocked IS NOT NULL AND state = 'queued' AND {IN_FAILED} AND fingerprint = ''
""",
    instance=INSTANCE,
)
_MARK = "UPDATE runs SET blocked = :mark WHERE id = :id AND state = 'queued' AND blocked IS NULL RETURNING id"
_UNMARK = "UPDATE runs SET blocked = NULL WHERE id = :id AND state = 'queued' RETURNING id"
_FAIL = """
  UPDATE runs SET state = 'failed', reason = :reason, error = :error, completed = :now, blocked = NULL, end_unreported = true
  WHERE id = :id AND state = 'queued' RETURNING id
"""


class Reviewed(Struct, frozen=True):
    """The number of runs whose function no live worker knows, and the number of earlier ones that failed for that reason."""

    marked: int = 0
    failed: int = 0


class _Fleet:
    """The functions and instances of all live workers."""

    def __init__(self, workers: Iterable[tuple[list[str], dict[str, list[str]]]]) -> None:
        self.names: set[str] = set()
        self.methods: set[str] = set()
        self._instances: set[tuple[str, str]] = set()
        for functions, instances in workers:
            self.names.update(functions)
            for method, names in instances.items():
                self.methods.add(method)
                self._instances.update((method, name) for name in names)

    def has(self, workflow: str, instance: str | None) -> bool:
        if workflow not in self.names:
            return False
        # A call without an instance is executed, so that it fails with a clear error.
        return workflow not in self.methods or instance is None or (workflow, instance) in self._instances


class _Missing(NamedTuple):
    """A function that no live worker knows, or a known function with an instance that no live worker has."""

    workflow: str
    instance: str | None = None

    @property
    def mark(self) -> str:
        what = f"knows {self.workflow!r}; if it was renamed, declare it with name={self.workflow!r}"
        if self.instance is not None:
            what = f"has the instance {self.instance!r} that {self.workflow!r} needs"
        return f"no live worker {what}"

    @property
    def message(self) -> str:
        what = f"known a function called {self.workflow!r}"
        if self.instance is not None:
            what = f"had the instance {self.instance!r} that {self.workflow!r} needs (app.instance)"
        return f"no live worker has {what} for too long (setting unknown_after)"


class UnknownFunctions:
    """Marks and fails runs of unknown functions, in transactions of a `Transactor`."""

    def __init__(self, transactor: Transactor) -> None:
        self._change = transactor.change
        self._rows = transactor.read

    def review(self, now: int, patience: int) -> Reviewed:
        """Mark runs whose function no live worker knows. Fail runs that have been marked for `patience` microseconds."""
        fleet = _Fleet(readable("workers", self._rows(_FLEET), _known_to, lambda row: row[2]))
        fresh = self._fresh(fleet, now)
        found: list[str] = []
        lost: dict[str, _Missing] = {}
        for run, workflow, mark, instance in self._rows(_MARKED):
            if fleet.has(workflow, instance):
                found.append(run)
            elif _since(mark) <= now - patience:
                lost[run] = _Missing(workflow, instance if workflow in fleet.names else None)
        if not (fresh or found or lost):
            return Reviewed()

        def work(tx: Transaction) -> Script[Reviewed]:
            yield from tx.lock_tree([*found, *fresh, *lost])
            for run in found:
                yield from tx.execute(_UNMARK, id=run)
            marked = failed = 0
            for run, missing in fresh.items():
                marked += len((yield from tx.execute(_MARK, id=run, mark=_mark(missing, now))))
            for run, missing in lost.items():
                failed += yield from _fail(tx, run, missing)
            return Reviewed(marked, failed)

        return self._change(work, now)

    def _fresh(self, fleet: _Fleet, now: int) -> dict[str, _Missing]:
        """Runs that are not yet marked."""
        missing: list[_Missing] = []
        for (workflow,) in self._rows(_NAMES, now=now):
            if workflow not in fleet.names:
                missing.append(_Missing(workflow))
            elif workflow in fleet.methods:
                wanted = [instance for (instance,) in self._rows(_INSTANCES, now=now, workflow=workflow)]
                missing += [_Missing(workflow, each) for each in wanted if not fleet.has(workflow, each)]
        return {run: each for each in missing for run in self._unmarked(each, now)}

    def _unmarked(self, missing: _Missing, now: int) -> list[str]:
        values = {"now": now, "workflow": missing.workflow, "limit": _AT_ONCE}
        if missing.instance is None:
            return [run for (run,) in self._rows(_UNMARKED, **values)]
        return [run for (run,) in self._rows(_UNMARKED_OF, instance=missing.instance, **values)]


def _known_to(worker: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    return list(json.loads(worker[0])), json.loads(worker[1])


def _mark(missing: _Missing, now: int) -> str:
    return json.dumps({"versions": [], "reason": missing.mark, "since": now})


def _since(mark: str) -> int:
    since: int = json.loads(mark).get("since", 2**62)
    return since


def _fail(tx: Transaction, run: str, missing: _Missing) -> Script[int]:
    reason = missing.mark.replace("no live worker", "no worker")
    error = error_record("UnknownFunction", missing.message)
    failed = yield from tx.execute(_FAIL, id=run, reason=reason, error=error, now=tx.now)
    tx.changes.end(row[0] for row in failed)
    return len(failed)
