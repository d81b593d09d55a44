"""Verbs inside an open transaction: what they start, send, cancel and change takes effect only if the transaction
commits. `app.joined` opens such a block around a transaction of the user's.

On a blocking connection a verb never waits for the loop, so `block` executes it on the calling thread. On an async
connection the verb awaits the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from mainspring.app.caller.outside import Outside, all_started, encoded, entry_of, of_all, others_than, sign, together
from mainspring.app.coroutines import Mapped
from mainspring.app.functions.invocation import later_run, new_runs
from mainspring.engine.operations.messages import unknown_error
from mainspring.engine.operations.transactions import TransactionCall
from mainspring.engine.replay.branches import ours
from mainspring.engine.replay.context import StepScope, TransactionScope, current, here
from mainspring.errors import InTransaction as InTransactionError
from mainspring.errors import InvalidInput
from mainspring.operations.runs.actions import RunActions
from mainspring.store.external import sqlalchemy
from mainspring.store.external.colours import called, finished, on_thread
from mainspring.store.external.deferred import Cancel
from mainspring.store.external.join import nested
from mainspring.store.messages import Entry, Post
from mainspring.store.verbs.messages import send
from mainspring.store.verbs.start import start
from mainspring.store.verbs.stop import cancel
from mainspring.store.writes import Send, Start, Started

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence

    from mainspring.app.caller.protocol import Args, Kwargs, Parts, StartedRun, Work
    from mainspring.app.functions.invocation import Invocation
    from mainspring.app.functions.options import Options
    from mainspring.app.runtime import Runtime
    from mainspring.engine.registry import Function
    from mainspring.engine.replay.execution import Execution, Quota
    from mainspring.model.clock import Clock
    from mainspring.model.runs import Ending, NewRun, StepKind
    from mainspring.store.external.deferred import Deferred
    from mainspring.store.external.join import Inside
    from mainspring.store.external.transactions import Session
    from mainspring.store.messages import Outgoing, Table
    from mainspring.store.protocol import Store
    from mainspring.store.transaction import Script, Transaction

R = TypeVar("R")
S = TypeVar("S")
W = TypeVar("W", Start, Send)
T = TypeVar("T")


class InTransaction:
    """An open transaction: the library's own, or a transaction of the user's that was joined."""

    __slots__ = ("_scope", "runtime")

    def __init__(self, runtime: Runtime, scope: TransactionScope) -> None:
        self.runtime = runtime
        self._scope = scope

    @property
    def quota(self) -> Quota | None:
        return self._scope.quota

    @property
    def _execution(self) -> Execution | None:
        return self._scope.step.execution if self._scope.step is not None else None

    # -- colours -------------------------------------------------------------------------------------------------------
    @property
    def held_clock(self) -> Clock | None:
        return None

    def refuse_coroutine(self, instead: str) -> None:
        """Refuse nothing: the transaction's function knows whether it can await a coroutine."""

    def block(self, work: Coroutine[Any, Any, R]) -> R:
        return self.runtime.block(work) if self._scope.is_async else finished(work)

    # -- functions -----------------------------------------------------------------------------------------------------
    def call(self, function: Function, args: Args, kwargs: Kwargs, options: Options) -> Coroutine[Any, Any, Any]:
        if function.kind == "workflow":
            _refuse_waiting(f"{function.name}(…)")
        if function.kind == "transaction":
            made = TransactionCall.of(self.runtime.registry.known(function), args, kwargs)
            return self._nested(made) if function.is_async else self._nested_on_thread(made)
        return Outside(self.runtime).call(function, args, kwargs, options)

    def call_blocking(self, function: Function, args: Args, kwargs: Kwargs, options: Options) -> Any:
        if function.kind == "workflow":
            _refuse_waiting(f"{function.name}(…)")
        if function.kind == "transaction":
            made = TransactionCall.of(self.runtime.registry.known(function), args, kwargs)
            return self.runtime.block(self._nested(made)) if function.is_async else finished(self._nested(made))
        return Outside(self.runtime).call_blocking(function, args, kwargs, options)

    @ours
    async def _nested(self, call: TransactionCall) -> Any:
        """Execute a transaction as part of the open one. If it fails, only its own work is rolled back."""
        scope = self._scope
        session = _open(scope, call)
        _refuse_other_colour(scope, call)
        await session.flush()  # so that a rollback of the nested one keeps earlier work
        with _deferred_together(scope.deferred):
            async with nested(session.joined.executor):
                value = await (call.made(session) if call.is_async else called(call.made)(session))
                await session.flush()
        return value

    @ours
    async def _nested_on_thread(self, call: TransactionCall) -> Any:
        return await asyncio.to_thread(lambda: finished(self._nested(call)))

    # -- starting ------------------------------------------------------------------------------------------------------
    def start(self, calls: Sequence[Invocation]) -> Coroutine[Any, Any, list[StartedRun]]:
        texts = encoded(self.runtime, calls)
        ids = [self._id_for(call, detached=call.options.parentless) for call in calls]
        return self._start(new_runs(self.runtime, calls, texts, ids, self._execution))

    def start_later(self, call: Invocation, text: str, time: Callable[[int], int]) -> Coroutine[Any, Any, StartedRun]:
        row = later_run(self.runtime, call, text, self._id_for(call, detached=True), self._execution, time=time)
        return Mapped(self._start([row]), lambda started: started[0])

    def _id_for(self, call: Invocation, *, detached: bool) -> str | None:
        step = self._scope.step
        return call.options.id or (step.next_start(detached=detached) if step is not None else None)

    @ours
    async def _start(self, rows: list[NewRun]) -> list[StartedRun]:
        scope = self._scope
        if (deferred := self._deferred()) is not None:
            deferred.starts += rows
            return all_started(rows, [Started(created=True, workflow=row.workflow, state=row.state) for row in rows])
        ex = self._execution
        asker = ex.id if ex is not None and not scope.recorded else None
        ops = self._sealed([Start(row, asker) for row in rows])
        return all_started(rows, await self._join(lambda tx: start(tx, ops)))

    # -- waiting -------------------------------------------------------------------------------------------------------
    def result(self, *_: Any, **__: Any) -> NoReturn:
        _refuse_waiting("result()")

    def results(self, *_: Any, **__: Any) -> NoReturn:
        _refuse_waiting("gather(…)")

    def first(self, *_: Any, **__: Any) -> NoReturn:
        _refuse_waiting("first(…)")

    def get_event(self, *_: Any, **__: Any) -> NoReturn:
        _refuse_waiting("get_event")

    def read_stream(self, *_: Any, **__: Any) -> NoReturn:
        _refuse_waiting("read_stream")

    def ask(self, *_: Any, **__: Any) -> NoReturn:
        raise InTransactionError("a transaction cannot wait for an answer; ask before or after it")

    # -- messages ------------------------------------------------------------------------------------------------------
    def send(self, posts: list[Post], label: str) -> Coroutine[Any, Any, None]:
        del label
        if self._scope.step is not None:
            sign(self._scope.step, posts)
        return self._send_all(list(posts), None)

    def publish(self, verb: StepKind, table: Table, key: str, value: str | None) -> Coroutine[Any, Any, None]:
        step = self._scope.step
        if step is None:
            here()  # says that there is no run
            raise AssertionError(verb)
        ex = step.execution
        fence = None if self._scope.recorded else (ex.id, ex.engine.worker_id, ex.epoch)
        return self._send_all([entry_of(step, table, key, value)], fence)

    @ours
    async def _send_all(self, outgoing: list[Outgoing], fence: tuple[str, str, int] | None) -> None:
        if not outgoing:
            return
        if (deferred := self._deferred()) is not None:
            posts = [each for each in outgoing if isinstance(each, Post)]
            started = {run.id for run in deferred.starts}
            wanted = [post.run for post in posts if post.run not in started]
            there = await self._endings(wanted)
            _all_known([run for run in dict.fromkeys(wanted) if run not in there])
            deferred.posts += posts
            deferred.entries += [each for each in outgoing if isinstance(each, Entry)]
            return
        run, owner, epoch = fence or (outgoing[0].run, None, 0)
        (op,) = self._sealed([Send(run, outgoing, owner, epoch)])
        _all_known((await self._join(lambda tx: send(tx, op))).unknown)

    # -- the store -----------------------------------------------------------------------------------------------------
    @ours
    async def read(self, label: str, kind: Any, question: Callable[[Store], R]) -> R:
        """Read from the store outside of the transaction, whose uncommitted changes are not seen."""
        del label, kind
        store = self.runtime.connection().store
        return await self._beside(question, store) if self._scope.is_async else question(store)

    def read_inside(self, label: str, kind: Any, question: Work[R]) -> Coroutine[Any, Any, R]:
        if self._scope.elsewhere is not None:
            return self.read(label, kind, lambda store: question(store, None))
        return self.change(label, kind, question)

    def change(self, label: str, kind: Any, work: Work[R]) -> Coroutine[Any, Any, R]:
        del label, kind
        step = self._scope.step
        origin = step.next_start(detached=True) if step is not None else None
        return self._within(lambda inside: work(inside, origin))

    def change_in_parts(self, label: str, enter: Work[S], parts: Parts[S]) -> Coroutine[Any, Any, dict[str, str]]:
        return self.change(label, dict[str, str], lambda inside, origin: together(enter, parts, inside, origin))

    def change_found(self, label: str, *_: Any, **__: Any) -> NoReturn:
        raise InTransactionError(
            f"{label} by filter cannot be part of a transaction; do it before or after, or give ids"
        )

    def cancel(self, label: str, ids: Sequence[str], reason: str | None) -> Coroutine[Any, Any, dict[str, bool]]:
        del label
        return of_all(ids, self._cancel(others_than(self._execution, ids), reason))

    @ours
    async def _cancel(self, ids: list[str], reason: str | None) -> dict[str, bool]:
        if (deferred := self._deferred()) is not None:
            deferred.cancels.append(Cancel(ids, reason))
            there = await self._endings(ids)
            return {run: run in there and there[run] is None for run in ids}
        return await self._join(lambda tx: cancel(tx, ids, reason))

    def terminate(self, ids: Sequence[str], reason: str | None) -> Coroutine[Any, Any, dict[str, bool]]:
        found, clock = list(dict.fromkeys(ids)), self.runtime.clock
        return self._within(lambda inside: dict(RunActions(inside, clock).terminate(found, reason)))

    # -- the transaction -----------------------------------------------------------------------------------------------
    @ours
    async def _within(self, work: Callable[[Inside], R]) -> R:
        """Do `work` with the part of the store that is available inside the transaction."""
        scope = self._scope
        _refuse_over(scope)
        if scope.elsewhere is not None:
            raise InTransactionError(
                "what this would change is in the app's own database, and this transaction is in another one; "
                "do it before or after"
            )
        return await scope.joined.within_async(work)

    async def _join(self, work: Callable[[Transaction], Script[T]]) -> T:
        """Execute `work` in the transaction: at once on a blocking connection, awaited on an async one."""
        _refuse_over(self._scope)
        return await self._scope.joined.run_async(work, self.runtime.clock.now())

    async def _endings(self, ids: Iterable[str]) -> dict[str, Ending | None]:
        """Return the endings of runs in the app's own database, for a transaction in another database."""
        endings, wanted = self.runtime.connection().store.endings, list(ids)
        return await self._beside(endings, wanted) if self._scope.is_async else endings(wanted)

    def _sealed(self, ops: list[W]) -> list[W]:
        """Return writes as they are stored: sealed if the app has a payload codec."""
        payloads = self.runtime.connection().store.transactions.payloads
        if payloads is None:
            return ops
        from mainspring.store.sealing.records import sealed  # noqa: PLC0415  (only where values are sealed)

        return sealed(payloads, ops)

    async def _beside(self, work: Callable[..., R], *args: Any) -> R:
        """Do blocking work on a thread. Wall-clock time does not pass until the work is done."""
        self.runtime.clock.busy()
        try:
            return await on_thread(work, *args)
        finally:
            self.runtime.clock.idle()

    def _deferred(self) -> Deferred | None:
        """Return the deferred writes of a transaction in another database. Without a run that records them they could be lost."""
        scope = self._scope
        _refuse_over(scope)
        if scope.elsewhere is not None and not scope.recorded:
            raise InTransactionError(
                "this transaction is in another database than the app's, and no run records it, so what it starts, sends or cancels "
                "could be lost between the two; call it in a workflow, or start it as a run of its own"
            )
        return scope.deferred


