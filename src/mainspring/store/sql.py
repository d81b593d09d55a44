"""Statements and row shapes that are the same in every store. Placeholders are written `:name`."""

from __future__ import annotations

import json
from sys import intern
from typing import TYPE_CHECKING, Any

from mainspring.model.records import UNSEEN, Ending, NewRun, Run, Step, Worker
from mainspring.model.states import State
from mainspring.store.ops import FAR

if TYPE_CHECKING:
    from collections.abc import Sequence


RUN_COLUMNS = Run.__struct_fields__
STEP_COLUMNS = Step.__struct_fields__
NEW_RUN_COLUMNS = (
    *(name for name in NewRun.__struct_fields__ if name != "key_mode"),
    "started",
    "since",
    "epoch",
    "attempts",
)
WORKER_COLUMNS = (
    "id",
    "host",
    "boot",
    "pid",
    "pid_start",
    "version",
    "functions",
    "started",
    "beat",
    "seen",
    "crontab",
    "instances",
)

RUN = f"SELECT {', '.join(RUN_COLUMNS)} FROM runs WHERE id = :id"
STEP = f"SELECT {', '.join(STEP_COLUMNS)} FROM steps WHERE run = :run AND position = :position"
STEPS = f"SELECT {', '.join(STEP_COLUMNS)} FROM steps WHERE run = :run ORDER BY seq IS NULL, seq, position"
WORKERS = f"SELECT {', '.join(WORKER_COLUMNS)} FROM workers ORDER BY started, id"
ORPHANED = """
  WITH RECURSIVE owners (owner) AS (
    SELECT min(owner) FROM runs WHERE owner IS NOT NULL
    UNION ALL SELECT (SELECT min(runs.owner) FROM runs WHERE runs.owner > owners.owner) FROM owners WHERE owner IS NOT NULL)
  SELECT owner FROM owners WHERE owner IS NOT NULL AND owner NOT IN (SELECT id FROM workers)
"""  # from owner to owner through the index: the cost is that of the fleet, not of its runs
IN_HAND = "SELECT id, epoch, state, reason FROM runs WHERE owner = :worker"
COUNTS = """
  SELECT state, CAST(sum(found) AS bigint) FROM (
    SELECT state, count(*) AS found FROM runs WHERE owner IS NOT NULL GROUP BY state
    UNION ALL SELECT state, count(*) FROM runs WHERE owner IS NULL AND state IN ('scheduled', 'waiting') GROUP BY state
    UNION ALL SELECT 'queued', count(*) FROM runs WHERE state = 'queued' AND queue IS NULL
    UNION ALL SELECT 'queued', count(*) FROM runs WHERE state = 'queued' AND queue IS NOT NULL AND since IS NULL
    UNION ALL SELECT 'queued', count(*) FROM runs WHERE state = 'queued' AND queue IS NOT NULL AND since IS NOT NULL
  ) AS parts GROUP BY state HAVING sum(found) > 0
"""
"""What is alive, each part by an index of its own: what has ended is not looked at."""

_OVER = "(position IS NOT NULL OR answered IS NOT NULL)"
"""The condition of the index `messages_over`, word for word: SQLite compares the text. Bare keys of older messages are not in it."""
_ASKER = "r.uid || '-' || CASE r.generation WHEN 0 THEN '' ELSE 'g' || r.generation || '.' END"
"""How the keys of questions begin that a run `r` asked in its present generation."""

VOID = f"""output = CASE WHEN kind IN ('step', 'transaction') AND error IS NULL THEN output END, error = NULL,
    due = CASE WHEN kind IN ('step', 'transaction') AND error IS NULL THEN {UNSEEN} ELSE due END"""
"""What an operation becomes that the workflow's own code has cancelled. A transaction has committed all the same, and an attempt that
does not cancel it is to have its outcome."""


def continue_as(messages: str) -> tuple[str, ...]:
    """A run begins anew. It forgets its steps, received messages and older values of events. `messages` is the table, with a hint.

    Of a message with a key the key stays, without a position: a second message with that key is never stored. A question that was
    accepted and not answered is put to the next generation. An answer stays for an hour, and for as long as the run that asked may read
    it: until that run ends or begins anew itself.
    """
    return (
        """
  UPDATE runs SET owner = NULL, poked = :no, stranded = NULL, state = 'queued', due = :now, input = :input,
    generation = generation + 1, began_epoch = epoch + 1, recoveries = 0, version = NULL, fingerprint = ''
  WHERE id = :run
""",
        "DELETE FROM steps WHERE run = :run",
        f"""
  UPDATE {messages} SET received = NULL, position = NULL
  WHERE run = :run AND {_OVER} AND kind = 'question' AND answered IS NULL
""",
        f"""
  UPDATE {messages} SET body = 'null', position = NULL
  WHERE run = :run AND {_OVER} AND kind = 'message' AND key IS NOT NULL
""",
        f"""
  DELETE FROM {messages} WHERE run = :run AND {_OVER} AND (kind = 'message' OR (answered < :long_ago AND NOT EXISTS (
    SELECT 1 FROM runs r WHERE r.id = messages.sender AND r.completed IS NULL
      AND substr(messages.key, 1, length({_ASKER})) = {_ASKER})))
""",
        """
  DELETE FROM events WHERE run = :run AND number < (
    SELECT max(e.number) FROM events e WHERE e.run = events.run AND e.key = events.key)
""",
    )


