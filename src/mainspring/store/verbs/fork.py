"""Fork runs: a new run begins with a copy of what another one recorded before a step."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from msgspec import Struct, field

from mainspring.errors import Conflict, NotFound
from mainspring.model.retry_scope import FORGOTTEN, ONCE, forgotten_from, last_recorded
from mainspring.model.states import State
from mainspring.store.sql.dialect import insert_one
from mainspring.store.sql.messages import PUBLISHED, PUBLISHED_COLUMNS, TABLES_OF_VALUES
from mainspring.store.sql.records import STEP_COLUMNS
from mainspring.store.sql.steps import RENAME_STARTED
from mainspring.store.verbs.lookup import find, steps_of

if TYPE_CHECKING:
    from mainspring.model.runs import Run, Step
    from mainspring.store.transaction import Script, Transaction

_FORK_COLUMNS = (
    *("id", "uid", "workflow", "kind", "input", "state", "due", "created", "timeout", "version", "epoch"),
    *("attributes", "forked_from", "forked_at", "queue", "priority", "partition", "retry", "generation", "tick"),
)
_FORK = insert_one("runs", _FORK_COLUMNS)
_COPIED = ", ".join(column for column in STEP_COLUMNS if column not in {"run", "epoch"})
_COPY_STEP = f"""
  INSERT INTO steps (run, epoch, {_COPIED})
  SELECT CAST(:new AS text), 1, {_COPIED} FROM steps WHERE run = :id AND position = :position
"""
_COPY_MESSAGES = tuple(
    f"""
  INSERT INTO {table} ({PUBLISHED})
  SELECT CAST(:new AS text), {", ".join(PUBLISHED_COLUMNS[1:])} FROM {table} WHERE run = :id AND position = :position
"""
    for table in TABLES_OF_VALUES
)


_WAIT_FOR = """
  INSERT INTO steps (run, position, kind, name, started, epoch, child)
  VALUES (:run, :position, 'call', :name, :now, 1, :child)
"""
_OPEN = 2**62
"""The seq of an operation without an outcome, to compare with others."""


class Fork(Struct, frozen=True):
    """A new run that continues from an operation of another one. `step` is the position of the first operation to execute again.

    Without `step`, all operations are executed again. Other fields that are None are copied from the original.
    """

    source: str
    id: str
    uid: str
    step: str | None = None
    after_failure: bool = False
    """Begin with the operation that ended the original, or else with the last one that it recorded."""
    version: str | None = None
    queue: str | None = None
    timeout: int | None = None
    past_last: bool = False
    """Begin after the last operation that the original recorded."""
    children: dict[str, str] = field(default_factory=dict[str, str])
    """Runs that replace children of the original, by the ids of those. The fork waits for the replacements."""


def fork(tx: Transaction, wanted: Fork) -> Script[None]:
    """Create the new run and copy what the original recorded before the fork point."""
    source = yield from find(tx, wanted.source)
    assert source is not None  # noqa: S101  (the caller has looked it up)
    steps = yield from steps_of(tx, source.id)
    yield from _check_children(tx, wanted)
    first = _first_to_repeat(source, steps, wanted)
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
        "epoch": 1,  # as if claimed before: a claim then reads its steps
        "attributes": source.attributes,
        "forked_from": source.id,
        "forked_at": first.position if first is not None else "end" if wanted.past_last else None,
        "queue": wanted.queue if wanted.queue is not None else source.queue,
        "priority": source.priority,
        "partition": source.partition,
        "retry": source.retry,
        "generation": source.generation if copied else 0,  # positions begin with it, also copied ones
        "tick": _tick_of(source),
    }
    there = yield from find(tx, wanted.id)
    if there is not None and there.uid == wanted.uid:
        return  # a repetition after a lost response
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


def _tick_of(source: Run) -> str | None:
    """The tick of the original, for code that asks for it. The fork itself is not a run of the schedule."""
    if source.tick is None:
        return None
    return json.dumps({"schedule": source.schedule, "started": source.started, **json.loads(source.tick)})


def _check_children(tx: Transaction, wanted: Fork) -> Script[None]:
    """Raise `NotFound` for a replacement that does not exist, and `Conflict` for one of another function than the replaced run."""
    for old, new in wanted.children.items():
        there, instead = (yield from find(tx, old)), (yield from find(tx, new))
        if instead is None:
            raise NotFound(f"run {new!r} not found, so it cannot replace {old!r}")
        if there is not None and there.workflow != instead.workflow:
            raise Conflict(
                f"run {new!r} is one of {instead.workflow}, and so cannot replace {old!r} ({there.workflow})"
            )


def _first_use(steps: list[Step], children: dict[str, str]) -> Step | None:
    """The first operation whose outcome came from a replaced run. The fork executes it again."""
    used = [step for step in steps if step.child in children and step.seq is not None and step.kind != "start"]
    return min(used, key=_seq, default=None)


def _seq(step: Step) -> int:
    return _OPEN if step.seq is None else step.seq


def _rename_children(tx: Transaction, wanted: Fork, step: Step) -> Script[None]:
    """Write the ids of the replacements into a copied operation that started the replaced runs."""
    ids: list[str] = json.loads(step.output or "[]")
    renamed = [wanted.children.get(run_id, run_id) for run_id in ids]
    if renamed != ids:
        child = wanted.children.get(step.child, step.child) if step.child is not None else None
        values = {"run": wanted.id, "position": step.position, "output": json.dumps(renamed), "child": child}
        yield from tx.execute(RENAME_STARTED, **values)


def _first_to_repeat(source: Run, steps: list[Step], fork: Fork) -> Step | None:
    """The first operation that the fork executes again; None: all of them."""
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
    """The operations to copy: those with an outcome before `first`, and the marks set until then.

    If `first` is unfinished: all operations with an outcome.
    """
    # The fork has ids and keys of its own, and executes again what it does not copy.
    steps = [step for step in steps if not step.position.startswith((FORGOTTEN, ONCE))]
    if everything:
        return [step for step in steps if step.completed is not None]
    if first is None:
        return []
    before = [step for step in steps if step.seq is not None and (first.seq is None or step.seq < first.seq)]
    last = max((step.completed or 0 for step in before), default=-1)
    marks = [step for step in steps if step.seq is None and step.completed is not None and step.completed <= last]
    return before + marks
