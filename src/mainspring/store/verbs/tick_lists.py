"""Ticks of many schedules at once, for charts. The same statements in every store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mainspring.store.sql.schedules import TICK_COLUMNS, to_tick

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainspring.model.schedules import Tick

_LAST = f"""
  SELECT {", ".join(TICK_COLUMNS)} FROM ticks WHERE schedule = {{schedule}} ORDER BY nominal DESC, request DESC LIMIT 1
"""
_UNHAPPY = """
  SELECT schedule, nominal, until, outcome, count FROM ticks
  WHERE schedule = {schedule} AND nominal {when} {low} AND outcome NOT IN ('fired', 'pending', 'buffered')
  ORDER BY nominal DESC LIMIT {limit}
"""
_STARTED_IN = """
  WITH spans (schedule, low, high) AS ({spans})
  SELECT spans.schedule, spans.low FROM spans WHERE EXISTS (
    SELECT 1 FROM ticks
    WHERE ticks.schedule = spans.schedule AND nominal >= low AND nominal < high AND outcome IN ('fired', 'late'))
"""
_FAILED = """
  SELECT schedule, tick FROM runs
  WHERE state IN ('failed', 'cancelled') AND state = 'failed' AND schedule IS NOT NULL AND tick IS NOT NULL AND uid >= :since
  ORDER BY uid DESC LIMIT :limit
"""
"""Uses the index of failed and cancelled runs, so the condition must be the same text as that of the index."""
SQLITE_SPANS = """
  SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]') FROM json_each(:spans)
"""
POSTGRES_SPANS = """
  SELECT e ->> 0, CAST(e ->> 1 AS bigint), CAST(e ->> 2 AS bigint) FROM json_array_elements(CAST(:spans AS json)) e
"""
"""SQL that turns one parameter, a JSON list of lists of any length, into rows."""
POSTGRES_EACH = """
  WITH spans (schedule, low, high) AS ({spans}) SELECT x.* FROM spans CROSS JOIN LATERAL ({question}) x
"""
"""SQL that asks a question for each of those rows with one plan. Without LATERAL, the statement is a union of many."""


class TickLists:
    """Outcomes of ticks, for many schedules with one statement each."""

    def __init__(self, rows: Callable[..., list[tuple[Any, ...]]], spans: str, each: str | None) -> None:
        self._rows = rows
        self._spans = spans
        self._for_each = each

    def last(self, schedules: Sequence[str]) -> dict[str, Tick]:
        """The latest tick of each schedule that has one."""
        rows = self._each(_LAST, [(schedule, 0) for schedule in schedules])
        return {tick.schedule: tick for tick in map(to_tick, rows)}

    def not_fired(self, since: Sequence[tuple[str, int]], limit: int) -> list[tuple[str, int, int | None, str, int]]:
        """Ticks of schedules, since a time for each, that did not simply start a run: schedule, nominal time, until, outcome, count.

        The latest of each schedule, up to a limit, and the last one before that time, whose span may reach into it.
        """
        rows = self._each(_UNHAPPY.replace("{when}", ">=").replace("{limit}", str(limit)), since)
        rows += self._each(_UNHAPPY.replace("{when}", "<").replace("{limit}", "1"), since)
        return [(schedule, nominal, until, outcome, count) for schedule, nominal, until, outcome, count in rows]

    def started_in(self, spans: Sequence[tuple[str, int, int]]) -> list[tuple[str, int]]:
        """Of spans of time of schedules, those in which a tick started a run: schedule and beginning of the span."""
        found = self._rows(_STARTED_IN.replace("{spans}", self._spans), spans=json.dumps(list(spans)))
        return [(schedule, low) for schedule, low in found]

    def failed(self, since: str, limit: int) -> list[tuple[str, int]]:
        """Ticks of all schedules whose runs have failed, latest first: schedule and nominal time. `since` is the uid of a run."""
        rows = self._rows(_FAILED, since=since, limit=limit)
        return [(schedule, (json.loads(tick) if isinstance(tick, str) else tick)["nominal"]) for schedule, tick in rows]

    def _each(self, question: str, spans: Sequence[tuple[str, int]]) -> list[tuple[Any, ...]]:
        """Ask a question about each schedule and a time."""
        if not spans:
            return []
        if self._for_each is not None:
            question = question.format(schedule="spans.schedule", low="spans.low")
            text = self._for_each.replace("{spans}", self._spans).replace("{question}", question)
            return self._rows(text, spans=json.dumps([[schedule, low, low] for schedule, low in spans]))
        asked = [
            f"SELECT * FROM ({question.format(schedule=f':s{number}', low=f':l{number}')}) x{number}"
            for number in range(len(spans))
        ]
        values = {f"s{number}": schedule for number, (schedule, _) in enumerate(spans)}
        return self._rows(" UNION ALL ".join(asked), **values, **{f"l{n}": low for n, (_, low) in enumerate(spans)})
