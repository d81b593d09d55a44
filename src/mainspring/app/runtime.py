"""What stands behind an app's functions and handles: starting, calling, waiting, inside runs and outside."""

from __future__ import annotations

import asyncio
import importlib
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.app.awaited import Awaited
from mainspring.app.backstage import Backstage
from mainspring.app.connection import Connection
from mainspring.app.declared import Declarations
from mainspring.app.dual import refuse_blocking_on_loop
from mainspring.app.events import Listeners
from mainspring.app.handle import Handle
from mainspring.app.later import check_call, spend
from mainspring.app.options import micros
from mainspring.app.portal import Portal, bridged
from mainspring.app.queues import QueueDeclarations
from mainspring.app.transacting import Transacting, after, is_ready, ready, refuse_waiting, run_ready
from mainspring.codec import value_codec
from mainspring.engine import flows
from mainspring.engine.branches import ours
from mainspring.engine.context import Line, StepScope, TransactionScope, current
from mainspring.engine.drivers import drive, drive_blocking
from mainspring.engine.flows import StepCall
from mainspring.engine.recording import failure_of, key_error, taken_error
from mainspring.engine.registry import FOR_EVER, Bound, Registry
from mainspring.engine.retry import Retry, stored
from mainspring.engine.transactions import TransactionCall, transaction
from mainspring.errors import (
    InTransaction,
    InvalidInput,
    MainspringError,
    NotFound,
    NotSerializable,
    StoreError,
    TooLarge,
)
from mainspring.model.clock import SystemClock
from mainspring.model.ids import IdMaker
from mainspring.model.keys import KeyMode
from mainspring.model.records import NewRun
from mainspring.model.states import State
from mainspring.operations.retention import keep_of
from mainspring.operations.runs import Runs, check_reason
from mainspring.store.ops import Release, Start

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from mainspring.app.crontab import Crontab
    from mainspring.app.functions import Call
    from mainspring.app.options import Debounce, Duration
    from mainspring.app.settings import Settings
    from mainspring.codec import ValueCodec
    from mainspring.engine.engine import Engine
    from mainspring.engine.execution import Execution
    from mainspring.engine.flows import Begun
    from mainspring.engine.recording import Flow
    from mainspring.engine.registry import Function
    from mainspring.model.clock import Clock
    from mainspring.model.records import Ending
    from mainspring.store.ops import Started
    from mainspring.store.protocol import Store
    from mainspring.store.retention import Keep

R = TypeVar("R")


