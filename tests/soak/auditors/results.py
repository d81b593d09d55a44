"""A client that waits for a result is told what is stored; a run that has succeeded has carried out its whole program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.soak.programs import certain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.soak.evidence import Evidence


def audit(evidence: Evidence) -> Iterator[str]:
    for line in evidence.ledger.of("result"):
        run = evidence.runs.get(line.run)
        resumed = any(each.run == line.run for each in evidence.ledger.of("resume"))
        if run is None or resumed:
            continue
        if run.state != line.label or (line.label == "succeeded" and evidence.output(run.id) != line.more["value"]):
            yield f"{run.id} ended {run.state}, and who waited for it was told {line.label}: {line.more['value']}"
    for run in evidence.succeeded:
        recorded = {label for label, _, _ in evidence.recorded(run.id)}
        for kind, *rest in certain(evidence.operations(run)):
            if kind == "step" and rest[1] not in recorded:
                yield f"{run.id} has succeeded, and its step {rest[1]} ({rest[0]}) has no outcome"
            elif kind == "adhoc" and rest[0] not in recorded:
                yield f"{run.id} has succeeded, and its step {rest[0]} has no outcome"
