"""Filters of runs as SQL conditions, for lists, counts and aggregates in every store."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from mainspring.model.states import State
from mainspring.store.sql.conditions import IN_FAILED, LATER, OWNED, READY, RESUMES
from mainspring.store.sql.dialect import PerDatabase, Where, begins, per_database
from mainspring.store.sql.records import RUN_COLUMNS
from mainspring.store.sql.retention import ENDED_NAMES, ended_runs
from mainspring.store.sql.runs import OF_OTHER_UID, OF_OWN_UID, newest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mainspring.model.runs import RunFilter
    from mainspring.store.sql.dialect import Sql

_TEXTS = ("workflow", "kind", "parent", "queue", "key", "schedule", "version", "forked_from")
_SPANS = ("created", "started", "completed", "due")
_STRANDED = f"(blocked IS NOT NULL AND state = 'queued' AND {IN_FAILED})"
"""An owned run is not stranded. The versions that failed to replay it are stored until it ends or is released."""

_PLACES = {
    "running": (OWNED,),
    "cancelling": (OWNED,),
    "waiting": (OWNED, LATER),
    "scheduled": (LATER,),
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

_PARTS = {
    "has_attributes": PerDatabase(
        postgres="attributes <> '{}' AND attributes @> CAST(:attributes AS jsonb)",
        sqlite="""attributes <> '{}' AND NOT EXISTS (
    SELECT 1 FROM json_each(:attributes) w WHERE NOT EXISTS (
      SELECT 1 FROM json_each(CASE WHEN json_valid(runs.attributes) THEN runs.attributes END) a
      WHERE a.key = w.key AND a.type = w.type AND a.value IS w.value))""",
    ),
    "message": PerDatabase(
        postgres=r"left(CAST(replace(CAST(error AS text), E'\\u0000', E'\\ufffd') AS json) ->> 'message', 300)",
        sqlite="CASE WHEN json_valid(error) THEN substr(json_extract(error, '$.message'), 1, 300) END",
    ),
}
"""Parts of statements that read JSON, each database in its own way.

The first half of `has_attributes` is the condition of the index. `message` is the beginning of an error's message. PostgreSQL has no text
with a zero byte.
"""

_AGGREGATES = """
  SELECT {keys}, count(*), CAST(max(started - coalesce(scheduled_time, created)) AS bigint),
    CAST(avg(completed - started) AS double precision), CAST(max(completed - started) AS bigint)
  FROM {runs} GROUP BY {numbers} ORDER BY {numbers}
"""


def runs_page(wanted: RunFilter, columns: Sequence[str] = RUN_COLUMNS) -> tuple[Sql, dict[str, Any]]:
    """The statement and its parameters for a page of runs. `message` is the beginning of a run's error message."""
    listed = ", ".join("{message}" if column == "message" else column for column in columns)
    page, values = _page(wanted, listed)
    return per_database(page, **_PARTS), values


def floor(wanted: RunFilter, within: int) -> tuple[str, dict[str, Any]]:
    """The statement and its parameters for the uid of the first run after the newest `within` ones."""
    page, values = _page(replace(wanted, limit=within + 1), "uid")
    return f"{page} OFFSET :within", values | {"within": within}


def aggregate(
    wanted: RunFilter, by: Sequence[str], bucket: int | None, most: int | None = None
) -> tuple[Sql, dict[str, Any]]:
    """The statement and its parameters for figures by columns and by spans of `bucket` microseconds, of the newest `most` runs."""
    if most is not None:
        page, values = _page(replace(wanted, limit=most), "*")
        runs = f"({page}) AS found"
    else:
        where, own = _where(wanted), _where(wanted, own=True)
        values = where.values
        runs = f"runs {where}"
        if (wanted.since or wanted.before) and not _has_index(wanted):
            runs = (
                f"(SELECT * FROM runs {where & OF_OTHER_UID} UNION ALL SELECT * FROM runs {own & OF_OWN_UID}) AS found"
            )
    keys = [*by, *(["created / :bucket * :bucket"] if bucket is not None else [])] or ["1"]
    numbers = ", ".join(str(number) for number in range(1, len(keys) + 1))
    statement = _AGGREGATES.format(keys=", ".join(keys), runs=runs, numbers=numbers)
    return per_database(statement, **_PARTS), values | {"bucket": bucket}