class Runtime:
    """One app's registry, its connection, and the engine while it executes."""

    def __init__(self, url: str, settings: Settings, clock: Clock | None) -> None:
        self.url = url
        self.settings = settings
        self.clock: Clock = clock or SystemClock()
        self.registry = Registry()
        self.backstage = Backstage()
        self.ids = IdMaker(self.clock)
        self.name = "app"
        self.version = ""
        self.declarations = Declarations()
        self.queues = QueueDeclarations()
        self.crontab: Crontab | None = None
        self.listeners = Listeners()
        self.engine: Engine | None = None
        self.instances: dict[str, Any] = {}
        self.transacting = Transacting(self)
        self._connecting = threading.Lock()
        self._connection: Connection | None = None
        self._portal: Portal | None = None

    @property
    def keep(self) -> Keep:
        """How long ended runs are kept, by the settings and by what functions say of themselves."""
        names = {
            function.name: None if function.retention == FOR_EVER else function.retention
            for function in self.registry
            if function.retention is not None
        }
        return keep_of(self.settings.retention, self.settings.function_retention, names)

    # -- connection ----------------------------------------------------------------------------------------------------
    def connection(self) -> Connection:
        """The connection, made now if there is none."""
        with self._connecting:
            if self._connection is None:
                self._connection = Connection(self.url, self.settings, self.clock, self.backstage)
            return self._connection

    async def connected(self) -> Connection:
        if self._connection is not None:
            return self._connection
        return await self.in_thread(self.connection)

    async def in_thread(self, work: Callable[..., R], *args: Any) -> R:
        """Do something blocking on a thread, with civil time standing still meanwhile."""
        self.clock.busy()
        try:
            return await asyncio.to_thread(work, *args)
        finally:
            self.clock.idle()

    def disconnect(self) -> None:
        with self._connecting:
            connection, self._connection = self._connection, None
            portal, self._portal = self._portal, None
        if connection is not None:
            connection.close()
        for function in self.registry:
            if function.database is not None:
                function.database.close()
        if portal is not None:
            portal.close()

    def leave_to_parent(self) -> list[object]:
        """In a forked process: nothing of the parent's is used, not even its lock, which some thread there may hold."""
        left: list[object] = [self._connection, self._portal, self.engine]
        self._connection = self._portal = self.engine = None
        self._connecting = threading.Lock()
        return left

    # -- blocking ------------------------------------------------------------------------------------------------------
    def block(self, work: Coroutine[Any, Any, R], label: str) -> R:
        """Run a coroutine on the app's loop, or on one made for the purpose, and wait for it here."""
        try:
            refuse_blocking_on_loop(f"await {label}(…)")
        except MainspringError:
            work.close()
            raise
        if is_ready(work):
            return run_ready(work)
        loop = self.engine.loop if self.engine is not None else self.portal().loop
        return asyncio.run_coroutine_threadsafe(bridged(work), loop).result()

    def portal(self) -> Portal:
        with self._connecting:
            if self._portal is None:
                self._portal = Portal()
            return self._portal

    # -- calls ---------------------------------------------------------------------------------------------------------
    @property
    def executing(self) -> bool:
        return self.engine is not None and bool(self.engine.executions)

    def encode(self, call: Call[Any]) -> str:
        """The arguments as stored. Whatever is wrong with them is an error now."""
        function, args = call.function, call.args
        if call.options.partition and not (call.options.queue or function.queue):
            raise InvalidInput(f"{function.name!r}: a partition is a part of a queue; give queue= as well")
        if function.at_most_once and call.options.retry is not None:
            raise InvalidInput(
                f"{function.name!r} is never started a second time (at_most_once), so it cannot be retried"
            )
        if function.bound is not Bound.NOT:
            if not args:
                raise InvalidInput(f"{function.name!r} is a method: call it on an instance")
            args = (self._receiver_name(function, args[0]), *args[1:])
        text = function.codec.bind_and_encode(args, call.kwargs)
        limit = self.settings.value_bytes
        if len(text) > limit:
            raise TooLarge(
                f"the arguments of {function.name!r} have {len(text):,} characters as JSON; the limit is {limit:,}"
            )
        return text

    def _receiver_name(self, function: Function, receiver: Any) -> str:
        if function.bound is Bound.CLASS:
            return _class_name(receiver)
        for name, instance in self.instances.items():
            if instance is receiver:
                return name
        raise InvalidInput(
            f"{function.name!r} is a workflow and a method, so its instance must be findable after a restart: "
            'name it with app.instance("name", obj)'
        )

    def receiver(self, function: Function, name: Any) -> Any:
        """The instance or class that a stored call was made on."""
        if function.bound is Bound.CLASS:
            return _find_class(name)
        if name not in self.instances:
            raise InvalidInput(
                f"{function.name!r} needs the instance {name!r}, which is not named here with app.instance(…)"
            )
        return self.instances[name]

    def operation(self, line: Line, call: Call[Any]) -> Coroutine[Any, Any, Any]:
        """A call inside an `async def` run."""
        return drive(line.execution, self._flow(line, call))

    def blocking_operation(self, line: Line, call: Call[Any]) -> Any:
        """A call inside a `def` run."""
        return drive_blocking(line.execution, self._flow(line, call))

    def _flow(self, line: Line, call: Call[Any]) -> Flow:
        ex = line.execution
        if call.function.kind == "transaction":
            made = TransactionCall.of(call.function, call.args, call.kwargs)
            self.encode(call)
            return transaction(ex, _take_position(line), made)
        if call.function.kind != "workflow":
            prepared = StepCall.of(call.function, call.args, call.kwargs)
            if call.options.timeout is not None or call.options.no_timeout:
                prepared.timeout = call.options.timeout
            position = _take_position(line)
            return flows.step(ex, position, prepared)
        if call.options.key is not None or call.options.debounce is not None:
            raise InvalidInput(
                f"with a key it may be another run: write handle = await {call.name}.options(…).start(…), then its result()"
            )
        text = self.encode(call)
        position = _take_position(line)
        run_id = call.options.id or f"{ex.id}/{position}"
        make = lambda: [self.new_run(call, text, run_id, ex)]  # noqa: E731
        return flows.call(ex, position, call.name, make, call.function.codec.result)

    # -- starting ------------------------------------------------------------------------------------------------------
    def start(self, call: Call[R]) -> Coroutine[Any, Any, Handle[R]]:
        """Start a run, as an operation of the run we are in, if any."""
        text = self.encode(call)
        where = current.get()
        if isinstance(where, Line):
            position = _take_position(where)
            run_id = call.options.id or f"{where.execution.id}/{position}"
            return self._start_in_run(where.execution, position, call, text, run_id)
        if isinstance(where, TransactionScope):
            return self._start_joined(where, [(call, text)], lambda handles: handles[0])
        return self._start_outside(call, text, where)

    def run_later(self, call: Call[R], time: Callable[[int], int]) -> Coroutine[Any, Any, Handle[R]]:
        """Schedule a function, as an operation of the run or as part of the transaction that we are in, if any.

        `time` says, given the time at which it is scheduled, when it is to run.
        """
        check_call(call)
        text = self.encode(call)
        spend(self, call, text)
        where = current.get()
        if isinstance(where, Line):
            return self._later_in_run(where.execution, _take_position(where), call, text, time)
        step = where.step if isinstance(where, TransactionScope) else where
        run_id = call.options.id or (step.next_start() if step is not None else None)
        new = self._later(call, text, run_id, step.execution if step is not None else None, time)
        if isinstance(where, TransactionScope):
            return self.transacting.start(where, [new], lambda started: self._handle_of(call, new, started[0]))
        return self._store_later(call, new, step)

    def _later(
        self, call: Call[Any], text: str, run_id: str | None, ex: Execution | None, time: Callable[[int], int]
    ) -> NewRun:
        """The row of a scheduled function. It is nobody's child: it runs whatever becomes of the run that scheduled it."""
        now = self.clock.now()
        when = time(now)
        new = self.new_run(call, text, run_id, None, here=False)
        new.scheduled_time = when
        new.due = max(when, now)
        new.state = State.SCHEDULED if new.due > now else State.QUEUED
        new.scheduled_by = ex.id if ex is not None else None
        return new

    @ours
    async def _later_in_run(
        self, ex: Execution, position: str, call: Call[R], text: str, time: Callable[[int], int]
    ) -> Handle[R]:
        run_id = call.options.id or f"{ex.id}/{position}"
        make = lambda: [self._later(call, text, run_id, ex, time)]  # noqa: E731
        begun: Begun = await drive(ex, flows.start(ex, position, call.name, make))
        return self._begun(call, begun)

    @ours
    async def _store_later(self, call: Call[R], new: NewRun, step: StepScope | None) -> Handle[R]:
        connection = await self.connected()
        asker = step.execution.id if step is not None else None
        try:
            answer: Started | BaseException = await connection.committer.commit(Start(new, asker), patient=False)
        except Exception as error:  # noqa: BLE001  (what it means is decided below)
            answer = error
        return self._handle_of(call, new, answer)

    def start_many(self, calls: Sequence[Call[Any]]) -> Coroutine[Any, Any, list[Handle[Any]]]:
        """Start many runs in one commit."""
        prepared = [(call, self.encode(call)) for call in calls]
        where = current.get()
        if isinstance(where, Line):
            position = _take_position(where)
            return self._start_many_in_run(where.execution, position, prepared)
        if isinstance(where, TransactionScope):
            return self._start_joined(where, prepared, lambda handles: handles)
        return self._start_many_outside(prepared, where)

    def _start_joined(
        self, scope: TransactionScope, prepared: list[tuple[Call[Any], str]], then: Callable[[list[Handle[Any]]], R]
    ) -> Coroutine[Any, Any, R]:
        """Start runs as part of the transaction that is open here."""
        step = scope.step
        ex = step.execution if step is not None else None
        runs: list[NewRun] = []
        for call, text in prepared:
            run_id = call.options.id or (step.next_start() if step is not None else None)
            runs.append(self.new_run(call, text, run_id, ex, here=False))

        def handles(started: list[Started]) -> R:
            made = [_started(new, answer) for new, answer in zip(runs, started, strict=True)]
            found = [
                self._handle(call, new.id, created=created)
                for (call, _), new, created in zip(prepared, runs, made, strict=True)
            ]
            return then(found)

        return self.transacting.start(scope, runs, handles)

    @ours
    async def _start_in_run(self, ex: Execution, position: str, call: Call[R], text: str, run_id: str) -> Handle[R]:
        make = lambda: [self.new_run(call, text, run_id, ex)]  # noqa: E731
        begun: Begun = await drive(ex, flows.start(ex, position, call.name, make))
        return self._begun(call, begun)

    @ours
    async def _start_many_in_run(
        self, ex: Execution, position: str, prepared: list[tuple[Call[Any], str]]
    ) -> list[Handle[Any]]:
        ids = [call.options.id or f"{ex.id}/{position}.{number}" for number, (call, _) in enumerate(prepared)]

        def make() -> list[NewRun]:
            return [self.new_run(call, text, run_id, ex) for (call, text), run_id in zip(prepared, ids, strict=True)]

        begun: Begun = await drive(ex, flows.start(ex, position, "start_many", make))
        return [self._begun(call, begun, number) for number, (call, _) in enumerate(prepared)]

    def _begun(self, call: Call[R], begun: Begun, number: int = 0) -> Handle[R]:
        run_id = begun.ids[number]
        return self._handle(call, run_id, created=run_id not in begun.taken)

    @ours
    async def _start_outside(self, call: Call[R], text: str, scope: StepScope | None) -> Handle[R]:
        handles = await self._start_many_outside([(call, text)], scope)
        return handles[0]

    @ours
    async def _start_many_outside(
        self, prepared: list[tuple[Call[Any], str]], scope: StepScope | None
    ) -> list[Handle[Any]]:
        connection = await self.connected()
        news: list[NewRun] = []
        for call, text in prepared:
            run_id = call.options.id or (scope.next_start() if scope is not None else None)
            news.append(self.new_run(call, text, run_id, scope.execution if scope is not None else None))
        asker = scope.execution.id if scope is not None else None
        futures = [connection.committer.commit(Start(new, asker), patient=False) for new in news]
        answers = await asyncio.gather(*futures, return_exceptions=True)
        handles: list[Handle[Any]] = []
        failure: BaseException | None = None
        for (call, _), new, answer in zip(prepared, news, answers, strict=True):
            try:
                created = _started(new, answer)
            except MainspringError as error:
                failure = failure or error
                created = False
                if new.owner is not None and isinstance(error, StoreError):
                    self._hand_back(connection, new)
            if self.engine is not None:
                stopped = not isinstance(answer, BaseException) and answer.state is State.CANCELLED
                self.engine.begin(new, created=created and not stopped)
            handles.append(self._handle(call, new.id, created=created))
        if failure is not None:
            raise failure
        return handles

    def _hand_back(self, connection: Connection, new: NewRun) -> None:
        """Whether it was stored is not known, only that it does not begin here: if it is there, anybody may take it."""
        answer = connection.committer.commit(Release(new.owner or "", new.id, 1))
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody waits for it

    def new_run(
        self, call: Call[Any], text: str, run_id: str | None, ex: Execution | None, *, here: bool = True
    ) -> NewRun:
        """The row of a run to be started, by a run or from outside. If there is room, it begins `here`, in this worker's hand."""
        function, options = call.function, call.options
        now = self.clock.now()
        due = now if options.after is None else now + options.after
        due = due if options.at is None else options.at
        timeout = (
            None
            if options.no_timeout
            else options.timeout or (function.timeout if function.kind == "workflow" else None)
        )
        uid = self.ids.new()
        is_child = ex is not None and not options.detached
        new = NewRun(
            id=run_id or uid,
            uid=uid,
            workflow=function.name,
            kind=function.kind,
            input=text,
            state=State.SCHEDULED if due > now else State.QUEUED,
            due=due,
            created=now,
            timeout=timeout,
            deadline=ex.run.deadline if ex is not None and is_child else None,
            version=options.version,
            parent=ex.id if ex is not None and is_child else None,
            scheduled_by=ex.id if ex is not None and not is_child else None,
            attributes=options.attributes or "{}",
            queue=options.queue or function.queue,
            priority=options.priority,
            partition=options.partition,
            key=options.key,
            key_mode=options.key_mode,
            retry=options.retry or _own_retry(function),
        )
        if options.debounce is not None:
            _put_off(new, options.debounce, now)
        engine = self.engine
        here = here and due <= now and new.queue is None and new.key is None and options.version in {None, self.version}
        if here and engine is not None and engine.admit(function):
            new.state, new.owner = State.RUNNING, engine.worker_id
            new.version, new.fingerprint = self.version, function.fingerprint
            if timeout is not None:
                new.deadline = min(now + timeout, new.deadline or now + timeout)
        return new

    def _handle_of(self, call: Call[R], new: NewRun, answer: Started | BaseException) -> Handle[R]:
        created = _started(new, answer)
        return self._handle(call, new.id, created=created)

    def _handle(self, call: Call[R], run_id: str, *, created: bool) -> Handle[R]:
        return Handle(self, run_id, call.function.codec.result, created=created)

    # -- waiting -------------------------------------------------------------------------------------------------------
    @ours
    async def call(self, call: Call[Any]) -> Any:
        """Start a run and wait for its result, from outside runs. Giving up waiting does not cancel the run."""
        refuse_waiting(f"{call.name}(…)")
        handle = await self.start(call)
        engine = self.engine
        fresh = (
            handle.created
            and engine is not None
            and engine.loop is asyncio.get_running_loop()
            and handle.id in engine.executions
        )
        return await self._result_outside(handle.id, call.function.codec.result, None, fresh=fresh)

    def result(self, run_id: str, codec: ValueCodec, timeout: Duration | None) -> Coroutine[Any, Any, Any]:
        """Wait for a run to end, as an operation of the run we are in, if any."""
        where = current.get()
        if isinstance(where, Line):
            position = _take_position(where)
            until = None if timeout is None else where.execution.engine.clock.now() + micros(timeout)
            return drive(where.execution, flows.result(where.execution, position, run_id, codec, until))
        refuse_waiting("result()")
        return self._result_outside(run_id, codec, timeout)

    @ours
    async def _result_outside(
        self, run_id: str, codec: ValueCodec, timeout: Duration | None, *, fresh: bool = False
    ) -> Any:
        connection = await self.connected()
        ending = await self._ending(connection, run_id, timeout, fresh=fresh)
        if ending is None:
            raise NotFound(f"there is no run {run_id!r}, or no longer")
        if ending.output is not None and ending.state is State.SUCCEEDED:
            return codec.decode(ending.output)
        raise failure_of(ending)

    @ours
    async def ended(self, run_id: str) -> None:
        """Wait, outside runs, for a run to end, however it ends."""
        if await self._ending(await self.connected(), run_id, None, fresh=False) is None:
            raise NotFound(f"there is no run {run_id!r}, or no longer")

    async def _ending(
        self, connection: Connection, run_id: str, timeout: Duration | None, *, fresh: bool
    ) -> Ending | None:
        """`fresh`: the run was set off on this very loop a moment ago, so there is no need to look whether it has ended."""
        with Awaited(connection, run_id, timeout) as told:
            if not fresh:
                found = await self.in_thread(connection.store.endings, [run_id])
                if run_id not in found or found[run_id] is not None:
                    return found.get(run_id)
            return await told

    # -- asking --------------------------------------------------------------------------------------------------------
    def cancel(self, run_id: str, reason: str | None) -> Coroutine[Any, Any, bool]:
        """Cancel a run, as part of the transaction that is open here, if any. A function that cancels itself goes on."""
        check_reason(reason)
        where = current.get()
        place = where.step if isinstance(where, TransactionScope) else where
        if (
            isinstance(place, StepScope)
            and place.execution.id == run_id
            and place.execution.function.kind != "workflow"
        ):
            return ready(value=False)
        if isinstance(where, TransactionScope):
            return after(self.transacting.cancel(where, [run_id], reason), lambda done: done[run_id])
        return self.ask("cancel", bool, lambda runs: runs.cancel([run_id], reason)[run_id])

    def cancel_many(self, ids: Sequence[str], reason: str | None) -> Coroutine[Any, Any, dict[str, bool]]:
        """Cancel runs, as part of the transaction that is open here, if any."""
        check_reason(reason)
        where = current.get()
        if isinstance(where, TransactionScope):
            return self.transacting.cancel(where, ids, reason)
        return self.ask("runs.cancel", dict[str, bool], lambda runs: runs.cancel(ids, reason))

    def ask(
        self, label: str, kind: Any, question: Callable[[Runs], R], *, reads: bool = False
    ) -> Coroutine[Any, Any, R]:
        """Ask the operations something. Inside a run the answer is recorded, so that a replay gets the same."""
        where = current.get()
        if isinstance(where, TransactionScope) and not reads:
            raise InTransaction(f"{label} cannot be part of a transaction; do it before or after")
        if not isinstance(where, Line):
            return self._ask(question)
        codec = value_codec(kind, f"the answer of {label}")

        async def step() -> R:
            return await self._ask(question)

        call = StepCall(label, step, (), {}, True, Retry(1), None, False, False, codec)  # noqa: FBT003
        return drive(where.execution, flows.step(where.execution, _take_position(where), call))

    @ours
    async def _ask(self, question: Callable[[Runs], R]) -> R:
        connection = await self.connected()
        return await self.in_thread(question, Runs(connection.store, self.clock))

    def ask_store(
        self, label: str, kind: Any, question: Callable[[Store], R], *, reads: bool = False
    ) -> Coroutine[Any, Any, R]:
        """Ask the store something. Inside a run the answer is recorded."""
        return self.ask(label, kind, lambda _: question(self.connection().store), reads=reads)

    def handle(self, run_id: str, result: Any = Any) -> Handle[Any]:
        return Handle(self, run_id, value_codec(result, f"the result of run {run_id!r}"), created=False)


