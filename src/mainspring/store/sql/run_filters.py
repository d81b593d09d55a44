"""Filters of runs as SQL conditions, for lists, counts and aggregates in every store."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from mainspring.model.states import State
from mainspring.store.sql.queues import READY, RESUMES
from mainspring.store.sql.records import RUN_COLUMNS
from mainspring.store.sql.retention import ENDED_NAMES, ended_runs
from mainspring.store.sql.runs import IN_FAILED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mainspring.model.runs import RunFilter

_TEXTS = ("workflow", "kind", "parent", "queue", "key", "schedule", "version", "forked_from")
_SPANS = ("created", "started", "completed", "due")
_STRANDED = f"(blocked IS NOT NULL AND state = 'queued' AND {IN_FAILED})"
"""An owned run is not stranded. The versions that failed to replay it are stored until it ends or is released."""

_OWNED = "owner IS NOT NULL"
_LATER = "owner IS NULL AND state IN ('scheduled', 'waiting')"
_PLACES = {
    "running": (_OWNED,),
    "cancelling": (_OWNED,),
    "waiting": (_OWNED, _LATER),
    "scheduled": (_LATER,),
    "queued": (READY, RESUMES),
}
"""By unfinished state: the conditions under which its runs are found. Each is the same text as that of an index."""
_LIVE_PLACES = tuple(dict.fromkeys(sum(_PLACES.values(), ())))
LIVE_RUNS = " UNION ALL ".join(f"SELECT id FROM (SELECT id FROM runs WHERE {place}) x" for place in _LIVE_PLACES)
"""The ids of all unfinished runs, without reading ended ones."""

_OF_WORKFLOW = (
    *(
        f"{ended_runs('runs', str(function))} AND workflow = {{name}} ORDER BY completed LIMIT 1000000"
        for function in (0, 1)
    ),
    *(f"{place} AND workflow = {{name}}" for place in _LIVE_PLACES),
)
"""Where runs of a workflow are found: ended ones by name, the others all together.

The order is that of the index: if most runs are of one workflow, SQLite expects that of any workflow, and would read all.
"""

SQLITE_ATTRIBUTES = """attributes <> '{}' AND NOT EXISTS (
    SELECT 1 FROM json_each(:attributes) w WHERE NOT EXISTS (
      SELECT 1 FROM json_each(CASE WHEN json_valid(runs.attributes) THEN runs.attributes END) a
      WHERE a.key = w.key AND a.type = w.type AND a.value IS w.value))"""
POSTGRES_ATTRIBUTES = "attributes <> '{}' AND attributes @> CAST(:attributes AS jsonb)"
"""The first half is the condition of the index."""
SQLITE_MESSAGE = "CASE WHEN json_valid(error) THEN substr(json_extract(error, '$.message'), 1, 300) END"
POSTGRES_MESSAGE = r"left(CAST(replace(CAST(error AS text), '\u0000', '\ufffd') AS json) ->> 'message', 300)"
"""The beginning of an error's message. PostgreSQL has no text with a zero byte."""

AGGREGATES = """
  SELECT {keys}, count(*), CAST(max(started - coalesce(scheduled_time, created)) AS bigint),
    CAST(avg(completed - started) AS double precision), CAST(max(completed - started) AS bigint)
  FROM runs {where} GROUP BY {numbers} ORDER BY {numbers}
"""


