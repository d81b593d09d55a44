"""Ticks of many schedules at once, as pictures of them need them. The same statements in every store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mainspring.store.schedule_sql import TICK, to_tick

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainspring.model.schedules import Tick

_LAST = f"""
  SELECT * FROM (
    SELECT {", ".join(TICK)} FROM ticks WHERE schedule = :s{{number}} ORDER BY nominal DESC, request DESC LIMIT 1) x{{number}}
"""
_UNHAPPY = """
  SELECT * FROM (
    SELECT schedule, nominal, until, outcome, count FROM ticks
    WHERE schedule = :s{number} AND {when} AND outcome NOT IN ('fired', 'pending', 'buffered')
    ORDER BY nominal DESC LIMIT {limit}) x{number}
"""
_STARTED_IN = """
  WITH spans (schedule, low, high) AS ({spans})
  SELECT spans.schedule, spans.low FROM spans WHERE EXISTS (
    SELECT 1 FROM ticks
    WHERE ticks.schedule = spans.schedule AND nominal >= low AND nominal < high AND outcome IN ('fired', 'late'))
"""
SQLITE_SPANS = """
  SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]') FROM json_each(:spans)
"""
POSTGRES_SPANS = """
  SELECT e ->> 0, CAST(e ->> 1 AS bigint), CAST(e ->> 2 AS bigint) FROM json_array_elements(CAST(:spans AS json)) e
"""
"""How a list of lists comes into a statement, of whatever length, as one parameter."""


class TickGlances:
    """What became of ticks, for many schedules with one statement each."""

    def __init__(self, rows: Callable[..., list[tuple[Any, ...]]], spans: str) -> None:
        self._rows = rows
        self._started_in = _STARTED_IN.replace("{spans}", spans)

    def last(self, schedules: Sequence[str]) -> dict[str, Tick]:
        """The latest tick of each schedule that has one."""
        statements = [_LAST.format(number=number) for number in range(len(schedules))]
        return {tick.schedule: tick for tick in map(to_tick, self._all(statements, schedules))}

    def unhappy(self, since: Sequence[tuple[str, int]], limit: int) -> list[tuple[str, int, int | None, str, int]]:
        """Ticks of schedules since a time each that did not simply start their run: schedule, nominal time, until, outcome, count.

        So many of each schedule, the latest; with the last one from before that time, which may reach into it.
        """
        schedules, times = [schedule for schedule, _ in since], [time for _, time in since]
        statements: list[str] = []
        for number, time in enumerate(times):
            statements.append(_UNHAPPY.format(number=number, when=f"nominal >= {time:d}", limit=limit))
            statements.append(_UNHAPPY.format(number=number, when=f"nominal < {time:d}", limit=1))
        rows = self._all(statements, schedules)
        return [(schedule, nominal, until, outcome, count) for schedule, nominal, until, outcome, count in rows]

    def started_in(self, spans: Sequence[tuple[str, int, int]]) -> list[tuple[str, int]]:
        """Of schedules with spans of time, those with their beginnings in which a tick started a run."""
        found = self._rows(self._started_in, spans=json.dumps(list(spans)))
        return [(schedule, low) for schedule, low in found]

    def _all(self, statements: list[str], schedules: Sequence[str]) -> list[tuple[Any, ...]]:
        if not statements:
            return []
        values = {f"s{number}": schedule for number, schedule in enumerate(schedules)}
        return self._rows(" UNION ALL ".join(statements), **values)
