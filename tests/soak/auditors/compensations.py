"""A trip that does not come to its end undoes all that it has recorded, the last first; one that does undoes nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from mainspring.model.states import State
from tests.soak.functions.trips import TRIPS, UNDONE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainspring.model.runs import Run
    from tests.soak.evidence import Evidence


def audit(evidence: Evidence) -> Iterator[str]:
    for run in evidence.runs.values():
        if run.workflow not in TRIPS or not run.state.ended:
            continue
        labels = [label for label, _, _ in evidence.recorded(run.id)]
        booked = [label for label in labels if not label.startswith(UNDONE)]
        undone = [label.removeprefix(UNDONE) for label in labels if label.startswith(UNDONE)]
        if run.state is State.SUCCEEDED:
            if undone:
                yield f"{run.id} has succeeded, and has undone {undone}"
        elif evidence.stopped(run) == "terminate":
            continue  # who terminates a run wants nothing undone
        elif not undone and _left_its_block(run, len(booked)):
            continue
        elif undone != booked[::-1]:
            yield (
                f"{run.id} ended {run.state} ({run.reason}) after {booked} and has undone {undone}\n{evidence.story(run.id)}"
            )


def _left_its_block(run: Run, booked: int) -> bool:
    """With everything booked the block may have come to its good end before the stop came: then nothing is to be undone.

    Whether it had is not recorded, so these runs prove nothing.
    """
    plan = json.loads(run.input)["plan"]
    return booked == sum(kind.startswith("book") for kind, _ in plan) and all(kind != "fail" for kind, _ in plan)