def _page(wanted: RunFilter, listed: str) -> tuple[str, dict[str, Any]]:
    """The statement and its parameters for the newest runs, up to the limit."""
    where = _where(wanted, "(id || '')")  # in the order of uids, an index of ids would be slower
    condition = str(where)
    if wanted.few_by:
        found = " UNION ALL ".join(f"SELECT id FROM (SELECT id FROM runs WHERE {place}) x" for place in _places(wanted))
        condition = where & f"id IN ({found})"
    elif wanted.schedule:
        parts = product(range(len(wanted.schedule)), ("true", "false"))
        condition = _first(
            where, (f"schedule = :schedule{number} AND end_unprocessed = {each}" for number, each in parts)
        )
    elif set(wanted.states) == {"failed", "cancelled"}:
        condition = _first(where, ("state = 'failed'", "state = 'cancelled'"))
    elif wanted.parent:
        condition = (
            where & OF_OTHER_UID
        )  # there may be so many children that it is quicker to go through the index of uids
    elif not _has_index(wanted):
        condition = f"WHERE id IN ({newest(where, _where(wanted, own=True))})"
    statement = f"SELECT {listed} FROM runs {condition} ORDER BY uid DESC LIMIT :limit"
    return statement, where.values | {"limit": wanted.limit}


def _has_index(wanted: RunFilter) -> bool:
    """Whether another index than that of uids finds the runs."""
    if wanted.few_by or wanted.ids or wanted.parent or wanted.forked_from or wanted.schedule or wanted.stranded:
        return True
    return bool(wanted.states) and set(wanted.states) <= {"failed", "cancelled"}


def _where(wanted: RunFilter, id_: str = "id", *, own: bool = False) -> Where:
    """The conditions. With `own` they are those of runs whose id is their uid, for the index of ids."""
    uid = "id" if own else "uid"
    where = Where(*_in_states(wanted.states))
    where.one_of("id", wanted.ids)
    for column in _TEXTS:
        where.one_of(column, getattr(wanted, column))
    for column in _SPANS:
        where.between(column, getattr(wanted, column))
    where.begins(id_, wanted.id_prefix)
    where.add("{has_attributes}", attributes=wanted.attributes)
    where.holds(_STRANDED, wanted.stranded)
    where.add(f"{uid} < :before", before=wanted.before)
    where.add(f"{uid} >= :since", since=wanted.since)
    return where


def _places(wanted: RunFilter) -> list[str]:
    """Conditions of indexes. Each wanted run meets one of them."""
    if wanted.few_by == "states":
        return list(dict.fromkeys(place for state in wanted.states for place in _PLACES[state]))
    if wanted.few_by == "workflow":
        names = [f":workflow{number}" for number in range(len(wanted.workflow))]
        return [place.format(name=name) for name in names for place in _OF_WORKFLOW]
    if wanted.few_by == "completed":
        return _completed(wanted.completed)[0]
    return [begins("id", number) for number in range(len(wanted.id_prefix))]


def _first(where: Where, parts: Iterable[str]) -> str:
    """The condition for a page of runs whose index is not in the order of pages as a whole, but in each of these parts."""
    found = " UNION ALL ".join(
        f"SELECT id FROM (SELECT id FROM runs {where} AND {part} ORDER BY uid DESC LIMIT :limit) x" for part in parts
    )
    return f"WHERE id IN ({found})"


def completed_in(span: tuple[int | None, int | None]) -> tuple[str, dict[str, Any]]:
    """The statement and its parameters for the uids of runs that ended in a span of time."""
    places, values = _completed(span)
    return " UNION ALL ".join(f"SELECT uid FROM runs WHERE {place}" for place in places), values


def _completed(span: tuple[int | None, int | None]) -> tuple[list[str], dict[str, Any]]:
    """Conditions for runs that ended in a span of time, through the index by name and end: name by name."""
    where = Where(f"workflow IN ({ENDED_NAMES})")
    where.between("completed", span)
    return [" AND ".join([ended_runs("runs", kind), *where.conditions]) for kind in ("0", "1")], where.values


def _in_states(states: Sequence[str]) -> list[str]:
    """States as literals: a planner that does not know the values cannot use a partial index for some states."""
    if not states:
        return []
    made = [f"state IN ({', '.join(repr(str(State(state))) for state in states)})"]
    if set(states) <= {"failed", "cancelled"}:
        made += [IN_FAILED, "state <> 'queued'"]  # the same texts as in the condition of the index `runs_failed`
    return made
