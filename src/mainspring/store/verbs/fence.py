"""Whether a run is still the one that a write was made for."""

from __future__ import annotations

from typing import Any

from mainspring.model.states import State
from mainspring.store.writes import Verdict

LockedRun = tuple[Any, ...]
"""A locked row, as `LOCKED_COLUMNS`: id, owner, epoch, state, reason, output, error, completed."""


def fence(row: LockedRun | None, owner: str, epoch: int) -> Verdict:
    """DONE if a run is this owner's in this epoch, STOPPING if it is and is being cancelled, FENCED if it is not."""
    if row is None or row[1:3] != (owner, epoch) or State(row[3]).ended:
        return Verdict.FENCED
    return Verdict.STOPPING if row[3] == State.CANCELLING else Verdict.DONE


def ended_in(row: LockedRun | None, epoch: int) -> bool:
    """Whether a run ended in this epoch: a write before its end may be repeated after a lost acknowledgement."""
    return row is not None and row[2] == epoch and State(row[3]).ended


def released_in(row: LockedRun | None, epoch: int) -> bool:
    """Whether no worker has owned a run since this epoch: its release was written, and the acknowledgement was lost."""
    return row is not None and row[1] is None and row[2] == epoch and not State(row[3]).ended
