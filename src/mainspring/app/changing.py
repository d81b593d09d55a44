"""Changing something in the store: outside runs plainly, inside a run together with its record, inside a transaction with that.

So a worker that dies in the middle has either done nothing or recorded what it did. Whoever goes on with the run neither forks,
retries nor deletes a second time, and gets the answer that the first one got.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.codec import value_codec
from mainspring.engine import flows
from mainspring.engine.branches import ours
from mainspring.engine.context import Line, TransactionScope, current
from mainspring.engine.drivers import drive
from mainspring.engine.flows import StepCall
from mainspring.engine.retry import Retry
from mainspring.engine.transactions import TransactionCall, transaction
from mainspring.errors import InTransaction
from mainspring.operations.many import Found, act_on_batch, kin_of
from mainspring.store.transactions import Wants

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from mainspring.app.runtime import Runtime
    from mainspring.engine.execution import Execution
    from mainspring.store.joined import Inside
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


def change_found(
    runtime: Runtime,
    label: str,
    find: Callable[[Store, str | None], Found],
    act: Callable[[Store | Inside, list[str]], dict[str, bool]],
    *,
    fences: bool = False,
) -> Coroutine[Any, Any, dict[str, bool]]:
    """Do something to all runs that `find` finds, given where to look, a batch at a time; those it was done to.

    Inside a run each batch is found by one operation and acted on by the next, which is recorded by the commit that does it. The run
    itself, and those it descends from, come last, since it may be over then. `fences`: it is certain to be, and records nothing more.
    """
    where = current.get()
    if isinstance(where, TransactionScope):
        raise InTransaction(f"{label} by filter cannot be part of a transaction; do it before or after, or give ids")
    if not isinstance(where, Line):
        return _found_plainly(runtime, find, act)
    batches = _Batches(where.execution, where.take_position(), label, act)
    return batches.all(lambda store, place: _kin_last(store, where.execution, find(store, place)), fences=fences)


def terminate(
    runtime: Runtime, ids: list[str], act: Callable[[Store | Inside, list[str]], dict[str, bool]]
) -> Coroutine[Any, Any, dict[str, bool]]:
    """End runs at once. One that ends itself, or one that it descends from, cannot record that: it does so last."""
    where = current.get()
    if isinstance(where, Line) and (where.execution.run.parent is not None or where.execution.id in ids):
        named = Found(list(dict.fromkeys(ids)))
        found = change_found(runtime, "runs.terminate", lambda _store, _place: named, act, fences=True)
        return _of_all(ids, found)
    return change(runtime, "runs.terminate", dict[str, bool], lambda store: act(store, list(dict.fromkeys(ids))))


@ours
async def _of_all(ids: list[str], work: Coroutine[Any, Any, dict[str, bool]]) -> dict[str, bool]:
    done = await work
    return {run_id: done.get(run_id, False) for run_id in ids}


@ours
async def _found_plainly(
    runtime: Runtime,
    find: Callable[[Store, str | None], Found],
    act: Callable[[Store, list[str]], dict[str, bool]],
) -> dict[str, bool]:
    def work(store: Store) -> dict[str, bool]:
        found = find(store, None)
        done = act_on_batch(lambda ids: act(store, ids), found.ids)
        while found.more is not None:
            found = find(store, found.more)
            done |= act_on_batch(lambda ids: act(store, ids), found.ids)
        return done

    return await _plainly(runtime, work)


def _kin_last(store: Store, ex: Execution, found: Found) -> Found:
    kin = kin_of(store, ex.run) & {*found.ids}
    return Found([run_id for run_id in found.ids if run_id not in kin], found.more, sorted(kin))


class _Batches:
    """Operations of a run that belong together: the first has the position of the call, the others one below it."""

    def __init__(
        self, ex: Execution, position: str, label: str, act: Callable[[Store | Inside, list[str]], dict[str, bool]]
    ) -> None:
        self._ex = ex
        self._position = position
        self._label = label
        self._act = act
        self._made = 0

    @ours
    async def all(self, find: Callable[[Store, str | None], Found], *, fences: bool) -> dict[str, bool]:
        done: dict[str, bool] = {}
        kin: list[str] = []
        place: str | None = None
        while True:
            found = await self._find(find, place)
            kin += found.kin
            done |= await self._change(found.ids)
            place = found.more
            if place is None:
                break
        if fences and kin:
            return done | await self._ask(self._label, dict[str, bool], lambda store: self._act(store, kin))
        return done | await self._change(kin)

    def _find(self, find: Callable[[Store, str | None], Found], place: str | None) -> Coroutine[Any, Any, Found]:
        return self._ask("runs.find", Found, lambda store: find(store, place))

    async def _change(self, ids: list[str]) -> dict[str, bool]:
        if not ids:
            return {}
        return await recorded(
            self._ex,
            self._next(),
            self._label,
            dict[str, bool],
            lambda inside: act_on_batch(lambda batch: self._act(inside, batch), ids),
        )

    def _ask(self, name: str, kind: Any, question: Callable[[Store], R]) -> Coroutine[Any, Any, R]:
        """A question as a step: it is asked again if nothing was recorded."""
        ex = self._ex

        async def step() -> R:
            answer: R = await ex.engine.in_thread(question, ex.engine.store)
            return answer

        codec = value_codec(kind, f"the answer of {name}")
        call = StepCall(name, step, (), {}, True, Retry(1), None, False, False, codec)  # noqa: FBT003
        return drive(ex, flows.step(ex, self._next(), call))

    def _next(self) -> str:
        self._made += 1
        if self._made == 1:
            return self._position
        self._ex.outstanding += 1
        return f"{self._position}.{self._made - 1}"


@ours
async def _plainly(runtime: Runtime, work: Callable[[Store], R]) -> R:
    connection = await runtime.connected()
    return await runtime.in_thread(work, connection.store)
