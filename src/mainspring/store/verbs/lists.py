"""Lists of runs and of ticks, for the dashboard. The same statements in every store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from mainspring.model.states import State
from mainspring.store.bad_rows import readable_page
from mainspring.store.sql import run_filters
from mainspring.store.sql.dialect import PerDatabase, Where, for_sqlite, per_database
from mainspring.store.sql.records import RUN_COLUMNS, to_run
from mainspring.store.sql.runs import oldest_of
from mainspring.store.sql.schedules import TICK_COLUMNS, to_tick

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.model.runs import Run, RunFilter
    from mainspring.model.schedules import Tick
    from mainspring.store.transaction import Read, Rows

# -- runs ----------------------------------------------------------------------------------------------------------------
_FLOOR = oldest_of(before=False)
_FLOOR_BEFORE = oldest_of(before=True)
_ENDED = """
  SELECT count(*) FROM (
    SELECT 1 FROM runs WHERE workflow = :workflow AND completed IS NOT NULL LIMIT :most) x
"""


class ListedRun(Struct, frozen=True):
    """A run as a list shows it, without input and output, which may be long. `message` is the beginning of its error's message."""

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

    def __init__(self, read: Read) -> None:
        self._read = read

    def page(self, wanted: RunFilter) -> list[ListedRun]:
        """Matching runs, newest first."""

        def fetch(before: str | None) -> Rows:
            page = wanted if before is None else replace(wanted, before=before)
            statement, values = run_filters.runs_page(page, ListedRun.__struct_fields__)
            return self._read(statement, **values)

        return readable_page(fetch, _listed_run, wanted.limit, key=1, uid=0)

    def floor(self, before: str | None, within: int) -> str | None:
        """A uid such that about so many runs are between it and `before`, or the newest; None: there are fewer runs."""
        statement, values = (_FLOOR, {}) if before is None else (_FLOOR_BEFORE, {"before": before})
        found: str | None = self._read(statement, within=within, **values)[0][0]
        return found

    def floor_of(self, wanted: RunFilter, within: int) -> str | None:
        """The uid of the first matching run after the newest `within` ones; None: there are fewer. For filters that an index supports."""
        statement, values = run_filters.floor(wanted, within)
        found = self._read(statement, **values)
        return found[0][0] if found else None

    def ended(self, workflow: str, most: int) -> int:
        """The number of ended runs of a workflow, counted up to a limit."""
        found: int = self._read(_ENDED, workflow=workflow, most=most)[0][0]
        return found

    def completed(self, span: tuple[int | None, int | None], most: int) -> int:
        """The number of runs that ended in a span of time, counted up to a limit."""
        statement, values = run_filters.completed_in(span)
        found: int = self._read(f"SELECT count(*) FROM ({statement} LIMIT :most) x", most=most, **values)[0][0]
        return found

    def with_prefix(self, prefix: str, most: int) -> int:
        """The number of ids with a prefix, counted up to a limit."""
        where = Where(most=most)
        where.begins("id", [prefix])
        found: int = self._read(f"SELECT count(*) FROM (SELECT 1 FROM runs {where} LIMIT :most) x", **where.values)[0][
            0
        ]
        return found


def runs_page(read: Read, wanted: RunFilter) -> list[Run]:
    """Matching runs with all columns, newest first."""

    def fetch(before: str | None) -> Rows:
        statement, values = run_filters.runs_page(wanted if before is None else replace(wanted, before=before))
        return read(statement, **values)

    return readable_page(fetch, to_run, wanted.limit, key=0, uid=RUN_COLUMNS.index("uid"))


def _listed_run(row: Sequence[Any]) -> ListedRun:
    uid, run_id, workflow, kind, state, *rest = row
    return ListedRun(uid, run_id, workflow, kind, State(state), *rest)


