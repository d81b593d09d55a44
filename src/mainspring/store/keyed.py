"""Starting a run under a key that an unfinished run may have: one conversation for all stores.

The unique index on keys is the mutex: whoever inserts first has the key, and whoever comes second finds that run, locks it and
decides. Nothing is ever dropped: a holder that ends in between is simply not there any more, and the insert is made again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.model.keys import Holder, KeyMode, Meeting, due_then, meet
from mainspring.model.states import LIVE, State
from mainspring.store.ops import Started, Verdict

if TYPE_CHECKING:
    from mainspring.model.records import NewRun, Run, Step
    from mainspring.store.ops import Write, Written

T = TypeVar("T")
Rows = list[tuple[Any, ...]]
Talk = Generator[tuple[str, dict[str, Any]], Rows, T]

_LIVE = ", ".join(f"'{state}'" for state in sorted(LIVE))
HOLDER = f"""
  SELECT id, workflow, state, due, since, attempts, latest, asked FROM runs WHERE key = :key AND state IN ({_LIVE})
"""
_COLUMNS = (
    *("workflow", "kind", "input", "state", "due", "timeout", "deadline", "version", "attributes"),
    *("queue", "priority", "partition", "retry"),
)
_FORGET = "DELETE FROM steps WHERE run = :id"
_ONCE = '{"attempts": 1}'


def is_last(run: Run) -> bool:
    """Whether a run has lost its key to another one: then there is no attempt after the one that is under way."""
    return run.key is None and run.retry is not None and json.loads(run.retry) == json.loads(_ONCE)


class KeyTexts:
    """The statements in one database's words: `cast` says how a parameter that becomes a column is written there."""

    def __init__(self, cast: Callable[[str], str], holder: str = HOLDER) -> None:
        changes = ", ".join(f"{column} = {cast(column)}" for column in _COLUMNS)
        self.holder = holder
        self.update = f"""
  UPDATE runs SET {changes}, attempts = 0, error = NULL, reason = NULL, stranded = NULL, fingerprint = '', asked = :asked
  WHERE id = :id
"""
        self.lose_key = f"UPDATE runs SET key = NULL, retry = coalesce({cast('retry')}, retry) WHERE id = :id"


def meet_holder(run: NewRun, now: int, texts: KeyTexts) -> Talk[Started | None]:
    """A run was asked for and its key is taken. None: not any more, so it can be inserted."""
    rows = yield texts.holder, {"key": run.key}
    if not rows:
        return None
    holder_id, workflow, state, due, since, attempts, latest, asked = rows[0]
    holder = Holder(holder_id, workflow, state, due, since is not None, attempts, latest, asked)
    meeting = meet(run.key_mode, holder, run.uid, now)
    if meeting is Meeting.BESIDE:
        once = None if run.key_mode == KeyMode.DEBOUNCE else _ONCE
        yield texts.lose_key, {"id": holder.id, "retry": once}
        return None
    if meeting is Meeting.UPDATE:
        yield from _update(run, holder, now, texts)
        due = due_then(run.key_mode, holder, run.due)
        return Started(created=False, workflow=run.workflow, state=_state(due, now), id=holder.id)
    refused = meeting is Meeting.REFUSED
    return Started(created=False, workflow=holder.workflow, state=State(holder.state), id=holder.id, refused=refused)


def _update(run: NewRun, holder: Holder, now: int, texts: KeyTexts) -> Talk[None]:
    """What it recorded in attempts that failed belongs to what was asked for before."""
    due = due_then(run.key_mode, holder, run.due)
    values = {column: getattr(run, column) for column in _COLUMNS}
    values |= {"id": holder.id, "asked": run.uid, "due": due, "state": str(_state(due, now))}
    yield texts.update, values
    if holder.attempts:
        yield _FORGET, {"id": holder.id}


def _state(due: int, now: int) -> State:
    return State.SCHEDULED if due > now else State.QUEUED


def begin_all(op: Write, recorded: str | None, start: Callable[[NewRun], Started], answer: Written) -> bool:
    """Start the runs of a write, and note in its answer what became of each. False: one could not be, so nothing may stay.

    `recorded` is the output of its step as it stands now. If it names other runs than were asked for, this very write was made
    before, and only the acknowledgement was lost.
    """
    if recorded is not None and op.step.output is not None and json.loads(recorded) != json.loads(op.step.output):
        answer.became = dict(zip(json.loads(op.step.output), json.loads(recorded), strict=True))
        return True
    taken, became = dict[str, str](), dict[str, str]()
    answer.taken, answer.became = taken, became
    for run in op.starts:
        started = start(run)
        if started.refused:
            answer.refused = {run.id: started.id}
        elif started.id:
            became[run.id] = started.id
        elif not started.created:
            taken[run.id] = started.workflow
        if started.refused or started.workflow != run.workflow:
            answer.verdict = Verdict.TAKEN
            return False
    return True


def renamed(step: Step, became: Mapping[str, str]) -> dict[str, Any]:
    """What a step that starts runs has recorded, once it is known which runs they became."""
    ids: list[str] = json.loads(step.output or "[]")
    child = became.get(step.child, step.child) if step.child is not None else None
    return {
        "run": step.run,
        "position": step.position,
        "output": json.dumps([became.get(each, each) for each in ids]),
        "child": child,
    }


RECORDED = "SELECT output FROM steps WHERE run = :run AND position = :position"
RENAME = "UPDATE steps SET output = :output, child = :child WHERE run = :run AND position = :position"
