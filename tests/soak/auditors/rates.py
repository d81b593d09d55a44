"""No more runs of a queue begin in a stretch of time than its rate allows.

By the rows: when runs were let in, in any stretch as long as the rate's. By the ledger: a job begins some time after its run was
claimed, so stretches are longer there, and the delay is allowed for.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from mainspring.model.clock import SECOND
from tests.soak.functions.jobs import LIMITS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.soak.evidence import Evidence

_STRETCH = 30.0
_DELAY = 10.0


def audit(evidence: Evidence) -> Iterator[str]:
    for queue, limits in LIMITS.items():
        for name in ("rate", "partition_rate"):
            if (rate := limits.get(name)) is None:
                continue
            per = rate.per if isinstance(rate.per, int | float) else rate.per.total_seconds()
            if evidence.kind == "postgres" or not evidence.clock_was_set():
                yield from _by_rows(evidence, queue, name, rate.limit, per)
                yield from _by_ledger(evidence, queue, name, rate.limit, per)


def _by_rows(evidence: Evidence, queue: str, name: str, limit: int, per: float) -> Iterator[str]:
    starts: defaultdict[str, list[float]] = defaultdict(list)
    for run in evidence.runs.values():
        if run.queue == queue and run.attempt_started is not None:
            starts[run.partition if name == "partition_rate" else ""].append(run.attempt_started / SECOND)
    for partition, times in starts.items():
        times.sort()
        for first, beyond in zip(times, times[limit:], strict=False):
            if beyond - first < per:
                yield f"more than {limit} jobs of queue {queue} {partition} began within {per} s from {first}"
                break


def _by_ledger(evidence: Evidence, queue: str, name: str, limit: int, per: float) -> Iterator[str]:
    begun: defaultdict[str, list[float]] = defaultdict(list)
    for run in evidence.runs.values():
        lines = evidence.ledger.begun(run.id) if run.queue == queue else []
        if lines:
            begun[run.partition if name == "partition_rate" else ""].append(lines[0].at)
    allowed = int(limit * ((_STRETCH + _DELAY) / per + 1))
    for partition, times in begun.items():
        times.sort()
        for first, beyond in zip(times, times[allowed:], strict=False):
            if beyond - first < _STRETCH:
                yield f"more than {allowed} jobs of queue {queue} {partition} were executed within {_STRETCH} s"
                break
