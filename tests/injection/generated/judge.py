"""What must be true of a program, whatever happened to it: its result, what its code got to see, and what it left behind."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from mainspring.model.states import State
from tests.injection.generated.interpreter import DISMISSED
from tests.injection.seams import is_left_well

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mainspring.model.runs import Run, Step
    from tests.injection.generated.program import Node, Program
    from tests.injection.record import Record
    from tests.injection.scene import Trace

_BRUTAL = {"kill", "takeover", "terminate"}
"""After these a step that was under way may be unrecorded."""
_FORGETTING = {"retry", "resume", "fork", "complete", "fail", "reschedule"}


# -- results -----------------------------------------------------------------------------------------------------------
class Results:
    """Which values the nodes of a program may return."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def may_end_with(self, value: Any) -> bool:
        return self._may(self._program.generations[-1], value, len(self._program.generations) - 1)

    def _may(self, node: Node, value: Any, generation: int) -> bool:
        check: Callable[[Node, Any, int], bool] = getattr(self, f"_{node.kind}")
        return check(node, value, generation)

    def _all(self, nodes: tuple[Node, ...], values: Any, generation: int) -> bool:
        if not isinstance(values, list):
            return False
        found: list[Any] = values  # pyright: ignore[reportUnknownVariableType]
        return len(found) == len(nodes) and all(
            self._may(node, value, generation) for node, value in zip(nodes, found, strict=True)
        )

    def _seq(self, node: Node, value: Any, generation: int) -> bool:
        return self._all(node.parts, value, generation)

    _gather = _hand_over = _spawn_join = _seq

    def _step(self, node: Node, value: Any, generation: int) -> bool:
        if node.given.get("raises"):
            return False
        interrupted = node.given["how"] == "once" and value == "interrupted"
        return interrupted or bool(value == f"{generation}.{node.number}")

    def _sleep(self, _node: Node, value: Any, _generation: int) -> bool:
        return bool(value == "slept")

    def _receive(self, node: Node, value: Any, _generation: int) -> bool:
        return isinstance(value, int) or (value is None and node.given["timeout"] is not None)

    def _never(self, _node: Node, _value: Any, _generation: int) -> bool:
        return False

    def _number(self, node: Node, value: Any, _generation: int) -> bool:
        return bool(value == node.number)

    _set_event = _stream = _post = _number

    def _patched(self, _node: Node, value: Any, _generation: int) -> bool:
        return value is True

    _look = _patched

    def _draw(self, _node: Node, value: Any, _generation: int) -> bool:
        return bool(value == "drawn")

    def _transaction(self, node: Node, value: Any, generation: int) -> bool:
        return bool(value == f"{generation}.{node.number}")

    _batch = _flaky = _transaction

    def _ask(self, node: Node, value: Any, _generation: int) -> bool:
        answers = [node.number * 2, DISMISSED] if self._program.retried else [node.number * 2]
        return value in [[answer, "served"] for answer in answers]

    def _race(self, node: Node, value: Any, generation: int) -> bool:
        winners: list[int]
        winners, values = value
        return bool(winners) and self._all(tuple(node.parts[number] for number in winners), values, generation)

    def _spawn_cancel(self, node: Node, value: Any, generation: int) -> bool:
        found, how = value
        return self._may(node.parts[1], found, generation) and self._how(node.parts[0], how, generation)

    def _how(self, node: Node, how: Any, generation: int) -> bool:
        if how == "failed":
            return can_fail(node)
        return how == "cancelled" or (how[0] == "done" and self._may(node, how[1], generation))

    def _shield(self, node: Node, value: Any, generation: int) -> bool:
        return value[0] in {"in time", "timed out"} and self._may(node.parts[0], value[1], generation)

    def _timeout(self, node: Node, value: Any, generation: int) -> bool:
        return value == ["timed out", None] or (
            value[0] == "in time" and self._may(node.parts[0], value[1], generation)
        )

    def _try(self, node: Node, value: Any, generation: int) -> bool:
        if value[0] == "caught":
            return can_fail(node.parts[0]) and self._may(node.parts[1], value[1], generation)
        return value[0] == "body" and self._may(node.parts[0], value[1], generation)

    def _swallow(self, node: Node, value: Any, generation: int) -> bool:
        if value[0] == "cancelled":
            return self._may(node.parts[1], value[1], generation)
        return value[0] == "body" and self._may(node.parts[0], value[1], generation)

    def _undo(self, node: Node, value: Any, generation: int) -> bool:
        if value[0] == "undone":
            return bool(node.given["fails"]) or can_fail(node.parts[0])
        return not node.given["fails"] and self._may(node.parts[0], value[1], generation)

    def _called(self, node: Node, value: Any, _generation: int) -> bool:
        return self._may(node.parts[0], value, 0)

    _debounced = _called

    def _later(self, node: Node, value: Any, generation: int) -> bool:
        return self._may(node.parts[0], value[0], 0) and self._may(node.parts[1], value[1], generation)

    def _child_cancel(self, node: Node, value: Any, generation: int) -> bool:
        return self._how(node.parts[0], value[0], 0) and self._may(node.parts[1], value[1], generation)

    def _children(self, node: Node, value: Any, _generation: int) -> bool:
        if node.given["how"] == "first":
            first: int = value[0]
            return self._may(node.parts[first], value[1], 0)
        return self._all(node.parts, value, 0)