def _own_retry(function: Function) -> str | None:
    """How runs of a workflow are tried again, if it says so."""
    return (
        stored(function.retry, of_function=True)
        if function.kind == "workflow" and function.retry.attempts > 1
        else None
    )


def _put_off(new: NewRun, debounce: Debounce, now: int) -> None:
    new.key, new.key_mode = f"debounce {new.workflow} {debounce.key}", KeyMode.DEBOUNCE
    new.due, new.state = now + micros(debounce.wait), State.SCHEDULED
    new.latest = None if debounce.max_wait is None else now + micros(debounce.max_wait)


def _take_position(line: Line) -> str:
    line.execution.outstanding += 1
    return line.next_position()


def _started(new: NewRun, answer: Started | BaseException) -> bool:
    if isinstance(answer, MainspringError):
        raise answer
    if isinstance(answer, BaseException):
        raise NotSerializable(f"the database refused to start {new.workflow!r}: {answer}") from answer
    if answer.id:
        new.id = answer.id
    if answer.refused or (answer.id and answer.workflow != new.workflow):
        raise key_error(new.key, answer.id)
    if answer.workflow != new.workflow:
        raise taken_error(new.id, new.workflow, answer.workflow)
    return answer.created


def _class_name(cls: type) -> str:
    name = f"{cls.__module__}:{cls.__qualname__}"
    try:
        found = _find_class(name)
    except (ImportError, AttributeError):
        found = None
    if found is not cls:
        raise InvalidInput(
            f"{name} cannot be imported, so a run of its methods could not be continued; define it in a module"
        )
    return name


def _find_class(name: str) -> Any:
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found
