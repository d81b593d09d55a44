"""Forks: new runs that have done what others had done up to a point."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from msgspec import Struct, field

from mainspring.errors import Conflict, NotFound
from mainspring.model.retry_scope import forgotten_from, last_recorded
from mainspring.model.states import State
from mainspring.store.sql.records import STEP_COLUMNS
from mainspring.store.sql.steps import RENAME_STARTED
from mainspring.store.verbs.lookup import find, steps_of

if TYPE_CHECKING:
    from mainspring.model.runs import Run, Step
    from mainspring.store.transaction import Script, Transaction

_FORK_COLUMNS = (
    *("id", "uid", "workflow", "kind", "input", "state", "due", "created", "timeout", "version", "epoch"),
    *("attributes", "forked_from", "forked_at", "queue", "priority", "partition", "retry", "generation"),
)
_FORK = f"""
  INSERT INTO runs ({", ".join(_FORK_COLUMNS)}) VALUES ({", ".join(f":{column}" for column in _FORK_COLUMNS)})
"""
_COPIED = ", ".join(column for column in STEP_COLUMNS if column not in {"run", "epoch"})
_COPY_STEP = f"""
  INSERT INTO steps (run, epoch, {_COPIED})
  SELECT CAST(:new AS text), 1, {_COPIED} FROM steps WHERE run = :id AND position = :position
"""
_COPY_MESSAGES = tuple(
    f"""
  INSERT INTO {table} (run, key, number, value, set_at, position)
  SELECT CAST(:new AS text), key, number, value, set_at, position FROM {table} WHERE run = :id AND position = :position
"""
    for table in ("events", "streams")
)


_WAIT_FOR = """
  INSERT INTO steps (run, position, kind, name, started, epoch, child)
  VALUES (:run, :position, 'call', :name, :now, 1, :child)
"""
_OPEN = 2**62
"""The seq of an operation without an outcome, to compare with others."""


class Fork(Struct, frozen=True):
    """A new run that begins where another one was. `step` is the position of the first operation to be executed again.

    None: all of them are. What is left None otherwise is as it was in the original.
    """

    source: str
    id: str
    uid: str
    step: str | None = None
    after_failure: bool = False
    """Begin with what ended the original, or else with the last thing it recorded."""
    version: str | None = None
    queue: str | None = None
    timeout: int | None = None
    past_last: bool = False
    """Begin after the last thing that the original recorded."""
    children: dict[str, str] = field(default_factory=dict[str, str])
    """Runs that take the place of others which the original started, by the ids of those: the fork waits for them instead."""


def fork(tx: Transaction, wanted: Fork) -> Script[None]:
    """Make the new run and give it copies of what the original recorded before the point."""
    source = yield from find(tx, wanted.source)
    assert source is not None  # noqa: S101  (looked for before)
    steps = yield from steps_of(tx, source.id)
    yield from _check_children(tx, wanted)
    first = _first_anew(source, steps, wanted)
    used = _first_use(steps, wanted.children)
    if used is not None and (wanted.past_last or (first is not None and _seq(used) < _seq(first))):
        first = used
    copied = _copied(steps, first, everything=wanted.past_last and used is None)
    values = {
        "id": wanted.id,
        "uid": wanted.uid,
        "workflow": source.workflow,
        "kind": source.kind,
        "input": source.input,
        "state": State.QUEUED.value,
        "due": tx.now,
        "created": tx.now,
        "timeout": wanted.timeout if wanted.timeout is not None else source.timeout,
        "version": wanted.version,
        "epoch": 1,  # as if claimed before: the claim then brings its steps along
        "attributes": source.attributes,
        "forked_from": source.id,
        "forked_at": first.position if first is not None else "end" if wanted.past_last else None,
        "queue": wanted.queue if wanted.queue is not None else source.queue,
        "priority": source.priority,
        "partition": source.partition,
        "retry": source.retry,
        "generation": source.generation if copied else 0,  # positions begin with it, also those that are copied
    }
    there = yield from find(tx, wanted.id)
    if there is not None and there.uid == wanted.uid:
        return  # made before, and the answer was lost
    if there is not None:
        raise Conflict(f"run id {wanted.id!r} is taken, so a fork of {source.id!r} cannot have it; choose another id")
    yield from tx.execute(_FORK, **values)
    for step in copied:
        for statement in (_COPY_STEP, *_COPY_MESSAGES):
            yield from tx.execute(statement, id=source.id, new=wanted.id, position=step.position)
        if step.kind == "start":
            yield from _rename_children(tx, wanted, step)
    if first is not None and first.kind == "call" and first.child in wanted.children:
        waited = {"run": wanted.id, "position": first.position, "name": first.name, "now": tx.now}
        yield from tx.execute(_WAIT_FOR, **waited, child=wanted.children[first.child])


def _check_children(tx: Transaction, wanted: Fork) -> Script[None]:
    """`NotFound` for a run that does not exist, `Conflict` for one that is of another function than the run whose place it takes."""
    for old, new in wanted.children.items():
        there, instead = (yield from find(tx, old)), (yield from find(tx, new))
        if instead is None:
            raise NotFound(f"run {new!r} not found, so it cannot take the place of {old!r}")
        if there is not None and there.workflow != instead.workflow:
            raise Conflict(
                f"run {new!r} is one of {instead.workflow}, and so cannot take the place of {old!r} ({there.workflow})"
            )


def _first_use(steps: list[Step], children: dict[str, str]) -> Step | None:
    """The first operation whose outcome came from a run that is replaced: it is executed again."""
    used = [step for step in steps if step.child in children and step.seq is not None and step.kind != "start"]
    return min(used, key=_seq, default=None)


def _seq(step: Step) -> int:
    return _OPEN if step.seq is None else step.seq


def _rename_children(tx: Transaction, wanted: Fork, step: Step) -> Script[None]:
    """Have a copied operation say that it started the runs that take the places of others."""
    ids: list[str] = json.loads(step.output or "[]")
    renamed = [wanted.children.get(run_id, run_id) for run_id in ids]
    if renamed != ids:
        child = wanted.children.get(step.child, step.child) if step.child is not None else None
        values = {"run": wanted.id, "position": step.position, "output": json.dumps(renamed), "child": child}
        yield from tx.execute(RENAME_STARTED, **values)


def _first_anew(source: Run, steps: list[Step], fork: Fork) -> Step | None:
    """The first operation that the fork makes anew; None: all of them."""
    if fork.after_failure:
        seq = forgotten_from(steps, source.error)
        seq = last_recorded(steps) if seq is None else seq
        return next((step for step in steps if step.seq == seq and seq is not None), None)
    if fork.step is None or fork.past_last:
        return None
    at = [step for step in steps if step.position == fork.step]
    named = [step for step in steps if step.name == fork.step and step.seq is not None]
    if not at and not named:
        places = [f"{step.position} ({step.name})" for step in steps[:20] if step.seq is not None]
        raise NotFound(
            f"run {source.id!r} has recorded nothing at {fork.step!r}; it has {', '.join(places) or 'recorded nothing yet'}"
        )
    return at[0] if at else named[-1]


def _copied(steps: list[Step], first: Step | None, *, everything: bool = False) -> list[Step]:
    """The outcomes that came before, with the marks that were set until then. Of an unfinished one: all outcomes there are."""
    if everything:
        return [step for step in steps if step.completed is not None]
    if first is None:
        return []
    before = [step for step in steps if step.seq is not None and (first.seq is None or step.seq < first.seq)]
    last = max((step.completed or 0 for step in before), default=-1)
    marks = [step for step in steps if step.seq is None and step.completed is not None and step.completed <= last]
    return before + marks
