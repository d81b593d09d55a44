"""The states of a run and the legal ways from one to another.

scheduled ──► queued ──► running ◄──► waiting
                ▲            │           │
                └────────────┴───────────┘        (handed back, taken over, or due again after parking)

every state that is not an end ──► cancelled      (at once when no worker owns it, else by way of cancelling)
running, waiting, cancelling   ──► succeeded | failed
cancelling                     ──► queued         (its worker was lost or stopped, and it has something to undo)
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """The state of a run. Members are strings: `info.state == "failed"` works."""

    SCHEDULED = "scheduled"
    """Due later."""
    QUEUED = "queued"
    """Ready, until a worker has room."""
    RUNNING = "running"
    """Owned by a worker."""
    WAITING = "waiting"
    """Waiting for a time, a message, an event or another run."""
    CANCELLING = "cancelling"
    """Asked to stop; its worker has not released it yet."""
    SUCCEEDED = "succeeded"
    """Ended with a result."""
    FAILED = "failed"
    """Ended with an exception."""
    CANCELLED = "cancelled"
    """Stopped on request, by a timeout or with its parent."""

    @property
    def ended(self) -> bool:
        """Whether the run has succeeded, failed or been cancelled."""
        return self in ENDED


ENDED = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED})
LIVE = frozenset(State) - ENDED

TRANSITIONS: dict[State, frozenset[State]] = {
    State.SCHEDULED: frozenset({State.SUCCEEDED, State.QUEUED, State.RUNNING, State.CANCELLED, State.FAILED}),
    State.QUEUED: frozenset({State.SUCCEEDED, State.RUNNING, State.SCHEDULED, State.CANCELLED, State.FAILED}),
    State.RUNNING: frozenset(
        {State.WAITING, State.QUEUED, State.SCHEDULED, State.CANCELLING, State.SUCCEEDED, State.FAILED, State.CANCELLED}
    ),
    State.WAITING: frozenset(
        {State.RUNNING, State.QUEUED, State.SCHEDULED, State.CANCELLING, State.CANCELLED, State.SUCCEEDED, State.FAILED}
    ),
    State.CANCELLING: frozenset({State.CANCELLED, State.SUCCEEDED, State.FAILED, State.QUEUED}),
    State.SUCCEEDED: frozenset(),
    State.FAILED: frozenset({State.QUEUED, State.SCHEDULED, State.SUCCEEDED, State.FAILED}),
    State.CANCELLED: frozenset({State.QUEUED, State.SCHEDULED}),
}
"""What may follow what. An ended run changes only by a verb of an operator's: `resume`, `retry`, and of failed ones `complete`,
`fail` and `reschedule`."""


def legal(before: State, after: State) -> bool:
    """Whether a run may go from one state to the other."""
    return after in TRANSITIONS[before]
