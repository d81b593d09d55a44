"""An open transaction of an operator's verb, and what every such verb looks up in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from mainspring.errors import NotFound
from mainspring.store import sql

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from mainspring.model.records import Run, Step
    from mainspring.store.message_sql import Rows

T = TypeVar("T")

_CHILDREN = f"SELECT {', '.join(sql.RUN_COLUMNS)} FROM runs WHERE parent = :id ORDER BY uid"


class Desk(Protocol):
    """An open transaction that holds the runs concerned."""

    def rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """Execute a statement; the rows it answers with, if it does."""
        ...

    def ready(self) -> None:
        """There are runs to claim once this is committed."""
        ...

    def ended(self, run: str) -> None:
        """A run has ended: those that wait for it are woken."""
        ...


class Change(Protocol):
    """Does something in one transaction that holds runs and all that descend from them."""

    def __call__(self, ids: Sequence[str], now: int, act: Callable[[Desk], T]) -> T: ...


class Snapshot(Protocol):
    """Reads with many statements as of one moment. Where a statement cannot do without, it holds the runs and their descendants."""

    def __call__(self, ids: Sequence[str]) -> AbstractContextManager[Rows]: ...


def find(desk: Desk, run_id: str) -> Run | None:
    """The run, if there is one."""
    rows = desk.rows(sql.RUN, id=run_id)
    return sql.to_run(rows[0]) if rows else None


def there(desk: Desk, ids: Sequence[str]) -> dict[str, Run]:
    """Those of the runs that exist."""
    found = {run_id: find(desk, run_id) for run_id in ids}
    return {run_id: run for run_id, run in found.items() if run is not None}


def all_of(desk: Desk, ids: Sequence[str]) -> list[Run]:
    """All of the runs; `NotFound` names those that do not exist."""
    found = {run_id: find(desk, run_id) for run_id in ids}
    missing = [repr(run_id) for run_id, run in found.items() if run is None]
    if missing:
        raise NotFound(f"there is no run {', '.join(missing)}, or no longer; nothing was done")
    return [run for run in found.values() if run is not None]


def tree(desk: Desk, run: Run) -> list[Run]:
    """A run and all that descend from it, parents first."""
    found = [run]
    for each in found:
        found += children(desk, each)
    return found


def steps_of(desk: Desk, run_id: str) -> list[Step]:
    """What a run has recorded, in the order of outcomes."""
    return [sql.to_step(row) for row in desk.rows(sql.STEPS, run=run_id)]


def children(desk: Desk, run: Run) -> list[Run]:
    """Those it started as its children, oldest first."""
    return [sql.to_run(row) for row in desk.rows(_CHILDREN, id=run.id)]