class Filters:
    """Renders filters as statements. `attributes` is this database's SQL for a run's attributes, `message` that for its error."""

    def __init__(self, attributes: str, message: str) -> None:
        self._attributes = attributes
        self._message = message

    def page(self, wanted: RunFilter, columns: Sequence[str] = RUN_COLUMNS) -> tuple[str, dict[str, Any]]:
        """The statement and its parameters for a page of runs. `message` is the beginning of a run's error message."""
        where, values = self._where(wanted, "(id || '')")  # in the order of uids, an index of ids would be slower
        values["limit"] = wanted.limit
        if wanted.few_by:
            found = " UNION ALL ".join(
                f"SELECT uid FROM (SELECT uid FROM runs WHERE {place}) x" for place in _places(wanted)
            )
            where += f" AND uid IN ({found})"
        if wanted.schedule:
            parts = product(range(len(wanted.schedule)), ("true", "false"))
            where = _first(
                where, (f"schedule = :schedule{number} AND end_unprocessed = {value}" for number, value in parts)
            )
        elif set(wanted.states) == {"failed", "cancelled"}:
            where = _first(where, ("state = 'failed'", "state = 'cancelled'"))
        listed = ", ".join(self._message if column == "message" else column for column in columns)
        return f"SELECT {listed} FROM runs {where} ORDER BY uid DESC LIMIT :limit", values

    def aggregate(self, wanted: RunFilter, by: Sequence[str], bucket: int | None) -> tuple[str, dict[str, Any]]:
        """The statement and its parameters for figures by columns and by spans of `bucket` microseconds."""
        where, values = self._where(wanted)
        keys = list(by)
        if bucket is not None:
            keys.append("created / :bucket * :bucket")
            values["bucket"] = bucket
        numbers = ", ".join(str(number) for number in range(1, len(keys) + 1))
        if not keys:
            statement = AGGREGATES.format(keys="1", where=where, numbers="1")
        else:
            statement = AGGREGATES.format(keys=", ".join(keys), where=where, numbers=numbers)
        return statement, values

    def _where(self, wanted: RunFilter, id_: str = "id") -> tuple[str, dict[str, Any]]:
        values: dict[str, Any] = {}
        where = [*_in_states(wanted.states), *among("id", wanted.ids, values)]
        for column in _TEXTS:
            where += among(column, getattr(wanted, column), values)
        for column in _SPANS:
            where += _between(column, getattr(wanted, column), values)
        if wanted.id_prefix:
            where.append(f"({' OR '.join(_begins(id_, number) for number in range(len(wanted.id_prefix)))})")
            for number, prefix in enumerate(wanted.id_prefix):
                values |= {f"prefix{number}": prefix, f"prefix_end{number}": prefix + "\U0010ffff"}
        if wanted.attributes is not None:
            where.append(self._attributes)
            values["attributes"] = wanted.attributes
        if wanted.stranded is not None:
            where.append(_STRANDED if wanted.stranded else f"NOT {_STRANDED}")
        if wanted.before is not None:
            where.append("uid < :before")
            values["before"] = wanted.before
        if wanted.since is not None:
            where.append("uid >= :since")
            values["since"] = wanted.since
        return f"WHERE {' AND '.join(where)}" if where else "", values


def _places(wanted: RunFilter) -> list[str]:
    """Conditions of indexes. Each wanted run meets one of them."""
    if wanted.few_by == "states":
        return list(dict.fromkeys(place for state in wanted.states for place in _PLACES[state]))
    if wanted.few_by == "workflow":
        names = [f":workflow{number}" for number in range(len(wanted.workflow))]
        return [place.format(name=name) for name in names for place in _OF_WORKFLOW]
    if wanted.few_by == "completed":
        return _completed(wanted.completed, {})
    return [_begins("id", number) for number in range(len(wanted.id_prefix))]


def _first(where: str, parts: Iterable[str]) -> str:
    """The condition for a page of runs whose index is not in the order of pages as a whole, but in each of these parts."""
    found = " UNION ALL ".join(
        f"SELECT uid FROM (SELECT uid FROM runs {where} AND {part} ORDER BY uid DESC LIMIT :limit) x" for part in parts
    )
    return f"WHERE uid IN ({found})"


def completed_in(span: tuple[int | None, int | None]) -> tuple[str, dict[str, Any]]:
    """The statement and its parameters for the uids of runs that ended in a span of time."""
    values: dict[str, Any] = {}
    return " UNION ALL ".join(f"SELECT uid FROM runs WHERE {place}" for place in _completed(span, values)), values


def _completed(span: tuple[int | None, int | None], values: dict[str, Any]) -> list[str]:
    """A condition for runs that ended in a span of time, through the index by name and end: name by name."""
    between = " AND ".join(_between("completed", span, values))
    return [f"{ended_runs('runs', str(function))} AND workflow IN ({ENDED_NAMES}) AND {between}" for function in (0, 1)]


def _begins(column: str, number: int) -> str:
    return f"{column} >= :prefix{number} AND {column} < :prefix_end{number}"


def _in_states(states: Sequence[str]) -> list[str]:
    """States as literals: a planner that does not know the values cannot use a partial index for some states."""
    if not states:
        return []
    made = [f"state IN ({', '.join(repr(str(State(state))) for state in states)})"]
    if set(states) <= {"failed", "cancelled"}:
        made += [IN_FAILED, "state <> 'queued'"]  # the same texts as in the condition of the index `runs_failed`
    return made


def among(column: str, choice: Sequence[str], values: dict[str, Any]) -> list[str]:
    """A condition: a column has one of some values, which are added to the parameters. Empty if all values match."""
    names = {f"{column}{number}": str(value) for number, value in enumerate(choice)}
    values |= names
    return [f"{column} IN ({', '.join(f':{name}' for name in names)})"] if names else []


def _between(column: str, span: tuple[int | None, int | None], values: dict[str, Any]) -> list[str]:
    made: list[str] = []
    for end, compare, name in zip(span, (">=", "<"), (f"{column}_from", f"{column}_to"), strict=True):
        if end is not None:
            made.append(f"{column} {compare} :{name}")
            values[name] = end
    return made


POSTGRES_FILTERS = Filters(POSTGRES_ATTRIBUTES, POSTGRES_MESSAGE)
SQLITE_FILTERS = Filters(SQLITE_ATTRIBUTES, SQLITE_MESSAGE)
