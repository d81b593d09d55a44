"""Look up runs and their steps inside a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.errors import NotFound
from mainspring.store.sql.records import to_run, to_step
from mainspring.store.sql.runs import GET_RUN, LIST_CHILDREN
from mainspring.store.sql.steps import LIST_STEPS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.model.runs import Run, Step
    from mainspring.store.transaction import Script, Transaction


def find(tx: Transaction, run_id: str) -> Script[Run | None]:
    """The run, or None."""
    rows = yield from tx.execute(GET_RUN, id=run_id)
    return to_run(rows[0]) if rows else None


def find_some(tx: Transaction, ids: Sequence[str]) -> Script[dict[str, Run]]:
    """Look up runs. Unknown ids are left out."""
    found: dict[str, Run] = {}
    for run_id in ids:
        run = yield from find(tx, run_id)
        if run is not None:
            found[run_id] = run
    return found


def find_all(tx: Transaction, ids: Sequence[str]) -> Script[list[Run]]:
    """All of the runs; `NotFound` names those that do not exist."""
    found = yield from find_some(tx, ids)
    missing = [repr(run_id) for run_id in ids if run_id not in found]
    if missing:
        raise NotFound(f"run {', '.join(missing)} not found; nothing was done")
    return list(found.values())


def tree_of(tx: Transaction, run: Run) -> Script[list[Run]]:
    """A run and all its descendants, parents first."""
    found = [run]
    for each in found:
        found += yield from children_of(tx, each)
    return found


def steps_of(tx: Transaction, run_id: str) -> Script[list[Step]]:
    """The steps that a run has recorded, in the order of outcomes."""
    return [to_step(row) for row in (yield from tx.execute(LIST_STEPS, run=run_id))]


def children_of(tx: Transaction, run: Run) -> Script[list[Run]]:
    """The runs that a run started as its children, oldest first."""
    return [to_run(row) for row in (yield from tx.execute(LIST_CHILDREN, id=run.id))]