def can_fail(node: Node) -> bool:
    """Whether an exception may come out of it."""
    if node.kind == "step":
        return bool(node.given.get("raises"))
    if node.kind == "flaky":
        return True
    if node.kind == "try":
        return any(can_fail(part) for part in node.parts[1:]) or is_flaky(node)
    if node.kind == "undo":
        return is_flaky(node)
    if node.kind == "spawn_cancel":
        return can_fail(node.parts[1])
    return any(can_fail(part) for part in node.parts)


def is_flaky(node: Node) -> bool:
    """Whether it may end an attempt of its run."""
    return any(each.kind == "flaky" for each in node.walk())


# -- effects -----------------------------------------------------------------------------------------------------------
def optional_labels(program: Program) -> set[str]:
    """Effects that depend on who is first."""
    found: set[str] = set()
    for generation, root in enumerate(program.generations):
        found |= _optional(root, generation, perhaps=False)
    return found


def _optional(node: Node, generation: int, *, perhaps: bool) -> set[str]:
    label = f"{generation}.{node.number}"
    found = {label, f"{label} done"} if perhaps else set[str]()
    if node.kind == "undo":
        found |= {f"{label} undone"}
    for place, part in enumerate(node.parts):
        inside = 0 if _is_child(node, place) else generation
        found |= _optional(part, inside, perhaps=perhaps or _depends(node, place))
    return found


def _is_child(node: Node, place: int) -> bool:
    return node.kind in {"called", "children", "debounced"} or (node.kind in {"later", "child_cancel"} and place == 0)


def _depends(node: Node, place: int) -> bool:
    if node.kind in {"race", "timeout", "swallow"} or (node.kind == "children" and node.given["how"] == "first"):
        return True
    if node.kind in {"spawn_cancel", "child_cancel"}:
        return place == 0 or can_fail(node.parts[1])
    if node.kind == "try":
        return place == 1 or can_fail(node)
    return any(can_fail(part) for part in node.parts)


# -- what happened -----------------------------------------------------------------------------------------------------
def judge(program: Program, record: Record, runs: dict[str, Run], steps: dict[str, list[Step]]) -> Iterator[str]:
    """What is wrong, beside what the auditor finds in every case."""
    yield from _executions(record)
    if not program.retried:  # an attempt that fails undoes what the next one does again
        yield from _undone(record, runs, steps)
    yield from _rows(program, record, runs)
    yield from _messages(program, record)
    if not program.retried:  # the next attempt does not begin again what was cut off with the one before
        yield from _interrupted(record, runs)