def _all_known(unknown: Sequence[str]) -> None:
    if unknown:
        raise unknown_error(list(unknown))


def _refuse_over(scope: TransactionScope) -> None:
    if scope.over:
        raise InTransactionError("the transaction has ended; call this inside it")


@contextlib.contextmanager
def _deferred_together(deferred: Deferred | None) -> Generator[None]:
    """Forget the writes that a nested transaction deferred if that transaction fails."""
    mark = deferred.mark() if deferred is not None else None
    try:
        yield
    except BaseException:
        if deferred is not None and mark is not None:
            deferred.back_to(mark)
        raise


def _open(scope: TransactionScope, call: TransactionCall) -> Session:
    """Return the open transaction that a call inside it becomes part of."""
    if scope.elsewhere is not None and call.database is not None and scope.database is call.database:
        return scope.elsewhere
    if (scope.elsewhere is not None) or call.database is not None:
        raise InTransactionError(
            f"the transaction {call.name!r} is called inside one in another database; one of them could commit without the other. "
            "Call them one after the other"
        )
    if scope.session is None:
        raise InTransactionError(
            "a transaction of the app's is called inside app.joined(…), whose connection is yours; "
            "call it outside, or call its function's statements on your connection"
        )
    return scope.session


def _refuse_other_colour(scope: TransactionScope, call: TransactionCall) -> None:
    if scope.is_async is not call.is_async:
        mine, outer = ("async def", "def") if call.is_async else ("def", "async def")
        raise InTransactionError(
            f"the transaction {call.name!r} is `{mine}` and the one it is called in `{outer}`: their connections are not of one "
            "kind. Write both in one way"
        )


