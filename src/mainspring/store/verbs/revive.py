"""Let ended runs continue: what they must execute again is deleted, and their state is unfinished."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

import msgspec

from mainspring.errors import Conflict
from mainspring.model.retry_scope import (
    FORGOTTEN,
    KEPT,
    ONCE,
    Edition,
    forgotten_by_resume,
    forgotten_by_retry,
    is_compensation,
    is_once,
    outcome_of,
)
from mainspring.model.states import State
from mainspring.store.sql.messages import RETURN_MESSAGE, TABLES_OF_VALUES
from mainspring.store.sql.runs import KEY_TAKEN
from mainspring.store.sql.schedules import FORGET_RUNS_SINCE
from mainspring.store.verbs.lookup import children_of, find, steps_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from mainspring.model.retry_scope import Forgotten
    from mainspring.model.runs import Run, Step
    from mainspring.store.transaction import Script, Transaction

_NOTED = {"step", "transaction", "start", "call", "result"}
"""Kinds of operations that make ids and keys from their position, or that let a child continue when they are executed again."""
_EXHAUSTED = "recovery exhausted"

_REVIVE = """
  UPDATE runs SET state = :state, reason = NULL, output = NULL, error = NULL, completed = NULL, owner = NULL, needs_attention = false,
    due = :due, attempt_started = NULL, attempts = :attempts, recoveries = 0, blocked = NULL, undo_reason = NULL, end_unprocessed = (schedule IS NOT NULL),
    end_unreported = false, deadline = CASE WHEN deadline IS NULL THEN CAST(:now AS bigint) + timeout ELSE (
      SELECT min(d) FROM (
        SELECT CAST(:now AS bigint) + runs.timeout AS d
        UNION ALL SELECT p.deadline FROM runs p WHERE p.id = runs.parent AND p.completed IS NULL) AS limits) END
  WHERE id = :id
"""
_SEEN_TO_END = "SELECT child FROM steps WHERE run = :id AND kind IN ('call', 'result') AND completed IS NOT NULL"
_FORGET = "DELETE FROM steps WHERE run = :run AND position = :position"
_KEEP_ONCE = """
  UPDATE steps SET position = :kept, seq = NULL, due = NULL, discarded = false, completed = coalesce(completed, CAST(:now AS bigint)), epoch = :epoch
  WHERE run = :run AND position = :position
"""
_REVEAL = "UPDATE steps SET discarded = false WHERE run = :run AND position = :position"
_NOTE = """
  INSERT INTO steps (run, position, kind, name, output, started, completed, epoch)
  VALUES (:run, :position, 'mark', 'mark', :value::json, :now, :now, :epoch)
