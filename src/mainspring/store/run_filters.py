"""Which runs are meant, as a condition: one text for lists, counts and aggregates, in every store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.model.states import State
from mainspring.store.queues import RESUMES, WAITS
from mainspring.store.sql import RUN_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.store.protocol import RunFilter

_EQUAL = ("workflow", "kind", "parent", "queue", "schedule", "version", "forked_from")
_SPANS = ("created", "started", "completed", "due")
_STRANDED = "(stranded IS NOT NULL AND state = 'queued')"
"""In hand it goes on after all; which versions could not follow it is remembered until it has ended or is handed back."""

_OWNED = "owner IS NOT NULL"
_READY = "state = 'queued' AND queue IS NULL"
_LATER = "owner IS NULL AND state IN ('scheduled', 'waiting')"
_PLACES = {
    "running": (_OWNED,),
    "cancelling": (_OWNED,),
    "waiting": (_OWNED, _LATER),
    "scheduled": (_LATER,),
    "queued": (_READY, WAITS, RESUMES),
}
"""Where runs in a state that is no end are found: each is word for word the condition of an index."""

SQLITE_ATTRIBUTES = """NOT EXISTS (
    SELECT 1 FROM json_each(:attributes) w WHERE NOT EXISTS (
      SELECT 1 FROM json_each(runs.attributes) a WHERE a.key = w.key AND a.type = w.type AND a.value IS w.value))"""
POSTGRES_ATTRIBUTES = "attributes <> '{}' AND attributes @> CAST(:attributes AS jsonb)"
"""The first half is that of the index."""

AGGREGATES = """
  SELECT {keys}, count(*), CAST(max(started - coalesce(scheduled_time, created)) AS bigint),
    CAST(avg(completed - started) AS double precision), CAST(max(completed - started) AS bigint)
  FROM runs {where} GROUP BY {numbers} ORDER BY {numbers}
"""


class Filters:
    """Turns filters into statements. `attributes` is how this database looks into a run's attributes."""

    def __init__(self, attributes: str) -> None:
        self._attributes = attributes

    def page(self, wanted: RunFilter) -> tuple[str, dict[str, Any]]:
        """The statement and its parameters for a page of runs."""
        where, values = self._where(wanted)
        values["limit"] = wanted.limit
        if wanted.few:
            places = dict.fromkeys(place for state in wanted.states for place in _PLACES[state])
            found = " UNION ALL ".join(f"SELECT uid FROM runs WHERE {place}" for place in places)
            where += f" AND uid IN ({found})"
        return f"SELECT {', '.join(RUN_COLUMNS)} FROM runs {where} ORDER BY uid DESC LIMIT :limit", values

    def aggregate(self, wanted: RunFilter, by: Sequence[str], bucket: int | None) -> tuple[str, dict[str, Any]]:
        """The statement and its parameters for figures by columns and by spans of time of `bucket` microseconds."""
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

    def _where(self, wanted: RunFilter) -> tuple[str, dict[str, Any]]:
        values: dict[str, Any] = {}
        where = [*_in_states(wanted.states), *_among("id", wanted.ids, values)]
        for column in _EQUAL:
            value = getattr(wanted, column)
            if value is not None:
                where.append(f"{column} = :{column}")
                values[column] = value
        for column in _SPANS:
            where += _between(column, getattr(wanted, column), values)
        if wanted.id_prefix is not None:
            where.append("id >= :prefix AND id < :prefix_end")
            values["prefix"] = wanted.id_prefix
            values["prefix_end"] = wanted.id_prefix + "\U0010ffff"
        if wanted.attributes is not None:
            where.append(self._attributes)
            values["attributes"] = wanted.attributes
        if wanted.stranded is not None:
            where.append(_STRANDED if wanted.stranded else f"NOT {_STRANDED}")
        if wanted.before is not None:
            where.append("uid < :before")
            values["before"] = wanted.before
        return f"WHERE {' AND '.join(where)}" if where else "", values


def _in_states(states: Sequence[str]) -> list[str]:
    """Spelled out: a planner that does not know the values cannot know that an index for some states is enough."""
    if not states:
        return []
    made = [f"state IN ({', '.join(repr(str(State(state))) for state in states)})"]
    if set(states) <= {"failed", "cancelled"}:
        made.append("state IN ('failed', 'cancelled')")  # word for word the condition of the index `runs_failed`
    return made


def _among(column: str, choice: Sequence[str], values: dict[str, Any]) -> list[str]:
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
