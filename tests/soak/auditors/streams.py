"""Whoever reads a stream reads every value once and in order; an event has its last value; a question has its answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.soak.evidence import Evidence


def audit(evidence: Evidence) -> Iterator[str]:
    for run in evidence.succeeded:
        if run.workflow == "follower":
            yield from _follower(evidence, run.id, json.loads(run.input)["of"])
        elif run.workflow == "asker":
            yield from _asker(evidence, run.id, json.loads(run.input)["values"])
    for line in evidence.ledger.of("read"):
        if line.more["values"] != list(range(line.more["count"])):
            yield f"a client read {line.more['values']} of {line.run}, which wrote {line.more['count']} values"
    for line in evidence.ledger.of("answer"):
        if line.more["answer"] not in {None, 2 * int(line.label)}:
            yield f"{line.run} was asked for twice {line.label} and answered {line.more['answer']}"


def _follower(evidence: Evidence, run: str, reporter: str) -> Iterator[str]:
    values, last = evidence.output(run)
    count = evidence.output(reporter)
    if count is not None and (values != list(range(count)) or last != count - 1):
        yield f"{run} read {values} and the event {last} of {reporter}, which wrote {count} values"


def _asker(evidence: Evidence, run: str, values: list[int]) -> Iterator[str]:
    for value, answer in zip(values, evidence.output(run), strict=True):
        wanted = "refused" if value < 0 else 2 * value
        if answer not in (None, wanted):
            yield f"{run} asked for twice {value} and was answered {answer!r}"
