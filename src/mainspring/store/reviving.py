"""Giving ended runs another life: which of what they recorded is forgotten, and how they become live again."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from mainspring.errors import Conflict
from mainspring.model.forgetting import MADE, forgotten_by_resume, forgotten_by_retry
from mainspring.model.states import LIVE, State
from mainspring.store.desk import children, find, steps_of
from mainspring.store.ops import FAR

if TYPE_CHECKING:
    from collections.abc import Generator

    from mainspring.model.records import Run, Step
    from mainspring.store.desk import Desk

_EXHAUSTED = "recovery exhausted"

_AGAIN = """
  UPDATE runs SET state = :state, reason = NULL, output = NULL, error = NULL, completed = NULL, owner = NULL, poked = :no,
    due = :due, since = NULL, attempts = 0, recoveries = 0, stranded = NULL, stopping = NULL, unsettled = (schedule IS NOT NULL),
    untold = :no, deadline = CASE WHEN deadline IS NULL THEN CAST(:now AS bigint) + timeout ELSE (
      SELECT min(d) FROM (
        SELECT CAST(:now AS bigint) + runs.timeout AS d
        UNION ALL SELECT p.deadline FROM runs p WHERE p.id = runs.parent AND p.completed IS NULL) AS limits) END
  WHERE id = :id
"""
_SEEN_TO_END = "SELECT child FROM steps WHERE run = :id AND kind IN ('call', 'result') AND completed IS NOT NULL"
_FORGET = "DELETE FROM steps WHERE run = :id AND position = :position"
_REVEAL = "UPDATE steps SET due = NULL WHERE run = :id AND position = :position"
_NOTE_MADE = """
  INSERT INTO steps (run, position, kind, name, output, started, completed, epoch)
  VALUES (:id, :position, 'mark', 'mark', '{epoch}', :now, :now, {epoch})
"""
_UNTAKE = """
  UPDATE messages SET received = NULL, position = NULL WHERE run = :id AND position = :position AND answered IS NULL
"""
_UNSAY = tuple(f"DELETE FROM {table} WHERE run = :id AND position = :position" for table in ("events", "streams"))
_KEY_TAKEN = f"""
  SELECT id FROM runs WHERE key = :key AND id <> :id AND state IN ({", ".join(f"'{state}'" for state in sorted(LIVE))})
"""

_KEY_INDEX = ("runs_key", "runs.key")
"""How PostgreSQL and SQLite name the unique index on the keys of unfinished runs."""


def resume(desk: Desk, run: Run, now: int) -> bool:
    """Let a run that was stopped go on where it stopped, and the children that were stopped with it."""
    if run.state is not State.CANCELLED and not (run.state is State.FAILED and run.reason == _EXHAUSTED):
        return False
    _again(desk, run, now, as_it_was=True)  # first: its deadline is its children's
    for step in forgotten_by_resume(steps_of(desk, run.id)):
        forget(desk, run, step, now)
    seen = {row[0] for row in desk.rows(_SEEN_TO_END, id=run.id)}
    for child in children(desk, run):
        if child.state is State.CANCELLED and child.reason == run.reason and child.id not in seen:
            resume(desk, child, now)
    return True


def retry(desk: Desk, run: Run, now: int) -> bool:
    """Let a failed run go on from what it has achieved: the exception that ended it is forgotten, with what came after."""
    if run.state is not State.FAILED:
        return False
    _again(desk, run, now, as_it_was=False)  # first: its deadline is its children's
    forget_attempt(desk, run, run.error, now)
    return True


def _again(desk: Desk, run: Run, now: int, *, as_it_was: bool) -> None:
    """Make an ended run live again: at once, or at its time if it never began and that has not come."""
    require_key(desk, run.id, run.key)
    later = as_it_was and run.started is None and now < run.due < FAR  # FAR: its schedule promised it, and does no more
    state = State.SCHEDULED if later else State.QUEUED
    desk.rows(_AGAIN, id=run.id, state=str(state), due=run.due if later else now, now=now, no=False)
    desk.ready()


def require_key(desk: Desk, run: str, key: str | None) -> None:
    """`Conflict` if another unfinished run has the key of a run that is to be unfinished from now on."""
    taken = desk.rows(_KEY_TAKEN, key=key, id=run) if key is not None else []
    if taken:
        raise Conflict(
            f"run {run!r} has the key {key!r}, which run {taken[0][0]!r} has now; wait for its end, or cancel it"
        )


@contextlib.contextmanager
def key_conflicts() -> Generator[None]:
    """`Conflict` for a key that another transaction took after `require_key` had looked: the unique index found it."""
    try:
        yield
    except Exception as error:
        found = getattr(error, "orig", None) or error  # SQLAlchemy wraps the driver's own
        names = {kind.__name__ for kind in type(found).__mro__}
        if "IntegrityError" in names and any(index in str(found) for index in _KEY_INDEX):
            raise Conflict(
                f"the key of a run was taken by another unfinished run at this moment, and nothing was done ({found}); "
                "wait for its end, or cancel it"
            ) from error
        raise


def forget_attempt(desk: Desk, run: Run, error: str | None, now: int) -> None:
    """Forget what is to be made anew in the next attempt of a run that came to an exception."""
    found = forgotten_by_retry(steps_of(desk, run.id), error)
    for step in found.forget:
        forget(desk, run, step, now)
    for step in found.reveal:
        desk.rows(_REVEAL, id=run.id, position=step.position)


def forget(desk: Desk, run: Run, step: Step, now: int) -> None:
    """Undo what was recorded with an operation, so that it can be made anew. What it told others stays told."""
    if step.kind == "transaction" and step.output is not None:
        at = {"id": run.id, "position": f"{MADE}{step.position}"}
        desk.rows(_FORGET, **at)
        desk.rows(_NOTE_MADE.format(epoch=run.epoch), now=now, **at)
    for statement in (_FORGET, _UNTAKE, *_UNSAY):
        desk.rows(statement, id=run.id, position=step.position)
    child = find(desk, step.child) if step.child is not None and step.kind in {"call", "result"} else None
    if child is not None and child.parent == run.id:
        retry(desk, child, now)
        resume(desk, child, now)
