"""The states of a run and the legal transitions between them.

scheduled ──► queued ──► running ◄──► waiting
                ▲            │           │
                └────────────┴───────────┘        (released, recovered, or due again after a suspend)

every state that is not an end ──► cancelled      (at once if unowned, otherwise by way of cancelling)
running, waiting, cancelling   ──► succeeded | failed
cancelling                     ──► queued         (its worker was lost or stopped, and there are compensations to execute)
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """The state of a run. Members are strings: `info.state == "failed"` works."""

    SCHEDULED = "scheduled"
    """Due later."""
    QUEUED = "queued"
    """Ready, waiting for a worker with a free slot."""
    RUNNING = "running"
    """Owned by a worker."""
    WAITING = "waiting"
    """Waiting for a time, a message, an event or another run."""
    CANCELLING = "cancelling"
    """Asked to stop, and not yet released by its worker."""
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
NOT_BEGUN = (State.SCHEDULED, State.QUEUED)

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
"""The states that may follow each state. Only a verb of an operator changes an ended run: `resume` and `retry`, and for failed runs also
`complete`, `fail` and `reschedule`.
"""


def is_legal(before: State, after: State) -> bool:
    """Whether a run may change from `before` to `after`."""
    return after in TRANSITIONS[before]
