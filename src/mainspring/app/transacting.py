"""Transactions from outside runs, and the verbs that become part of a transaction they are used in."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.engine.branches import ours
from mainspring.engine.context import StepScope, TransactionScope, current
from mainspring.engine.talking import unknown_error
from mainspring.engine.transactions import TransactionCall, pause
from mainspring.errors import InTransaction
from mainspring.store.deferred import Cancel
from mainspring.store.messages import Entry, Post
from mainspring.store.ops import Start, Started
from mainspring.store.transactions import Again

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

    from mainspring.app.functions import Call
    from mainspring.app.runtime import Runtime
    from mainspring.model.records import NewRun
    from mainspring.store.conversations import Talk
    from mainspring.store.deferred import Deferred
    from mainspring.store.joined import Inside
    from mainspring.store.joining import Fence
    from mainspring.store.messages import Say
    from mainspring.store.places import AwaitedSession, ElsewhereSession
    from mainspring.store.transactions import Session

R = TypeVar("R")
T = TypeVar("T")

_NESTED = "mainspring_nested"


@ours
async def ready(value: T) -> T:
    """Something that is done already, for whoever awaits it."""
    return value


def is_ready(work: Coroutine[Any, Any, Any]) -> bool:
    """Whether a coroutine has nothing left to wait for, so that it needs no loop."""
    return getattr(work, "cr_code", None) is ready.__code__


def run_ready(work: Coroutine[Any, Any, R]) -> R:
    """The value of a coroutine that has nothing to wait for."""
    try:
        work.send(None)
    except StopIteration as done:
        found: R = done.value
        return found
    raise AssertionError("it waits after all")


class Transacting:
    """What an app does with transactions besides having runs make them."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    # -- making transactions -------------------------------------------------------------------------------------------
    def outside(self, call: Call[Any]) -> Any:
        """Make a transaction that no run records: from plain code, from a step, or as part of the one it is called in."""
        where = current.get()
        prepared = TransactionCall.of(call.function, call.args, call.kwargs)
        if isinstance(where, TransactionScope):
            return self._nested(where, prepared)
        place = prepared.database or self._runtime.connection().store.transactions
        failed = 0
        while True:
            try:
                return place.transact(lambda session: self._work(prepared, session), prepared.wants, prepared.isolation)
            except Again:
                failed += 1
                time.sleep(pause(failed, self._runtime.ids.new()))

    def _work(self, call: TransactionCall, session: Session | ElsewhereSession) -> Any:
        scope = self._scope(call, session)
        token = current.set(scope)
        try:
            value = call.made(session)
        finally:
            scope.over = True
            current.reset(token)
        session.settle()
        return value

    def _nested(self, scope: TransactionScope, call: TransactionCall) -> Any:
        """A transaction inside another one is part of it; if it fails, only what it did itself is undone."""
        session: Any = _open(scope, call)
        _refuse_other_colour(scope, call)
        tongue: Any = scope.elsewhere.tongue if scope.elsewhere is not None else scope.joined.tongue
        mark = scope.deferred.mark() if scope.deferred is not None else None
        tongue.ask(f"SAVEPOINT {_NESTED}", {})
        try:
            value = call.made(session)
            session.settle()
        except BaseException:
            with contextlib.suppress(InTransaction):  # all of it is rolled back already
                tongue.ask(f"ROLLBACK TO SAVEPOINT {_NESTED}", {})
                tongue.ask(f"RELEASE SAVEPOINT {_NESTED}", {})
            if scope.deferred is not None and mark is not None:
                scope.deferred.back_to(mark)
            raise
        tongue.ask(f"RELEASE SAVEPOINT {_NESTED}", {})
        return value

    @ours
    async def await_outside(self, call: Call[Any]) -> Any:
        """The same for an `async def` transaction."""
        where = current.get()
        prepared = TransactionCall.of(call.function, call.args, call.kwargs)
        if isinstance(where, TransactionScope):
            return await self._await_nested(where, prepared)
        connection = await self._runtime.connected()
        place = prepared.database

        async def work(session: Session | AwaitedSession) -> Any:
            scope = self._scope(prepared, session)
            token = current.set(scope)
            try:
                value = await prepared.made(session)
            finally:
                scope.over = True
                current.reset(token)
            session.settle()
            return value

        failed = 0
        while True:
            try:
                if place is not None:
                    return await place.atransact(work, prepared.isolation)
                return await connection.store.transactions.atransact(work, prepared.wants, prepared.isolation)
            except Again:
                failed += 1
                await asyncio.sleep(pause(failed, self._runtime.ids.new()))

    async def _await_nested(self, scope: TransactionScope, call: TransactionCall) -> Any:
        session = _open(scope, call)
        _refuse_other_colour(scope, call)
        tongue: Any = scope.elsewhere.tongue if scope.elsewhere is not None else scope.joined.async_tongue
        mark = scope.deferred.mark() if scope.deferred is not None else None
        await tongue.ask(f"SAVEPOINT {_NESTED}", {})
        try:
            value = await call.made(session)
        except BaseException:
            await tongue.ask(f"ROLLBACK TO SAVEPOINT {_NESTED}", {})
            await tongue.ask(f"RELEASE SAVEPOINT {_NESTED}", {})
            if scope.deferred is not None and mark is not None:
                scope.deferred.back_to(mark)
            raise
        await tongue.ask(f"RELEASE SAVEPOINT {_NESTED}", {})
        return value

    def _scope(self, call: TransactionCall, session: Any) -> TransactionScope:
        where = current.get()
        step = where if isinstance(where, StepScope) else None
        if call.database is not None:
            return TransactionScope(self._runtime, None, elsewhere=session, place=call.database, step=step)
        return TransactionScope(self._runtime, None, session=session, step=step)

    # -- verbs that join -----------------------------------------------------------------------------------------------
    def start(
        self, scope: TransactionScope, runs: list[NewRun], then: Callable[[list[Started]], R]
    ) -> Coroutine[Any, Any, R]:
        """Start runs as part of a transaction: they are there when, and only if, it commits."""
        if (deferred := _deferred(scope)) is not None:
            deferred.starts += runs
            return ready(then([Started(created=True, workflow=run.workflow, state=run.state) for run in runs]))
        asker = scope.step.execution.id if scope.step is not None and not scope.recorded else None
        talk = scope.joined.joining.start([Start(run, asker) for run in runs], self._runtime.clock.now())
        return self._join(scope, talk, then)

    def cancel(
        self, scope: TransactionScope, ids: Sequence[str], reason: str | None
    ) -> Coroutine[Any, Any, dict[str, bool]]:
        """Cancel runs when, and only if, the transaction commits."""
        if (deferred := _deferred(scope)) is not None:
            deferred.cancels.append(Cancel(list(ids), reason))
            return self._look(scope, ids, lambda there: {run: run in there and there[run] is None for run in ids})
        talk = scope.joined.joining.cancel(ids, reason, self._runtime.clock.now())
        return self._join(scope, talk, lambda done: done)

    def say(self, scope: TransactionScope, says: list[Say], fence: Fence | None = None) -> Coroutine[Any, Any, None]:
        """Say something to runs, or on behalf of the one we are in, when, and only if, the transaction commits."""
        if (deferred := _deferred(scope)) is not None:
            posts = [say for say in says if isinstance(say, Post)]
            born = {run.id for run in deferred.starts}
            wanted = [post.run for post in posts if post.run not in born]

            def said(there: Mapping[str, object]) -> None:
                _all_known([run for run in dict.fromkeys(wanted) if run not in there])
                deferred.posts += posts
                deferred.entries += [say for say in says if isinstance(say, Entry)]

            return self._look(scope, wanted, said)
        talk = scope.joined.joining.say(says, self._runtime.clock.now(), fence)
        return self._join(scope, talk, _all_known)

    def _look(
        self, scope: TransactionScope, ids: Sequence[str], then: Callable[[Mapping[str, object]], R]
    ) -> Coroutine[Any, Any, R]:
        """See which runs there are in the app's own database, for a transaction in another one."""
        if scope.is_async:
            return _then(self._runtime.in_thread(self._runtime.connection().store.endings, ids), then)
        return ready(then(self._runtime.connection().store.endings(ids)))

    def within(self, scope: TransactionScope, work: Callable[[Inside], R]) -> Coroutine[Any, Any, R]:
        """Do something with what there is of the store inside the transaction, as part of it."""
        _refuse_over(scope)
        if scope.elsewhere is not None:
            raise InTransaction(
                "what this would change is in the app's own database, and this transaction is in another one; "
                "do it before or after"
            )
        if scope.joined.is_async:
            return _then(scope.joined.awithin(work), lambda done: done)
        return ready(scope.joined.within(work))

    def _join(self, scope: TransactionScope, talk: Talk[T], then: Callable[[T], R]) -> Coroutine[Any, Any, R]:
        """At once on a blocking connection, when awaited on another one."""
        _refuse_over(scope)
        if scope.joined.is_async:
            return _then(scope.joined.ado(talk), then)
        return ready(then(scope.joined.do(talk)))