def _executions(record: Record) -> Iterator[str]:
    """The code must see in each replay what it saw before."""
    has = record.injection.has
    if has & _FORGETTING:
        return
    for of, executions in record.ledger.traces.items():
        longest: Trace = []
        for trace in executions:
            same = _agreement(longest, trace)
            # The last outcome may have been seen before it was committed, and what the code made of it as well.
            unsure = _begin_of_last(longest)
            if same < min(len(trace), unsure):
                yield f"replay: {of} saw {longest[same]} first, and then {trace[same]} in its place, after {longest[:same]}"
                return
            if len(trace) >= len(longest) or same < len(longest):
                longest = trace if len(trace) >= same else longest


def _agreement(first: Trace, second: Trace) -> int:
    for number, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return number
    return min(len(first), len(second))


def _begin_of_last(trace: Trace) -> int:
    """The place of the last outcome: from there on all entries have the time of it."""
    return next((number for number, entry in enumerate(trace) if entry[2] == trace[-1][2]), 0)


def _undone(record: Record, runs: dict[str, Run], steps: dict[str, list[Step]]) -> Iterator[str]:
    """What was done in a block that did not end well was undone, once."""
    if record.injection.has & ({"terminate"} | _FORGETTING):
        return
    for (run_id, label), scope in record.ledger.scopes.items():
        if run_id not in runs:
            continue
        found = Counter(
            step.output
            for step in steps[run_id]
            if step.kind == "step" and step.completed is not None and not step.interrupted
        )
        done, undone = found[f'"{label} done"'], found[f'"{label} undone"']
        if done and undone != (0 if is_left_well(steps[run_id], scope) else 1):
            yield f"undo: {run_id} left block {label} {'well' if undone else 'otherwise than well'}, and it was undone {undone} times"
        if undone and not record.ledger.count("end")[run_id, f"{label} done"]:
            yield f"undo: {run_id} undid {label}, which was never done"


def _rows(program: Program, record: Record, runs: dict[str, Run]) -> Iterator[str]:
    """Each transaction was committed once."""
    again = made_again(program)
    for name in ("rows", "rows elsewhere"):
        rows = runs.get(name)
        if rows is None or rows.state is not State.SUCCEEDED:
            continue
        labels: list[str] = json.loads(rows.output or "[]")
        for label, times in Counter(labels).items():
            if label.endswith("rolled back"):
                yield f"rows: {label} is there"
            if times > 1 and label.split()[-1] not in again and not record.injection.has & _FORGETTING:
                yield f"rows: transaction {label} was committed {times} times"


def made_again(program: Program) -> set[str]:
    """Operations that a retry of the run makes once more: after the exception that ended the attempt, or undone with a block."""
    if not program.retried:
        return set()
    found: set[str] = set()
    for node in program.walk():
        parts = {"try": node.parts[1:], "swallow": node.parts[1:], "undo": node.parts}.get(node.kind, ())
        parts = node.parts if node.kind in {"spawn_join", "spawn_cancel", "shield", "later", "race"} else parts
        labels = [each.number for part in parts for each in part.walk()]
        found |= {f"{generation}.{number}" for generation in range(2) for number in labels}
    return found


def _messages(program: Program, record: Record) -> Iterator[str]:
    """Nobody receives a message twice, in whichever generation of its run."""
    receiving = {node.number for node in program.walk() if node.kind == "receive"}
    found: Counter[tuple[str, int]] = Counter()
    attempts = {of.rpartition(" ")[0]: of for of in record.ledger.traces}
    for of in attempts.values():
        last = max(record.ledger.traces[of], key=len)
        found.update((of.split()[0], value) for number, value, _ in last if number in receiving and value is not None)
    for (run_id, value), times in found.items():
        if times > 1 and not record.injection.has & _FORGETTING:
            yield f"message: {run_id} received {value} {times} times"


def _interrupted(record: Record, runs: dict[str, Run]) -> Iterator[str]:
    if record.injection.has & (_BRUTAL | _FORGETTING):
        return
    for run in runs.values():
        if run.output is not None and '"interrupted"' in run.output:
            yield f"interrupted: {run.id} had a step cut off, and nothing was killed: {run.output}"