# -- ticks ---------------------------------------------------------------------------------------------------------------
_LAST = f"""
  SELECT {", ".join(TICK_COLUMNS)} FROM ticks WHERE schedule = {{schedule}} ORDER BY nominal DESC, request DESC LIMIT 1
"""
_UNHAPPY = """
  SELECT schedule, nominal, until, outcome, count FROM ticks
  WHERE schedule = {schedule} AND nominal {when} {low} AND outcome NOT IN ('fired', 'pending', 'buffered')
  ORDER BY nominal DESC LIMIT {limit}
"""
_SPANS = PerDatabase(  # a list of lists of any length is JSON, which each database reads in its own way
    postgres="SELECT e ->> 0, CAST(e ->> 1 AS bigint), CAST(e ->> 2 AS bigint) FROM json_array_elements(CAST(:spans AS json)) e",
    sqlite="SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]') FROM json_each(:spans)",
)
_STARTED_IN = per_database(
    """
  WITH spans (schedule, low, high) AS ({spans})
  SELECT spans.schedule, spans.low FROM spans WHERE EXISTS (
    SELECT 1 FROM ticks
    WHERE ticks.schedule = spans.schedule AND nominal >= low AND nominal < high AND outcome IN ('fired', 'late'))
""",
    spans=_SPANS,
)
_FAILED = """
  SELECT schedule, tick FROM runs
  WHERE state IN ('failed', 'cancelled') AND state = 'failed' AND schedule IS NOT NULL AND tick IS NOT NULL AND uid >= :since
  ORDER BY uid DESC LIMIT :limit
"""
"""Uses the index of failed and cancelled runs, so the condition must be the same text as that of the index."""


class TickLists:
    """Outcomes of ticks, for many schedules with one statement each."""

    def __init__(self, read: Read) -> None:
        self._read = read

    def last(self, schedules: Sequence[str]) -> dict[str, Tick]:
        """The latest tick of each schedule that has one."""
        rows = _each(self._read, _LAST, [(schedule, 0) for schedule in schedules])
        return {tick.schedule: tick for tick in map(to_tick, rows)}

    def not_fired(self, since: Sequence[tuple[str, int]], limit: int) -> list[tuple[str, int, int | None, str, int]]:
        """Ticks of schedules, since a time for each, that did not simply start a run: schedule, nominal time, until, outcome, count.

        The latest of each schedule, up to a limit, and the last one before that time, whose span may reach into it.
        """
        rows = _each(self._read, _UNHAPPY.replace("{when}", ">=").replace("{limit}", str(limit)), since)
        rows += _each(self._read, _UNHAPPY.replace("{when}", "<").replace("{limit}", "1"), since)
        return [(schedule, nominal, until, outcome, count) for schedule, nominal, until, outcome, count in rows]

    def started_in(self, spans: Sequence[tuple[str, int, int]]) -> list[tuple[str, int]]:
        """Of spans of time of schedules, those in which a tick started a run: schedule and beginning of the span."""
        found = self._read(_STARTED_IN, spans=json.dumps(list(spans)))
        return [(schedule, low) for schedule, low in found]

    def failed(self, since: str, limit: int) -> list[tuple[str, int]]:
        """Ticks of all schedules whose runs have failed, latest first: schedule and nominal time. `since` is the uid of a run."""
        rows = self._read(_FAILED, since=since, limit=limit)
        return [(schedule, (json.loads(tick) if isinstance(tick, str) else tick)["nominal"]) for schedule, tick in rows]


def _each(read: Read, question: str, spans: Sequence[tuple[str, int]]) -> Rows:
    """Ask a question about each schedule and a time. SQLite has no LATERAL, so the statement there is a union of many."""
    if not spans:
        return []
    lateral = question.format(schedule="spans.schedule", low="spans.low")
    asked = [
        f"SELECT * FROM ({question.format(schedule=f':s{number}', low=f':l{number}')}) x{number}"
        for number in range(len(spans))
    ]
    statement = PerDatabase(
        f"WITH spans (schedule, low, high) AS ({_SPANS.postgres}) SELECT x.* FROM spans CROSS JOIN LATERAL ({lateral}) x",
        for_sqlite(" UNION ALL ".join(asked)),
    )
    values: dict[str, Any] = {"spans": json.dumps([[schedule, low, low] for schedule, low in spans])}
    for number, (schedule, low) in enumerate(spans):
        values |= {f"s{number}": schedule, f"l{number}": low}
    return read(statement, **values)
