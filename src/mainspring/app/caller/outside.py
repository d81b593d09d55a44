"""Verbs in plain code, outside runs: they act at once, and nothing records them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.app.caller.mistakes import named_after, refuse_blocking_on_loop, warn_if_a_run_is_lost
from mainspring.app.caller.protocol import StartedRun
from mainspring.app.coroutines import Mapped, fastest, gathered
from mainspring.app.functions.invocation import Invocation, later_run, new_runs
from mainspring.app.waits import Subscription, value_of
from mainspring.engine.effects import key_error, taken_error
from mainspring.engine.operations import questions
from mainspring.engine.operations.messages import closed_error, no_value_error, unknown_error
from mainspring.engine.operations.transactions import TransactionCall, pause
from mainspring.engine.replay.branches import ours
from mainspring.engine.replay.context import TransactionScope
from mainspring.engine.users_code import error_of
from mainspring.errors import MainspringError, NotFound, NotInRun, NotSerializable, StoreUnavailable
from mainspring.operations.runs.actions import RunActions
from mainspring.operations.runs.bulk import act_on
from mainspring.store.external.colours import finished
from mainspring.store.external.tx import Again
from mainspring.store.messages import Entry
from mainspring.store.sealing.payloads import readable
from mainspring.store.writes import Send, Start, Verdict

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
    from contextlib import AbstractContextManager

    from mainspring.app.caller.protocol import ActOn, Args, Find, Kwargs, Parts, Work
    from mainspring.app.functions.options import Duration, Options
    from mainspring.app.runtime import Connection, Runtime
    from mainspring.codec import ValueCodec
    from mainspring.engine.registry import Function
    from mainspring.engine.replay.context import StepScope
    from mainspring.engine.replay.execution import Execution, Quota
    from mainspring.model.clock import Clock
    from mainspring.model.runs import NewRun, StepKind
    from mainspring.model.states import State
    from mainspring.store.external.join import Inside
    from mainspring.store.external.transactions import Session
    from mainspring.store.messages import Message, Post, PublishedValue, Reading, Table
    from mainspring.store.protocol import Store
    from mainspring.store.sql.dialect import Sql
    from mainspring.store.transaction import Values
    from mainspring.store.writes import Started

R = TypeVar("R")
S = TypeVar("S")

_PAGE = 100


class Outside:
    """Plain code outside of runs. A step works in the same way, but the runs and messages it sends have ids of the step."""

    __slots__ = ("runtime",)

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    # -- what a step says differently ----------------------------------------------------------------------------------
    @property
    def quota(self) -> Quota | None:
        return None

    @property
    def _step(self) -> StepScope | None:
        return None

    @property
    def _execution(self) -> Execution | None:
        return None

    @property
    def _patient(self) -> bool:
        """Whether starts and messages wait for a database that is away, and are repeated, instead of failing."""
        return False

    def _next_id(self, *, detached: bool) -> str | None:
        """The id of the next run that is started here, or None for a random one."""
        del detached
        return None

    def _sign(self, posts: list[Post]) -> None:
        """Set the sender of messages."""

    def _waiting(self) -> AbstractContextManager[None]:
        """The context of a wait for another run."""
        return contextlib.nullcontext()

    # -- colours -------------------------------------------------------------------------------------------------------
    @property
    def held_clock(self) -> Clock | None:
        return None

    def refuse_coroutine(self, instead: str) -> None:
        """Refuse nothing: plain code may await."""

    def block(self, work: Coroutine[Any, Any, R]) -> R:
        return self.runtime.block(work)

    # -- functions -----------------------------------------------------------------------------------------------------
    def call(self, function: Function, args: Args, kwargs: Kwargs, options: Options) -> Coroutine[Any, Any, Any]:
        if function.kind == "workflow":
            known = self.runtime.registry.known(function)
            work = self._call_workflow(Invocation(self.runtime, known, args, kwargs, options))
            return named_after(function, work)
        if function.kind == "transaction":
            made = TransactionCall.of(self.runtime.registry.known(function), args, kwargs)
            return self._transact_async(made) if function.is_async else asyncio.to_thread(self._transact, made)
        warn_if_a_run_is_lost(self.runtime, function)
        if not function.is_async:
            return asyncio.to_thread(function.call_plainly, *args, **kwargs)
        plain: Coroutine[Any, Any, Any] = function.call_plainly(*args, **kwargs)
        return plain

    def call_blocking(self, function: Function, args: Args, kwargs: Kwargs, options: Options) -> Any:
        if function.is_async:
            refuse_blocking_on_loop(f"await {function.name}(…)")
            return self.runtime.block(self.call(function, args, kwargs, options))
        if function.kind == "step":
            warn_if_a_run_is_lost(self.runtime, function)
            return function.call_plainly(*args, **kwargs)
        refuse_blocking_on_loop(f"await {function.name}.aio(…)")
        if function.kind == "transaction":
            return self._transact(TransactionCall.of(self.runtime.registry.known(function), args, kwargs))
        return self.runtime.block(self.call(function, args, kwargs, options))

    @ours
    async def _call_workflow(self, call: Invocation) -> Any:
        """Start a run and wait for its result. Cancelling the wait does not cancel the run."""
        connection = await self.runtime.connected()
        (started,) = await self._start([call], [call.encode()])
        engine = self.runtime.engine
        # A run that was begun on this loop a moment ago cannot have ended, so the lookup is skipped.
        fresh = (
            started.created
            and engine is not None
            and engine.loop is asyncio.get_running_loop()
            and started.id in engine.executions
        )
        with self._waiting():
            ending = await connection.ending(started.id, None, look_first=not fresh)
        return value_of(started.id, call.function.codec.result, ending)

    # -- transactions --------------------------------------------------------------------------------------------------
    def _transact(self, call: TransactionCall) -> Any:
        """Execute a `def` transaction that no run records, on this thread."""
        return finished(self._transact_async(call))

    @ours
    async def _transact_async(self, call: TransactionCall) -> Any:
        """Execute a transaction that no run records, and retry it if another one made the database roll it back.

        For a `def` function this does not suspend (`store/external/colours.py`).
        """
        locks: list[tuple[Sql, Values]] = []

        async def work(session: Session) -> Any:
            if locks:
                await session.joined.lock(locks)
            with self._scope(call, session):
                try:
                    made = call.made(session)
                    value = await made if call.is_async else made
                except StopIteration as error:  # it would end this coroutine
                    raise error_of(error, f"transaction {call.name!r}") from error
            await session.flush()
            return value

        failed = 0
        while True:
            try:
                return await self._make(call, work)
            except Again as again:
                failed += 1
                again.add_to(locks)
                seconds = pause(failed, self.runtime.ids.new())
                await asyncio.sleep(seconds) if call.is_async else time.sleep(seconds)  # noqa: ASYNC251  (on a thread)

    async def _make(self, call: TransactionCall, work: Callable[[Session], Coroutine[Any, Any, R]]) -> R:
        """Open a transaction in the database it belongs to, do `work` in it, and commit it."""
        if call.database is not None:
            return await call.database.transact(work, call.wants, call.isolation)
        connection = await self.runtime.connected() if call.is_async else self.runtime.connection()
        transactions = connection.store.transactions
        if call.is_async:
            return await transactions.atransact(work, call.wants, call.isolation)
        if call.within is not None:
            return transactions.transact_within(call.within, lambda session: finished(work(session)))
        return transactions.transact(lambda session: finished(work(session)), call.wants, call.isolation)

    def _scope(self, call: TransactionCall, session: Any) -> TransactionScope:
        if call.database is not None:
            return TransactionScope(self.runtime, None, elsewhere=session, database=call.database, step=self._step)
        return TransactionScope(self.runtime, None, session=session, step=self._step)

    # -- starting ------------------------------------------------------------------------------------------------------
    def start(self, calls: Sequence[Invocation]) -> Coroutine[Any, Any, list[StartedRun]]:
        return self._start(calls, encoded(self.runtime, calls))

    def start_later(self, call: Invocation, text: str, time: Callable[[int], int]) -> Coroutine[Any, Any, StartedRun]:
        return self._start_later(call, text, time)

    @ours
    async def _start(self, calls: Sequence[Invocation], texts: list[str]) -> list[StartedRun]:
        connection = await self.runtime.connected()
        ids = [call.options.id or self._next_id(detached=call.options.parentless) for call in calls]
        return await self._store(connection, new_runs(self.runtime, calls, texts, ids, self._execution))

    @ours
    async def _start_later(self, call: Invocation, text: str, time: Callable[[int], int]) -> StartedRun:
        connection = await self.runtime.connected()
        run_id = call.options.id or self._next_id(detached=True)
        run = later_run(self.runtime, call, text, run_id, self._execution, time=time)
        (started,) = await self._store(connection, [run])
        return started

    @ours
    async def _store(self, connection: Connection, runs: list[NewRun]) -> list[StartedRun]:
        """Store runs in one commit. Those that may begin in this process, do."""
        ex, engine = self._execution, self.runtime.engine
        starts = [Start(run, None if ex is None else ex.id) for run in runs]
        if engine is not None and engine.on_loop:
            answers = await engine.local_starts.store(starts, in_run=ex is not None)
        else:
            answers = await connection.committer.commit_all(starts, patient=self._patient)
        if self.runtime.destinations:
            await self.runtime.in_thread(self.runtime.destinations.check, connection.store)
        return all_started(runs, answers)

    # -- waiting -------------------------------------------------------------------------------------------------------
    @ours
    async def result(self, run_id: str, codec: ValueCodec | None, timeout: Duration | None) -> Any:
        connection = await self.runtime.connected()
        with self._waiting():
            ending = await connection.ending(run_id, timeout)
        if codec is None:
            codec = await self._codec_of(connection, run_id)
        return value_of(run_id, codec, ending)

    async def _codec_of(self, connection: Connection, run_id: str) -> ValueCodec:
        """Return the codec of a run's result: that of its function, if this app has the function."""
        run = None
        if not self.runtime.has_no_code:
            run = await self.runtime.in_thread(connection.store.run, run_id)
        return self.runtime.result_codec(None if run is None else run.workflow)

    def results(self, runs: Sequence[tuple[str, ValueCodec | None]]) -> Coroutine[Any, Any, list[Any]]:
        return gathered([self.result(run_id, codec, None) for run_id, codec in runs], None)

    def first(self, ids: Sequence[str]) -> Coroutine[Any, Any, int]:
        return fastest([self._ended(run_id) for run_id in ids], None)

    @ours
    async def _ended(self, run_id: str) -> None:
        connection = await self.runtime.connected()
        with self._waiting():
            ending = await connection.ending(run_id, None)
        if ending is None:
            raise NotFound(f"run {run_id!r} not found")

    # -- messages ------------------------------------------------------------------------------------------------------
    def send(self, posts: list[Post], label: str) -> Coroutine[Any, Any, None]:
        del label
        self._sign(posts)
        return self._send(posts)

    @ours
    async def _send(self, posts: list[Post]) -> None:
        if not posts:
            return
        connection = await self.runtime.connected()
        try:
            answer = await connection.committer.commit(Send(posts[0].run, list(posts)), patient=self._patient)
        except (ValueError, TypeError, ArithmeticError) as error:
            raise NotSerializable(f"the database refused a message: {error}") from error
        except StoreUnavailable as error:
            keyed = all(post.key is not None for post in posts)
            again = "with its key, it is received once" if keyed else "without a key, it may be received twice"
            raise type(error)(f"{error}; the message may have been stored: sent again {again}") from error
        if answer.verdict is Verdict.UNKNOWN:
            raise unknown_error(answer.unknown)

    def publish(self, verb: StepKind, table: Table, key: str, value: str | None) -> Coroutine[Any, Any, None]:
        del table, key, value
        raise NotInRun(f"run.{verb} is available only inside a workflow or step that an app is executing")

    @ours
    async def get_event(self, run_id: str, key: str, codec: ValueCodec, timeout: Duration | None) -> Any:
        connection = await self.runtime.connected()
        with self._waiting(), Subscription(connection.subscriptions, connection.clock, run_id, timeout) as subscription:
            while True:
                found: Reading = await self.runtime.in_thread(connection.store.messages.event, run_id, key)
                if found.state is None:
                    raise NotFound(f"run {run_id!r} not found")
                if found.entries:
                    return codec.decode(readable(found.entries[0].value or "null", f"event {key!r} of run {run_id!r}"))
                if found.state.ended or not await subscription.wait():
                    return None

    async def read_stream(
        self, run_id: str, key: str, codec: ValueCodec, offset: int, timeout: Duration | None
    ) -> AsyncIterator[Any]:
        while entries := await self._next_entries(run_id, key, offset, timeout):
            for entry in entries:
                if entry.value is None:
                    return
                yield codec.decode(readable(entry.value, f"stream {key!r} of run {run_id!r}"))
            offset += len(entries)

    async def _next_entries(
        self, run_id: str, key: str, offset: int, timeout: Duration | None
    ) -> Sequence[PublishedValue]:
        """Return the next page of a stream as soon as it has entries; an empty page when the run has ended."""
        connection = await self.runtime.connected()
        with self._waiting(), Subscription(connection.subscriptions, connection.clock, run_id, timeout) as subscription:
            while True:
                found: Reading = await self.runtime.in_thread(
                    connection.store.messages.stream, run_id, key, offset, _PAGE
                )
                if found.state is None:
                    raise NotFound(f"run {run_id!r} not found")
                if found.entries or found.state.ended:
                    return found.entries
                if not await subscription.wait():
                    raise no_value_error(run_id, key, offset)

    def ask(self, post: Post, codec: ValueCodec, timeout: Duration | None) -> Coroutine[Any, Any, Any]:
        self._sign([post])
        return self._ask(post, codec, timeout)

    @ours
    async def _ask(self, post: Post, codec: ValueCodec, timeout: Duration | None) -> Any:
        connection = await self.runtime.connected()
        post.key = key = post.key or self.runtime.ids.new()
        with (
            self._waiting(),
            Subscription(connection.subscriptions, connection.clock, post.run, timeout) as subscription,
        ):
            sent = await connection.committer.commit(Send(post.run, [post]), patient=self._patient)
            if sent.verdict is Verdict.UNKNOWN:
                raise NotFound(f"run {post.run!r} not found")
            found: tuple[Message | None, State | None] | None
            while True:
                found = await self.runtime.in_thread(connection.store.messages.asked, post.run, key)
                if questions.answered(found):
                    break
                if not await subscription.wait():
                    found = None
                    break
        failure = questions.failure_of(post.run, post.topic, found)
        if failure is not None:
            raise failure
        assert found is not None  # noqa: S101
        assert found[0] is not None  # noqa: S101
        return codec.decode(readable(found[0].answer or "null", f"the answer of run {post.run!r}"))

    # -- the store -----------------------------------------------------------------------------------------------------
    @ours
    async def read(self, label: str, kind: Any, question: Callable[[Store], R]) -> R:
        del label, kind
        connection = await self.runtime.connected()
        return await self.runtime.in_thread(question, connection.store)

    def read_inside(self, label: str, kind: Any, question: Work[R]) -> Coroutine[Any, Any, R]:
        return self.change(label, kind, question)

    def change(self, label: str, kind: Any, work: Work[R]) -> Coroutine[Any, Any, R]:
        origin = self._next_id(detached=True)
        return self.read(label, kind, lambda store: work(store, origin))

    def change_in_parts(self, label: str, enter: Work[S], parts: Parts[S]) -> Coroutine[Any, Any, dict[str, str]]:
        return self.change(label, dict[str, str], lambda store, origin: together(enter, parts, store, origin))

    def change_found(
        self, label: str, find: Find, act: ActOn, *, fences: bool = False
    ) -> Coroutine[Any, Any, dict[str, bool]]:
        del fences
        return self.read(
            label,
            dict[str, bool],
            lambda store: act_on(lambda place: find(store, place), lambda ids: act(store, ids)),
        )

    def cancel(self, label: str, ids: Sequence[str], reason: str | None) -> Coroutine[Any, Any, dict[str, bool]]:
        others = others_than(self._execution, ids)
        clock = self.runtime.clock
        work = self.read(label, dict[str, bool], lambda store: dict(RunActions(store, clock).cancel(others, reason)))
        return of_all(ids, work) if len(others) < len(ids) else work

    def terminate(self, ids: Sequence[str], reason: str | None) -> Coroutine[Any, Any, dict[str, bool]]:
        found, clock = list(dict.fromkeys(ids)), self.runtime.clock
        return self.read(
            "runs.terminate", dict[str, bool], lambda store: dict(RunActions(store, clock).terminate(found, reason))
        )


