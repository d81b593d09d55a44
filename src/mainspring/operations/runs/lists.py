"""Pages of runs in a short time, whatever the filters and however long the history is, and failed runs by their error."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime  # noqa: TC003  (pages are described by their annotations)
from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec.structs import replace

from mainspring.model.clock import SECOND
from mainspring.model.ids import id_at
from mainspring.model.runs import RunFilter
from mainspring.model.states import LIVE, State
from mainspring.operations.records import appearance, shown
from mainspring.store.bad_rows import readable
from mainspring.store.verbs.dashboard import MOST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mainspring.store.verbs.dashboard import Dashboard
    from mainspring.store.verbs.lists import ListedRun


_FEW_VALUES = 10
_R = TypeVar("_R", bound="_Uid")
WITHIN = 20_000
"""How many runs a page examines where no index supports the filter. The following page continues from there."""
SCATTERED = 4
"""So many times fewer runs are examined where an index supports a part of the filter: each may be on another page of the table."""
MOST_BY_PREFIX = 10 * MOST
"""Up to this many runs, an id prefix is looked up by its index.

They may be the oldest runs, which a search from the newest would miss.
"""
_APART = 3_600 * SECOND
"""The maximum difference between the clocks of a fleet: ids and creation times come from different clocks."""


class _Uid(Protocol):
    @property
    def uid(self) -> str: ...


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run in a list, without its values."""

    id: str
    workflow: str
    kind: str
    state: State
    reason: str | None
    message: str | None
    """The beginning of the error message."""
    due: datetime | None
    created: datetime
    started: datetime | None
    completed: datetime | None
    queue: str | None
    schedule: str | None
    version: str | None
    parent: str | None
    forked_from: str | None
    stranded: str | None
    """Why no worker can continue the run, if it is stranded."""


@dataclass(frozen=True, slots=True)
class SummaryPage:
    """A page of runs. Pass `next` as `after` to get the following page. None: this is the last page.

    `further`: only some runs were examined. The following page continues from there, and this one may be short or empty.
    """

    runs: list[RunSummary]
    next: str | None
    further: bool = False


def summaries(dashboard: Dashboard, wanted: RunFilter) -> SummaryPage:
    """Return the page of a filter, whose limit is one more than the size of the page."""
    found, after, further = search(dashboard, wanted, dashboard.runs.page)
    return SummaryPage(readable("runs", found, _summary, lambda each: each.id), after, further)


def search(
    dashboard: Dashboard, wanted: RunFilter, page: Callable[[RunFilter], list[_R]]
) -> tuple[list[_R], str | None, bool]:
    """Return the runs of a page, one less than the filter's limit; the start of the following page; and whether the search stopped at the
    maximum number of examined runs.
    """
    limit = wanted.limit - 1
    wanted = quickly(dashboard, within_times(wanted))
    floor = _floor(dashboard, wanted, _share(wanted)) if _is_search(wanted) else None
    further = floor is not None and (wanted.since is None or floor > wanted.since)
    found = page(replace(wanted, since=floor) if further else wanted)
    if len(found) > limit:
        return found[:limit], found[limit - 1].uid, False
    return found, floor if further else None, further


def recent(dashboard: Dashboard, wanted: RunFilter) -> tuple[RunFilter, int | None, int | None]:
    """Return the filter for figures of runs; among how many of the newest runs it searches, None: all; and how many it may find.

    Figures of runs since a time are those of all of them: it is up to the caller how long ago that is.
    """
    wanted = quickly(dashboard, within_times(wanted))
    if wanted.since is not None or wanted.few_by:
        return wanted, None, None
    if not _is_search(wanted) and wanted != RunFilter(before=wanted.before, limit=wanted.limit):
        return wanted, None, WITHIN
    share = _share(wanted)
    floor = _floor(dashboard, wanted, share - 1)
    return replace(wanted, since=floor), None if floor is None else share, None


def quickly(dashboard: Dashboard, wanted: RunFilter) -> RunFilter:
    """Return the same filter with the fastest index."""
    if wanted.states and set(wanted.states) <= LIVE:
        counts = dashboard.live()
        if sum(counts[state] for state in wanted.states) < MOST:
            return replace(wanted, few_by="states")
    if wanted.workflow and _are_few(dashboard, wanted.workflow):
        return replace(wanted, few_by="workflow")
    if wanted.completed != (None, None) and dashboard.runs.completed(wanted.completed, MOST) < MOST:
        return replace(wanted, few_by="completed")
    if wanted.id_prefix and _few(dashboard.runs.with_prefix, wanted.id_prefix, MOST_BY_PREFIX):
        return replace(wanted, few_by="prefix")
    return wanted