def _refuse_waiting(what: str) -> NoReturn:
    """Refuse to wait for a run inside a transaction: the run could itself wait for the transaction."""
    raise InTransactionError(
        f"{what} waits, and a transaction is open here: it would hold up every other writer meanwhile, and could wait for itself. "
        "Start it here, and wait for it after the transaction"
    )


class JoinedBlock:
    """`with app.joined(connection):` or `async with`. The runs started inside exist only if the user's transaction commits."""

    def __init__(self, runtime: Runtime, connection: Any) -> None:
        if connection is None:
            raise InvalidInput("joined takes the connection or session of your transaction, not None")
        self._runtime = runtime
        self._connection = connection
        self._scope: TransactionScope | None = None

    def __enter__(self) -> Self:
        step = _step_here()
        beside = not self._runtime.is_connected and sqlalchemy.has_begun(self._connection)
        joined = self._runtime.connection(beside=beside).store.transactions.join(self._connection)
        joined.check()
        self._scope = TransactionScope(self._runtime, joined, step=step)
        self._scope.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._scope is not None:
            self._scope.__exit__(*exc)

    async def __aenter__(self) -> Self:
        beside = not self._runtime.is_connected and await sqlalchemy.has_begun_async(self._connection)
        await self._runtime.connected(beside=beside)
        self.__enter__()
        if self._scope is not None:
            try:
                await self._scope.joined.check_async()
            except BaseException:
                self.__exit__()
                raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.__exit__(*exc)


def _step_here() -> StepScope | None:
    """Return the step in which the block is entered, if any. In a workflow's body and in a transaction it is an error."""
    where = current.get()
    if where is None or isinstance(where, StepScope):
        return where
    if isinstance(where, TransactionScope):
        raise InTransactionError("a transaction is open here already, and everything inside is part of it")
    raise InTransactionError(
        "in a workflow's own body a transaction would be executed again by every replay; "
        "use @app.transaction, or join inside a step"
    )