def encoded(runtime: Runtime, calls: Sequence[Invocation]) -> list[str]:
    """Return the arguments of calls as stored. Raise an error if any of them is wrong."""
    for call in {call.name: call for call in calls}.values():
        call.check_app(runtime)
    return [call.encode() for call in calls]


def all_started(runs: Sequence[NewRun], answers: Sequence[Started | BaseException]) -> list[StartedRun]:
    """Return the started runs. If the store refused any, raise the error of the first after looking at all of them."""
    found: list[StartedRun] = []
    failure: BaseException | None = None
    for run, answer in zip(runs, answers, strict=True):
        try:
            found.append(_started(run, answer))
        except MainspringError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return found


def _started(new: NewRun, answer: Started | BaseException) -> StartedRun:
    if isinstance(answer, StoreUnavailable):
        may_be = f"run {new.id!r} may have been stored: started again with this id, it runs once"
        raise type(answer)(f"{answer}; {may_be}") from answer
    if isinstance(answer, MainspringError):
        raise answer
    if isinstance(answer, BaseException):
        raise NotSerializable(f"the database refused to start {new.workflow!r}: {answer}") from answer
    if answer.refused or (answer.id and answer.workflow != new.workflow):
        raise key_error(new.key, answer.id)
    if answer.workflow != new.workflow:
        raise taken_error(answer.id or new.id, new.workflow, answer.workflow)
    return StartedRun(answer.id or new.id, answer.created)