def _are_few(dashboard: Dashboard, workflows: Sequence[str]) -> bool:
    return _few(dashboard.runs.ended, workflows) and sum(dashboard.live().values()) < MOST


def _few(count: Callable[[str, int], int], values: Sequence[str], most: int = MOST) -> bool:
    """Whether there are few runs with these values. Not counted if there are many values."""
    return len(values) <= _FEW_VALUES and sum(count(each, most) for each in values) < most


def _is_search(wanted: RunFilter) -> bool:
    """Whether runs have to be examined one by one to find those that match."""
    if wanted.few_by or wanted.ids or wanted.forked_from or wanted.stranded:
        return False
    return wanted != _by_index(wanted)


def _by_index(wanted: RunFilter) -> RunFilter:
    """The part of a filter that an index supports, however many runs match it."""
    found = _unfiltered(wanted)
    if wanted.schedule:
        return replace(found, schedule=wanted.schedule)
    if wanted.parent:
        return replace(found, parent=wanted.parent)
    if set(wanted.states) <= {State.FAILED, State.CANCELLED}:
        return replace(found, states=wanted.states)
    return found


def _unfiltered(wanted: RunFilter) -> RunFilter:
    return RunFilter(before=wanted.before, since=wanted.since, limit=wanted.limit)


def _share(wanted: RunFilter) -> int:
    """How many runs are examined at most."""
    return WITHIN if _by_index(wanted) == _unfiltered(wanted) else WITHIN // SCATTERED


def _floor(dashboard: Dashboard, wanted: RunFilter, within: int) -> str | None:
    """The uid of the oldest run to examine. None: there are so few that all are examined."""
    by_index = _by_index(wanted)
    if by_index == _unfiltered(wanted):
        return dashboard.runs.floor(wanted.before, within)
    return dashboard.runs.floor_of(by_index, within)


def within_times(wanted: RunFilter) -> RunFilter:
    """Limit the search to uids near the filter's times: uids sort by creation, and no run ends before it is created."""
    first = wanted.created[0]
    if first is not None:
        wanted = replace(wanted, since=id_at(first - _APART))
    ends = [end for _, end in (wanted.created, wanted.started, wanted.completed) if end is not None]
    if ends:
        end = id_at(min(ends) + _APART)
        wanted = replace(wanted, before=end if wanted.before is None else min(wanted.before, end))
    return wanted


def _summary(run: ListedRun) -> RunSummary:
    seen = appearance(run)
    return shown(RunSummary, run, state=seen.state, reason=seen.reason, stranded=seen.stranded)


MOST_IDS = 500
"""The maximum number of runs of a group that a verb acts on at once."""
_VARYING = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8}-[0-9a-f-]{27}|'[^']*'|\"[^\"]*\"|\d+", re.IGNORECASE)
_TYPE = re.compile(r"(?P<type>[A-Za-z_][\w.]*): ")
_LONGEST = 200


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """Failed runs of one function with the same exception and a message that differs only in numbers and quoted texts."""

    workflow: str
    type: str | None
    message: str
    """The message of the latest run of the group."""
    count: int
    first: datetime | None
    last: datetime | None
    ids: list[str]
    """The latest runs of the group, at most `MOST_IDS`."""


def error_groups(runs: Iterable[RunSummary]) -> list[ErrorGroup]:
    """Group failed runs, which are given latest first. The largest group comes first."""
    found: dict[tuple[str, str | None, str], list[RunSummary]] = {}
    for run in runs:
        kind, message = _type_and_message(run)
        found.setdefault((run.workflow, kind, _VARYING.sub("…", message)[:_LONGEST]), []).append(run)
    groups = [
        ErrorGroup(
            workflow,
            kind,
            _type_and_message(members[0])[1],
            len(members),
            members[-1].completed,
            members[0].completed,
            [run.id for run in members[:MOST_IDS]],
        )
        for (workflow, kind, _), members in found.items()
    ]
    return sorted(groups, key=lambda group: -group.count)


def _type_and_message(run: RunSummary) -> tuple[str | None, str]:
    """Return the type of the exception, if the reason names it, and the message."""
    reason = run.reason or ""
    named = _TYPE.match(reason)
    if named is None:
        return None, run.message or reason or "failed"
    return named["type"], run.message or reason[named.end() :]
