"""Statistics of runs by state, workflow, queue … in a short time, however long the history is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003  (a run that asks for figures records them, and reads them back by their annotations)
from typing import TYPE_CHECKING, Any

from mainspring.errors import InvalidInput
from mainspring.model.clock import SECOND, to_datetime
from mainspring.operations.filters import texts
from mainspring.operations.runs.lists import recent

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from mainspring.model.runs import RunFilter
    from mainspring.store.protocol import Store

GROUPS = ("state", "workflow", "kind", "queue", "version", "schedule", "reason")
"""The fields that figures can be grouped by."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Statistics of a group of runs. Times are seconds. None: no run of the group has got that far."""

    group: dict[str, str | None]
    """The common values of the group."""
    since: datetime | None
    """The start of the interval in which the runs were created, if intervals were requested."""
    count: int
    longest_wait: float | None
    """The longest time between ready and started."""
    average_time: float | None
    """From start to end."""
    longest_time: float | None
    newest: int | None = None
    """The figures are those of the newest runs, which are at least so many. None: of all runs that match."""


def figures_of(store: Store, wanted: RunFilter, by: str | Sequence[str], bucket: timedelta | None) -> list[Figures]:
    """Return statistics of runs. Raises `InvalidInput` for an unknown field, or an interval below a second."""
    by = texts("by", by)
    unknown = [name for name in by if name not in GROUPS]
    if unknown:
        raise InvalidInput(f"there are no figures by {', '.join(unknown)}; there are by {', '.join(GROUPS)}")
    span = None if bucket is None else int(bucket.total_seconds() * SECOND)
    if span is not None and span < SECOND:
        raise InvalidInput(f"a span of time is at least a second, not {bucket}")
    wanted, newest, most = recent(store.dashboard, wanted)
    found = store.dashboard.aggregate(wanted, by, span, most)
    if most is not None and sum(row[-4] for row in found) >= most:
        newest = most
    return [_figures(row, by, newest, spans=span is not None) for row in found]


def _figures(row: Sequence[Any], by: Sequence[str], newest: int | None, *, spans: bool) -> Figures:
    *keys, count, wait, average, longest = row
    group = dict(zip(by, keys, strict=False))
    since = to_datetime(keys[-1]) if spans else None
    return Figures(group, since, count, _seconds(wait), _seconds(average), _seconds(longest), newest)


def _seconds(micros: float | None) -> float | None:
    """Convert to seconds, at least 0: a run may begin before the transaction that creates it has read the clock."""
    return None if micros is None else max(0, micros) / SECOND