LONG_AGO = 3_600_000_000


def next_wake(run: str, except_at: str | None = None) -> str:
    """When a waiting run is to be woken: the earliest due time of its open steps. `run` is what its row is called in the statement.

    It is derived from what is recorded and never carried in memory: a due time that memory gets wrong is a run that nothing wakes.
    `except_at` leaves out the step at a position, for a statement that writes it.
    """
    besides = f" AND o.position <> {except_at}" if except_at else ""
    return f"coalesce((SELECT min(o.due) FROM steps o WHERE o.run = {run}.id AND o.completed IS NULL{besides}), {FAR})"


def awaited_end(run: str) -> str:
    """A condition: a run that the run waits for has ended.

    A worker that finishes both learns of it in memory, without a notification. So every statement that takes a waiting run from
    its owner has to look.
    """
    return f"""EXISTS (
    SELECT 1 FROM steps s JOIN runs c ON c.id = s.child
    WHERE s.run = {run}.id AND s.completed IS NULL AND c.state IN ('succeeded', 'failed', 'cancelled'))"""


def undoable(run: str) -> str:
    """A condition: the run may have something to undo when it is stopped. Then the worker that claims it next stops it."""
    return f"EXISTS (SELECT 1 FROM steps u WHERE u.run = {run}.id AND u.kind = 'undo')"


def has_wait(run: str) -> str:
    """A condition: the run has an open step that a time, a message or another run can complete. Without one it must not wait."""
    return f"""EXISTS (
    SELECT 1 FROM steps o WHERE o.run = {run}.id AND o.completed IS NULL AND (o.due IS NOT NULL OR o.child IS NOT NULL))"""


SQLITE_INSTANCE = "coalesce(json_extract(input, '$.self'), json_extract(input, '$.\"*\"[0]'))"
_INPUT = r"CAST(replace(CAST(input AS text), '\u0000', '\ufffd') AS json)"
POSTGRES_INSTANCE = f"coalesce({_INPUT} ->> 'self', {_INPUT} -> '*' ->> 0)"
"""The name of the instance that a run of a method needs: its first argument. PostgreSQL has no text with a zero in it."""
UNWIND = """
  UPDATE runs SET owner = NULL, poked = :no, state = 'queued', due = :now, stopping = :stopping WHERE id = :run
"""


def run_values(run: NewRun) -> tuple[Any, ...]:
    """The row of a new run, in the order of NEW_RUN_COLUMNS. One that begins in hand has been claimed once."""
    begun, once = (run.created, 1) if run.owner is not None else (None, 0)
    return (
        run.id,
        run.uid,
        run.workflow,
        run.kind,
        run.input,
        run.state,
        run.due,
        run.created,
        run.timeout,
        run.deadline,
        run.owner,
        run.version,
        run.fingerprint,
        run.parent,
        run.scheduled_by,
        run.attributes,
        run.scheduled_time,
        run.queue,
        run.priority,
        run.partition,
        run.key,
        run.retry,
        run.latest,
        begun,
        begun,
        once,
        once,
    )


def step_values(step: Step) -> tuple[Any, ...]:
    """The row of a step, in the order of STEP_COLUMNS."""
    return (
        step.run,
        step.position,
        step.kind,
        step.name,
        step.seq,
        step.output,
        step.error,
        step.started,
        step.completed,
        step.attempts,
        step.epoch,
        step.child,
        step.due,
        step.trail,
    )


def to_run(row: Sequence[Any]) -> Run:
    """A run from its row. The columns are the fields of `Run`, in their order; what many runs have in common is kept once."""
    run = Run(*row)
    run.state = State(run.state)
    run.workflow, run.kind = intern(run.workflow), intern(run.kind)
    if run.version is not None:
        run.version = intern(run.version)
    if run.owner is not None:
        run.owner = intern(run.owner)
    run.fingerprint = intern(run.fingerprint)
    return run


def to_step(row: Sequence[Any]) -> Step:
    return Step(*row)


def to_worker(row: Sequence[Any]) -> Worker:
    return Worker(*row)


def to_ending(row: Sequence[Any]) -> Ending | None:
    """From id, state, reason, output, error: how the run ended, or None if it has not."""
    run_id, state, reason, output, error = row
    state = State(state)
    return Ending(run_id, state, reason, output, error) if state.ended else None


def exhausted_record(most: int) -> str:
    """The error of a run that was recovered too often."""
    message = (
        f"its worker was lost more than {most} times while it ran; `mainspring runs resume` gives it another chance"
    )
    return json.dumps({"type": "mainspring.errors:RunEnded", "message": message, "args": [message]})
