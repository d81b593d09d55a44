"""Asking the operations something: outside runs plainly, inside a run once, with the answer recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.app.changing import recorded
from mainspring.codec import value_codec
from mainspring.engine import flows
from mainspring.engine.branches import ours
from mainspring.engine.context import Line, StepScope, TransactionScope, current
from mainspring.engine.drivers import drive
from mainspring.engine.flows import StepCall
from mainspring.engine.retry import Retry

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from mainspring.app.runtime import Runtime
    from mainspring.engine.execution import Execution
    from mainspring.operations.schedule_views import HasSchedules

R = TypeVar("R")
S = TypeVar("S")


def consult(
    runtime: Runtime, label: str, kind: Any, question: Callable[[HasSchedules, str | None], R], *, changes: bool
) -> Coroutine[Any, Any, R]:
    """Ask the schedules `question`, which blocks. It also gets a name for the run and operation that ask, the same when they
    ask again.

    Inside a run the answer, of type `kind`, is recorded, so that a replay gets the same; what `changes` something is recorded by
    the very commit that changes it, and so happens once, whatever crashes. Inside a transaction it is part of it.
    """
    where = current.get()
    if isinstance(where, TransactionScope):
        asker = where.step.next_start(detached=True) if where.step is not None else None
        return runtime.transacting.within(where, lambda inside: question(inside, asker))
    if not isinstance(where, Line):
        origin = where.next_start(detached=True) if isinstance(where, StepScope) else None
        return _ask(runtime, question, origin)
    line = where
    line.execution.outstanding += 1
    position = line.next_position()
    origin = f"{line.execution.run.uid}-{position}"
    if changes:
        return recorded(line.execution, position, label, kind, lambda inside: question(inside, origin))

    async def step() -> R:
        return await _ask(runtime, question, origin)

    codec = value_codec(kind, f"the answer of {label}")
    call = StepCall(label, step, (), {}, True, Retry(1), None, False, False, codec)  # noqa: FBT003
    return drive(line.execution, flows.step(line.execution, position, call))


def consult_in_parts(
    runtime: Runtime,
    label: str,
    kind: Any,
    enter: Callable[[HasSchedules, str | None], S],
    parts: Sequence[Callable[[S], dict[str, str]]],
) -> Coroutine[Any, Any, dict[str, str]]:
    """Make several changes, one after the other, of what `enter` makes of a store: inside a run each is recorded by the commit that
    makes it, so that none of them is large; elsewhere they are one.
    """
    where = current.get()
    if isinstance(where, Line):
        ex, position = where.execution, where.take_position()

        def change(number: int) -> Coroutine[Any, Any, dict[str, str]]:
            place = f"{position}.{number}" if number else position
            origin = f"{ex.run.uid}-{place}"
            return recorded(
                ex, place, label, kind, lambda inside: parts[number](enter(inside, origin)) if parts else {}
            )

        return _one_by_one(ex, change, len(parts))

    def together(store: HasSchedules, origin: str | None) -> dict[str, str]:
        answers: dict[str, str] = {}
        for part in parts:
            answers |= part(enter(store, origin))
        return answers

    return consult(runtime, label, kind, together, changes=True)


@ours
async def _one_by_one(
    ex: Execution, change: Callable[[int], Coroutine[Any, Any, dict[str, str]]], count: int
) -> dict[str, str]:
    answers = await change(0)
    for number in range(1, count):
        ex.outstanding += 1
        answers |= await change(number)
    return answers


@ours
async def _ask(runtime: Runtime, question: Callable[[HasSchedules, str | None], R], origin: str | None) -> R:
    connection = await runtime.connected()
    return await runtime.in_thread(question, connection.store, origin)