@ours
async def _then(work: Awaitable[T], then: Callable[[T], R]) -> R:
    return then(await work)


def after(work: Coroutine[Any, Any, T], then: Callable[[T], R]) -> Coroutine[Any, Any, R]:
    """What `then` makes of the answer. What is done already stays so."""
    return ready(then(run_ready(work))) if is_ready(work) else _then(work, then)


def _all_known(unknown: list[str]) -> None:
    if unknown:
        raise unknown_error(unknown)


def _refuse_over(scope: TransactionScope) -> None:
    if scope.over:
        raise InTransaction("the transaction is over; what was to be part of it has to be done inside it")


def _deferred(scope: TransactionScope) -> Deferred | None:
    """What a transaction in another database wants to happen here. Only for one that a run records it is certain to happen."""
    _refuse_over(scope)
    if scope.elsewhere is not None and not scope.recorded:
        raise InTransaction(
            "this transaction is in another database than the app's, and no run records it, so what it starts, sends or cancels "
            "could be lost between the two; call it in a workflow, or start it as a run of its own"
        )
    return scope.deferred


def _open(scope: TransactionScope, call: TransactionCall) -> Session | ElsewhereSession | AwaitedSession:
    """The open transaction that a call inside it becomes part of."""
    if scope.elsewhere is not None and call.database is not None and scope.place is call.database:
        return scope.elsewhere
    if (scope.elsewhere is not None) or call.database is not None:
        raise InTransaction(
            f"the transaction {call.name!r} is called inside one in another database; one of them could commit without the other. "
            "Call them one after the other"
        )
    if scope.session is None:
        raise InTransaction(
            "a transaction of the app's is called inside app.joined(…), whose connection is yours; "
            "call it outside, or call its function's statements on your connection"
        )
    return scope.session


def _refuse_other_colour(scope: TransactionScope, call: TransactionCall) -> None:
    if scope.is_async is not call.is_async:
        mine, outer = ("async def", "def") if call.is_async else ("def", "async def")
        raise InTransaction(
            f"the transaction {call.name!r} is `{mine}` and the one it is called in `{outer}`: their connections are not of one "
            "kind. Write both in one way"
        )


def refuse_waiting(what: str) -> None:
    """Inside a transaction, waiting for a run would be waiting for something that may itself wait for the transaction."""
    if isinstance(current.get(), TransactionScope):
        raise InTransaction(
            f"{what} waits, and a transaction is open here: it would hold up everybody else meanwhile, and could wait for itself. "
            "Start it here, and wait for it after the transaction"
        )
