"""Whether a worker still owns a run in the epoch of its write."""

from __future__ import annotations

from typing import Any

from mainspring.model.states import State
from mainspring.store.writes import Verdict

LockedRun = tuple[Any, ...]
"""A locked row, as `LOCKED_COLUMNS`: id, owner, epoch, state, reason, output, error, completed."""


def fence(row: LockedRun | None, owner: str, epoch: int) -> Verdict:
    """DONE if the owner still owns the run in this epoch, STOPPING if the run is also being cancelled, FENCED if not."""
    if row is None or row[1:3] != (owner, epoch) or State(row[3]).ended:
        return Verdict.FENCED
    return Verdict.STOPPING if row[3] == State.CANCELLING else Verdict.DONE


def ended_in(row: LockedRun | None, epoch: int) -> bool:
    """Whether a run ended in this epoch. Then a write from before its end may be a repetition after a lost acknowledgement."""
    return row is not None and row[2] == epoch and State(row[3]).ended


def released_in(row: LockedRun | None, epoch: int) -> bool:
    """Whether no worker has owned a run since this epoch. Then a release is a repetition after a lost acknowledgement."""
    return row is not None and row[1] is None and row[2] == epoch and not State(row[3]).ended
