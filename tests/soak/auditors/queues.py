"""No more runs of a queue are at work at once than may be, by the ledger.

Only executions whose outcome was recorded count: their worker had the run for all of their time. What a worker does that has lost its
run without knowing it is beyond the limits, and beyond what a queue can promise. The watcher looks at the rows besides.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tests.soak.functions.jobs import LIMITS
from tests.soak.ledger import BEGIN, END

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.soak.evidence import Evidence

    Span = tuple[float, float, str]
    Group = tuple[str, str, str]


def audit(evidence: Evidence) -> Iterator[str]:
    groups: defaultdict[Group, list[Span]] = defaultdict(list)
    for run in evidence.succeeded:
        limits = LIMITS.get(run.queue or "")
        for _, token, _ in evidence.recorded(run.id) if limits else ():
            lines = evidence.ledger.by_token.get(token, {})
            if BEGIN not in lines or END not in lines:
                continue
            span = (lines[BEGIN].at, lines[END].at, run.id)
            process = str(lines[BEGIN].pid)
            groups[run.queue or "", "concurrency", ""].append(span)
            groups[run.queue or "", "partition_concurrency", run.partition].append(span)
            groups[run.queue or "", "worker_concurrency", process].append(span)
            groups[run.queue or "", "partition_worker_concurrency", f"{run.partition} {process}"].append(span)
    for (queue, limit, part), spans in groups.items():
        most = LIMITS[queue].get(limit)
        found = _most_at_once(spans)
        if most is not None and len(found) > most:
            yield f"{len(found)} jobs of queue {queue} {part} were at work at once, and {limit} is {most}: {found}"


def _most_at_once(spans: list[Span]) -> list[str]:
    """The runs of the moment at which most were at work."""
    moments = sorted([(begin, 1, run) for begin, _, run in spans] + [(end, 0, run) for _, end, run in spans])
    at_work: list[str] = []
    most: list[str] = []
    for _, begins, run in moments:
        if begins:
            at_work.append(run)
            most = max(most, list(at_work), key=len)
        elif run in at_work:
            at_work.remove(run)
    return most
