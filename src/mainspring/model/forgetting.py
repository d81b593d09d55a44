"""What a retry forgets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.model.records import Step


def forgotten_from(steps: Sequence[Step], error: str | None) -> int | None:
    """The seq of the recorded exception that ended a run: a retry forgets it and what came after. None: no recorded one did.

    That is the last one that says what the run's own exception says. A run that made another exception of it (`raise … from`)
    ended with the last outcome it recorded, if that is an exception. One that was caught, and after which the run went on
    and failed by itself, stays: to forget it would not help. What was undone has to be done again.
    """
    undone = undone_from(steps)
    if undone is not None:
        return undone
    recorded = sorted((step for step in steps if step.seq is not None), key=lambda step: step.seq or 0)
    failed = [step for step in recorded if step.error is not None]
    said = _said(error)
    alike = [step for step in failed if said is not None and _said(step.error) == said]
    if alike:
        return alike[-1].seq
    if failed and failed[-1] is recorded[-1]:
        return failed[-1].seq
    return None


def undone_from(steps: Sequence[Step]) -> int | None:
    """The seq of the first scope whose compensations were made: what was done in it is not there any more. None: there is none."""
    scopes = {
        step.position.removeprefix("u:").rpartition(".")[0]
        for step in steps
        if step.position.startswith("u:") and step.kind != "undo"  # that one says that its scope was left in good order
    }
    return min((step.seq for step in steps if step.position in scopes and step.seq is not None), default=None)


def last_recorded(steps: Sequence[Step]) -> int | None:
    """The seq of the last outcome, if there is one."""
    return max((step.seq for step in steps if step.seq is not None), default=None)


def _said(error: str | None) -> tuple[str, str] | None:
    """Type and message of a recorded exception."""
    if error is None:
        return None
    record = json.loads(error)
    return record.get("type", ""), record.get("message", "")