def together(enter: Work[S], parts: Parts[S], store: Store | Inside, origin: str | None) -> dict[str, str]:
    """Apply the parts of a change in one commit."""
    answers: dict[str, str] = {}
    for part in parts:
        answers |= part(enter(store, origin))
    return answers


def others_than(ex: Execution | None, ids: Sequence[str]) -> list[str]:
    """Return the runs without the calling step or transaction, if that is a run of its own: it does not cancel itself."""
    oneself = ex.id if ex is not None and ex.function.kind != "workflow" else None
    return [run_id for run_id in ids if run_id != oneself]


def of_all(ids: Sequence[str], work: Coroutine[Any, Any, dict[str, bool]]) -> Coroutine[Any, Any, dict[str, bool]]:
    """Return an answer for each of the runs: False for those that `work` leaves out."""
    return Mapped(work, lambda done: {run_id: done.get(run_id, False) for run_id in ids})


class InStep(Outside):
    """A step that is being executed."""

    __slots__ = ("_scope_of_step",)

    def __init__(self, runtime: Runtime, scope: StepScope) -> None:
        super().__init__(runtime)
        self._scope_of_step = scope

    @property
    def quota(self) -> Quota | None:
        return self._scope_of_step.quota

    @property
    def _step(self) -> StepScope | None:
        return self._scope_of_step

    @property
    def _execution(self) -> Execution | None:
        return self._scope_of_step.execution

    @property
    def _patient(self) -> bool:
        """Ids and keys of a step make repetition safe, and its own record would have to wait for the database, too."""
        return True

    def _next_id(self, *, detached: bool) -> str | None:
        return self._scope_of_step.next_start(detached=detached)

    def _sign(self, posts: list[Post]) -> None:
        sign(self._scope_of_step, posts)

    def _waiting(self) -> AbstractContextManager[None]:
        return self._scope_of_step.execution.engine.slots.yielded(self._scope_of_step)

    def publish(self, verb: StepKind, table: Table, key: str, value: str | None) -> Coroutine[Any, Any, None]:
        del verb
        return self._publish(table, key, value)

    @ours
    async def _publish(self, table: Table, key: str, value: str | None) -> None:
        """Publish an entry at once. A retry of the step publishes it again."""
        ex = self._scope_of_step.execution
        entries = [entry_of(self._scope_of_step, table, key, value)]
        await ex.engine.committer.commit(Send(ex.id, list(entries), ex.engine.worker_id, ex.epoch))


def sign(step: StepScope, posts: list[Post]) -> None:
    """Set the sender and the keys of messages. The keys are the same in every attempt, so each message is sent once."""
    for post in posts:
        post.sender = step.execution.id
        post.key = post.key or step.next_key()


def entry_of(step: StepScope, table: Table, key: str, value: str | None) -> Entry:
    """Return an entry that a step publishes, as stored."""
    ex = step.execution
    if table == "streams":
        if value is None:
            step.closed_streams |= {key}
        elif key in step.closed_streams or key in ex.closed_streams:
            raise closed_error(ex.id, key)
    return Entry(table, ex.id, key, value, ex.engine.clock.now(), step.position)
