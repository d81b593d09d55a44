"""What may be executed at most once is begun at most once, whatever happens."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from mainspring.model.states import State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.soak.evidence import Evidence

_FUNCTIONS = frozenset({"once", "once_blocking", "once_flow", "with_once"})


def audit(evidence: Evidence) -> Iterator[str]:
    for run in evidence.runs.values():
        if run.workflow not in _FUNCTIONS:
            continue
        begun = evidence.ledger.begun(run.id)
        for label, times in Counter(line.label for line in begun).items():
            if times > 1:
                lines = "\n".join(str(line) for line in begun)
                yield f"{run.id}: {label} was begun {times} times\n{lines}"
        if run.state is State.FAILED and any(True for _ in evidence.recorded(run.id)) and run.kind == "step":
            yield f"{run.id} of {run.workflow} failed ({run.reason}), and its outcome is recorded"
