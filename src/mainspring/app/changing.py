"""Changing something in the store: outside runs plainly, inside a run together with its record, inside a transaction with that.

So a worker that dies in the middle has either done nothing or recorded what it did. Whoever goes on with the run neither forks,
retries nor deletes a second time, and gets the answer that the first one got.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.codec import value_codec
from mainspring.engine.branches import ours
from mainspring.engine.context import Line, TransactionScope, current
from mainspring.engine.drivers import drive
from mainspring.engine.transactions import TransactionCall, transaction
from mainspring.store.transactions import Wants

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from mainspring.app.runtime import Runtime
    from mainspring.engine.execution import Execution
    from mainspring.store.joining import Inside
    from mainspring.store.protocol import Store

R = TypeVar("R")


def change(runtime: Runtime, label: str, kind: Any, work: Callable[[Store | Inside], R]) -> Coroutine[Any, Any, R]:
    """Do `work`, which blocks, with the store, or with the part of it that is inside the transaction that we are in."""
    where = current.get()
    if isinstance(where, TransactionScope):
        return runtime.transacting.within(where, work)
    if not isinstance(where, Line):
        return _plainly(runtime, work)
    where.execution.outstanding += 1
    return recorded(where.execution, where.next_position(), label, kind, work)


def recorded(
    ex: Execution, position: str, label: str, kind: Any, work: Callable[[Inside], R]
) -> Coroutine[Any, Any, R]:
    """Do `work` as an operation of a run, in the transaction that records it."""
    result = value_codec(kind, f"the answer of {label}")
    call = TransactionCall(label, _inside(work), (), {}, False, result, Wants.TX, 0, None, kind="step")  # noqa: FBT003
    return drive(ex, transaction(ex, position, call))


def _inside(work: Callable[[Inside], R]) -> Callable[[object], R]:
    """A function for a transaction, which works with what there is of the store inside it."""

    def made(_: object) -> R:
        scope = current.get()
        assert isinstance(scope, TransactionScope)  # noqa: S101
        return scope.joined.within(work)

    return made


@ours
async def _plainly(runtime: Runtime, work: Callable[[Store], R]) -> R:
    connection = await runtime.connected()
    return await runtime.in_thread(work, connection.store)