"""
_KEEP_VALUES = tuple(
    f"UPDATE {table} SET position = :kept WHERE run = :run AND position = :position" for table in TABLES_OF_VALUES
)
_WITHDRAW = tuple(f"DELETE FROM {table} WHERE run = :run AND position = :position" for table in TABLES_OF_VALUES)
_ASK_AGAIN = "UPDATE messages SET key = :other WHERE run = :run AND key = :key AND answered IS NOT NULL"
_KEY_INDEX = ("runs_key", "runs.key")
"""The names of the unique index on keys of unfinished runs, on PostgreSQL and on SQLite."""


def resume(tx: Transaction, run: Run, *, asked: bool = True) -> Script[bool]:
    """Resume a stopped run, with the children that were stopped with it. `asked`: by an operator."""
    if run.state is not State.CANCELLED and not (run.state is State.FAILED and run.reason == _EXHAUSTED):
        return False
    if (yield from _has_stopping_child(tx, run)):
        return False  # the child would end as cancelled, and the run would receive that
    yield from _resume(tx, run, asked=asked)
    return True


def _resume(tx: Transaction, run: Run, *, asked: bool) -> Script[None]:
    yield from _revive(tx, run, as_it_was=True)  # first: children inherit its deadline
    steps = yield from steps_of(tx, run.id)
    found = forgotten_by_resume(steps)
    yield from _forget_all(tx, run, steps, found, asked=asked)
    seen = {row[0] for row in (yield from tx.execute(_SEEN_TO_END, id=run.id))}
    replaced = _started_anew(run, found.forget)
    for child in (yield from children_of(tx, run)):
        with_it = child.state is State.CANCELLED and child.reason == run.reason and child.id not in seen
        if with_it and not replaced(child.id):
            yield from _resume(tx, child, asked=asked)


def _started_anew(run: Run, forgotten: list[Step]) -> Callable[[str], bool]:
    """Whether an id is that of a child whose start is forgotten: the run starts another one in its place."""
    made = [step for step in forgotten if step.output is not None and step.completed is not None]
    ids = {child for step in made if step.kind == "start" for child in json.loads(step.output or "[]")}
    inside = tuple(
        f"{run.id}/{step.position}{end}" for step in made if step.kind in {"step", "transaction"} for end in ".~"
    )
    return lambda child: child in ids or child.startswith(inside)


def _has_stopping_child(tx: Transaction, run: Run) -> Script[bool]:
    """Whether a worker still executes a child, at any depth, that is being cancelled with a run."""
    for child in (yield from children_of(tx, run)):
        if child.reason != run.reason:
            continue
        if child.state is State.CANCELLING:
            return True
        if child.state is State.CANCELLED and (yield from _has_stopping_child(tx, child)):
            return True
    return False


def retry(tx: Transaction, run: Run, *, asked: bool = True) -> Script[bool]:
    """Retry a failed run from what it recorded: the exception that ended it is deleted, with what was recorded later.

    `asked`: by an operator.
    """
    if run.state is not State.FAILED:
        return False
    yield from _revive(tx, run, as_it_was=False)  # first: children inherit its deadline
    yield from forget_attempt(tx, run, run.error, asked=asked)
    return True


def _revive(tx: Transaction, run: Run, *, as_it_was: bool) -> Script[None]:
    """Make an ended run unfinished: ready now, or scheduled if it never began and its due time is later."""
    yield from require_key(tx, run.id, run.key)
    due = (
        run.due if as_it_was and run.started is None and run.due is not None else tx.now
    )  # None: it waited for its turn in a schedule
    state, due = (State.SCHEDULED, due) if due > tx.now else (State.QUEUED, tx.now)
    begun = 0 if run.attempt_started is None else 1  # a claim counts it again
    attempts = max(run.attempts - begun, 0) if as_it_was else 0
    yield from tx.execute(_REVIVE, id=run.id, state=str(state), due=due, attempts=attempts, now=tx.now)
    if run.schedule is not None:
        yield from tx.execute(FORGET_RUNS_SINCE, id=run.schedule)
    tx.changes.ready = True


def require_key(tx: Transaction, run: str, key: str | None) -> Script[None]:
    """Raise `Conflict` if another unfinished run has the key of a run that becomes unfinished."""
    taken = (yield from tx.execute(KEY_TAKEN, key=key, id=run)) if key is not None else []
    if taken:
        raise Conflict(
            f"run {run!r} has the key {key!r}, which run {taken[0][0]!r} has now; wait for its end, or cancel it"
        )


@contextlib.contextmanager
def key_conflicts() -> Generator[None]:
    """Raise `Conflict` for a key that another transaction took after `require_key`, as the unique index reports."""
    try:
        yield
    except Exception as error:
        found = getattr(error, "orig", None) or error  # SQLAlchemy wraps the driver's exception
        names = {kind.__name__ for kind in type(found).__mro__}
        if "IntegrityError" in names and any(index in str(found) for index in _KEY_INDEX):
            raise Conflict(
                f"the key of a run was taken by another unfinished run at this moment, and nothing was done ({found}); "
                "wait for its end, or cancel it"
            ) from error
        raise


def forget_attempt(tx: Transaction, run: Run, error: str | None, *, asked: bool = False) -> Script[None]:
    """Delete what the next attempt of a run executes again, after an exception ended the last one."""
    steps = yield from steps_of(tx, run.id)
    if asked:
        for step in steps:
            if step.position.startswith(ONCE) and step.output is None:
                yield from _forget(tx, run, step)
    yield from _forget_all(tx, run, steps, forgotten_by_retry(steps, error), asked=asked)


def _forget_all(tx: Transaction, run: Run, steps: list[Step], found: Forgotten, *, asked: bool) -> Script[None]:
    notes = {step.position: step.output for step in steps if step.position.startswith(FORGOTTEN)}
    for step in found.forget:
        if step.kind in _NOTED:
            note = f"{FORGOTTEN}{step.position}"
            edition = Edition.decode(notes.get(note)).after(step, run.epoch, asked=asked)
            yield from _note(tx, run, note, edition, tx.now)
        if is_once(step):
            before = next((each for each in steps if each.position == outcome_of(step)), None)
            yield from _forget_once(tx, run, step, before, asked=asked, undone=step.position in found.undone)
        else:
            yield from _forget(tx, run, step)
    for step in found.reveal:
        yield from tx.execute(_REVEAL, run=run.id, position=step.position)
    kept = found.kept(steps)
    if kept is not None:
        yield from _note(tx, run, KEPT, [kept.first, kept.end], kept.at)


def _forget_once(
    tx: Transaction, run: Run, step: Step, before: Step | None, *, asked: bool, undone: bool
) -> Script[None]:
    """Keep the outcome of an `at_most_once` step beside the operations, for the same call in the next attempt.

    It is executed again if it has succeeded and was undone, or if it has not succeeded and an operator asks for it. So is a compensation of what was
    undone: it belongs to what is executed again. `before`: the forgotten step whose outcome it received, which is kept already.
    """
    succeeded = step.output is not None
    again = (undone and (succeeded or is_compensation(step))) or (asked and not succeeded)
    if again or before is not None:
        yield from _forget(tx, run, step)
        if again and before is not None:
            yield from _forget(tx, run, before)
        return
    values = {"run": run.id, "position": step.position, "kept": f"{ONCE}{step.position}~{run.epoch}"}
    yield from tx.execute(_KEEP_ONCE, **values, now=tx.now, epoch=run.epoch)
    for statement in _KEEP_VALUES:
        yield from tx.execute(statement, **values)


def _note(tx: Transaction, run: Run, position: str, value: object, at: int) -> Script[None]:
    """Record something beside the operations of a run, instead of what was recorded there before."""
    text = msgspec.json.encode(value).decode()
    yield from tx.execute(_FORGET, run=run.id, position=position)
    yield from tx.execute(_NOTE, run=run.id, position=position, value=text, now=at, epoch=run.epoch)


def _forget(tx: Transaction, run: Run, step: Step) -> Script[None]:
    """Delete what was recorded with an operation, so that it can be executed again. Messages that it sent stay sent.

    A child that failed stays as it is until the operation is executed again (`revive_child`): the code may not ask for it any more.
    """
    if step.kind == "answer" and step.child is not None:
        key = f"{run.uid}-{step.position}"
        yield from tx.execute(_ASK_AGAIN, run=step.child, key=key, other=f"{key}~{run.epoch}")
    for statement in (_FORGET, RETURN_MESSAGE, *_WITHDRAW):
        yield from tx.execute(statement, run=run.id, position=step.position)


def revive_child(tx: Transaction, run: str, child_id: str | None, *, asked: bool) -> Script[bool]:
    """Let a child that failed or was cancelled continue, because its parent waits for it again. Return whether it does."""
    child = (yield from find(tx, child_id)) if child_id is not None else None
    if child is None or child.parent != run:
        return False
    try:
        retried = yield from retry(tx, child, asked=asked)
        return retried or (yield from resume(tx, child, asked=asked))
    except Conflict:
        return False  # another run has its key now: the parent finds it as it had ended
