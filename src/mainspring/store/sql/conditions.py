"""Conditions on runs that statements share, on both databases.

A partial index serves a statement that has the condition of the index, on SQLite as the same text.
"""

from __future__ import annotations

from mainspring.store.sql.messages import arrived

ENDED = "('succeeded', 'failed', 'cancelled')"

# -- conditions of indexes -------------------------------------------------------------------------------------------------
OWNED = "owner IS NOT NULL"
"""The condition of the index `runs_owner`."""
LATER = "owner IS NULL AND state IN ('scheduled', 'waiting')"
"""A run that becomes ready by time, or when it is woken: the condition of the index `runs_due`."""
EXPIRES = (
    "deadline IS NOT NULL AND owner IS NULL AND state IN ('scheduled', 'queued', 'waiting') AND undo_reason IS NULL"
)
"""A run without an owner that is stopped when its deadline has passed: the condition of the index `runs_deadline`.

One that is to execute its compensations was stopped before.
"""
READY = "state = 'queued' AND (queue IS NULL OR attempt_started IS NULL)"
"""A run that waits, in a queue or not: the condition of the index `runs_waiting`."""
WAITS = "state = 'queued' AND queue IS NOT NULL AND attempt_started IS NULL"
"""A run of a queue that waits to begin."""
RESUMES = "state = 'queued' AND queue IS NOT NULL AND attempt_started IS NOT NULL"
"""A run that has begun and is ready to continue. It keeps its slot, so no limit of the fleet applies."""
PLAIN = "state = 'queued' AND queue IS NULL"
"""A run that waits and has no queue."""
PLACED = "queue IS NOT NULL AND attempt_started IS NOT NULL AND state IN ('queued', 'running', 'waiting', 'cancelling')"
"""A run that counts towards the concurrency of its queue: the condition of the index `runs_placed`."""
IN_FAILED = "state IN ('queued', 'failed', 'cancelled')"
"""A part of the condition of the index `runs_failed`."""


# -- conditions of open steps ----------------------------------------------------------------------------------------------
# `run` is the name of the run's row in the statement.
def next_wake(run: str, except_at: str | None = None) -> str:
    """The time at which a waiting run wakes: the earliest due time of its open steps. `run` is the name of its row in the statement.

    NULL: no time wakes the run, only what `has_wait` finds. The time is computed from the recorded steps and never kept in memory: with a
    wrong time in memory, nothing would wake the run. `except_at` leaves out the step at a position, for a statement that writes that step.
    """
    besides = f" AND o.position <> {except_at}" if except_at else ""
    return f"(SELECT min(o.due) FROM steps o WHERE o.run = {run}.id AND o.completed IS NULL{besides})"


def awaited_end(run: str) -> str:
    """A condition: a run that the run waits for has ended.

    A worker that finishes the awaited run resolves the wait in memory, without a notification. So every statement that takes a waiting run
    from its owner must check this condition.
    """
    return f"""EXISTS (
    SELECT 1 FROM steps s JOIN runs c ON c.id = s.child
    WHERE s.run = {run}.id AND s.completed IS NULL AND c.state IN {ENDED})"""


def undoable(run: str) -> str:
    """A condition: the run may have compensations to execute when it is stopped. Then the worker that claims it next stops it."""
    return f"EXISTS (SELECT 1 FROM steps u WHERE u.run = {run}.id AND u.kind = 'undo')"


def has_wait(run: str) -> str:
    """A condition: the run has an open step that a time, a message or another run can complete. Without one it must not wait."""
    return f"""EXISTS (
    SELECT 1 FROM steps o WHERE o.run = {run}.id AND o.completed IS NULL AND (o.due IS NOT NULL OR o.child IS NOT NULL))"""


def wait_is_over(run: str) -> str:
    """A condition: a wait of the run is over."""
    return f"({awaited_end(run)} OR {arrived(run)})"


def stays_waiting(run: str) -> str:
    """A condition: a run that loses its owner stays waiting, because it is recorded as waiting and an open step can wake it."""
    return f"{run}.state = 'waiting' AND NOT {run}.needs_attention AND NOT {wait_is_over(run)} AND {has_wait(run)}"
