"""Runs as a list shows them, without inputs and outputs, which may be long. The same statements in every store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from mainspring.model.states import State
from mainspring.store.bad_rows import readable_page
from mainspring.store.sql.records import RUN_COLUMNS, to_run
from mainspring.store.sql.run_filters import completed_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainspring.model.runs import Run, RunFilter
    from mainspring.store.sql.run_filters import Filters

_FLOOR = "SELECT uid FROM runs {where} ORDER BY uid DESC LIMIT 1 OFFSET :within"
_ENDED = """
  SELECT count(*) FROM (
    SELECT 1 FROM runs WHERE workflow = :workflow AND completed IS NOT NULL LIMIT :most) x
"""
_PREFIX = "SELECT count(*) FROM (SELECT 1 FROM runs WHERE id >= :prefix AND id < :prefix_end LIMIT :most) x"


class ListedRun(Struct, frozen=True):
    """A run as a list shows it. `message` is the beginning of its error's message."""

    uid: str
    id: str
    workflow: str
    kind: str
    state: State
    reason: str | None
    message: str | None
    due: int | None
    created: int
    started: int | None
    completed: int | None
    queue: str | None
    schedule: str | None
    version: str | None
    parent: str | None
    forked_from: str | None
    blocked: str | None
    undo_reason: str | None


class RunLists:
    """Lists of runs, and bounds for searches in them."""

    def __init__(self, rows: Callable[..., list[tuple[Any, ...]]], filters: Filters) -> None:
        self._rows = rows
        self._filters = filters

    def page(self, wanted: RunFilter) -> list[ListedRun]:
        """Matching runs, newest first."""

        def fetch(before: str | None) -> list[tuple[Any, ...]]:
            page = wanted if before is None else replace(wanted, before=before)
            statement, values = self._filters.page(page, ListedRun.__struct_fields__)
            return self._rows(statement, **values)

        return readable_page("runs", fetch, _glance, wanted.limit, key=1, uid=0)

    def floor(self, before: str | None, within: int) -> str | None:
        """The uid of the run that is so many runs older than `before`, or than the newest; None: there are fewer runs."""
        where, values = ("WHERE uid < :before", {"before": before}) if before is not None else ("", {})
        found = self._rows(_FLOOR.format(where=where), within=within, **values)
        return found[0][0] if found else None

    def ended(self, workflow: str, most: int) -> int:
        """The number of ended runs of a workflow, counted up to a limit."""
        found: int = self._rows(_ENDED, workflow=workflow, most=most)[0][0]
        return found

    def completed(self, span: tuple[int | None, int | None], most: int) -> int:
        """The number of runs that ended in a span of time, counted up to a limit."""
        statement, values = completed_in(span)
        found: int = self._rows(f"SELECT count(*) FROM ({statement} LIMIT :most) x", most=most, **values)[0][0]
        return found

    def with_prefix(self, prefix: str, most: int) -> int:
        """The number of ids with a prefix, counted up to a limit."""
        found: int = self._rows(_PREFIX, prefix=prefix, prefix_end=prefix + "\U0010ffff", most=most)[0][0]
        return found


def runs_page(rows: Callable[..., list[tuple[Any, ...]]], filters: Filters, wanted: RunFilter) -> list[Run]:
    """Matching runs with all columns, newest first."""

    def fetch(before: str | None) -> list[tuple[Any, ...]]:
        statement, values = filters.page(wanted if before is None else replace(wanted, before=before))
        return rows(statement, **values)

    return readable_page("runs", fetch, to_run, wanted.limit, key=0, uid=RUN_COLUMNS.index("uid"))


def _glance(row: Sequence[Any]) -> ListedRun:
    uid, run_id, workflow, kind, state, *rest = row
    return ListedRun(uid, run_id, workflow, kind, State(state), *rest)
