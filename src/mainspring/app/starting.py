"""Starting runs: from outside, as operations of a run, and as part of a transaction."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.app.handle import Handle
from mainspring.app.later import check_call, spend
from mainspring.app.new_runs import later_run, new_run, new_runs
from mainspring.engine import flows
from mainspring.engine.branches import ours
from mainspring.engine.context import Line, StepScope, TransactionScope, current
from mainspring.engine.drivers import drive
from mainspring.engine.recording import key_error, taken_error
from mainspring.errors import MainspringError, NotSerializable
from mainspring.store.ops import Start

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from mainspring.app.functions import Call
    from mainspring.app.runtime import Runtime
    from mainspring.engine.execution import Execution
    from mainspring.engine.flows import Begun
    from mainspring.model.records import NewRun
    from mainspring.store.ops import Started

R = TypeVar("R")


class Starting:
    """Starts runs for one app, wherever the code that asks for it stands."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def one(self, call: Call[R]) -> Coroutine[Any, Any, Handle[R]]:
        """Start a run, as an operation of the run we are in, if any."""
        text = self._runtime.calls.encode(call)
        where = current.get()
        if isinstance(where, Line):
            position = where.take_position()
            run_id = call.options.id or where.execution.child_id(position, detached=call.options.parentless)
            return self._start_in_run(where.execution, position, call, text, run_id)
        if isinstance(where, TransactionScope):
            return self._start_joined(where, [(call, text)], lambda handles: handles[0])
        return self._start_outside(call, text, where)

    def many(self, calls: Sequence[Call[Any]]) -> Coroutine[Any, Any, list[Handle[Any]]]:
        """Start many runs in one commit."""
        prepared = [(self._known(call), self._runtime.calls.encode(call)) for call in calls]
        where = current.get()
        if isinstance(where, Line):
            position = where.take_position()
            return self._start_many_in_run(where.execution, position, prepared)
        if isinstance(where, TransactionScope):
            return self._start_joined(where, prepared, lambda handles: handles)
        return self._start_many_outside(prepared, where)

    def later(self, call: Call[R], time: Callable[[int], int]) -> Coroutine[Any, Any, Handle[R]]:
        """Schedule a function, as an operation of the run or as part of the transaction that we are in, if any.

        `time` says, given the time at which it is scheduled, when it is to run.
        """
        check_call(self._known(call))
        text = self._runtime.calls.encode(call)
        spend(self._runtime, call, text)
        where = current.get()
        if isinstance(where, Line):
            return self._later_in_run(where.execution, where.take_position(), call, text, time)
        step = where.step if isinstance(where, TransactionScope) else where
        run_id = call.options.id or (step.next_start(detached=True) if step is not None else None)
        new = later_run(self._runtime, call, text, run_id, step.execution if step is not None else None, time=time)
        if isinstance(where, TransactionScope):
            return self._runtime.transacting.start(where, [new], lambda started: self._handle_of(call, new, started[0]))
        return self._store_later(call, new, step)

    def _known(self, call: Call[R]) -> Call[R]:
        """The call, if its function is one of this app's. Whoever calls by name has no code, and cannot know."""
        if call.function.source:
            self._runtime.registry.get(call.name)
        return call

    # -- outside runs --------------------------------------------------------------------------------------------------
    @ours
    async def _start_outside(self, call: Call[R], text: str, scope: StepScope | None) -> Handle[R]:
        handles = await self._start_many_outside([(call, text)], scope)
        return handles[0]

    @ours
    async def _start_many_outside(
        self, prepared: list[tuple[Call[Any], str]], scope: StepScope | None
    ) -> list[Handle[Any]]:
        connection = await self._runtime.connected()
        engine = self._runtime.engine
        ex = scope.execution if scope is not None else None
        here = engine is not None and engine.on_loop
        ids = [
            call.options.id or (scope.next_start(detached=call.options.parentless) if scope is not None else None)
            for call, _ in prepared
        ]
        runs = new_runs(
            self._runtime,
            (
                partial(new_run, self._runtime, call, text, run_id, ex, here=here)
                for (call, text), run_id in zip(prepared, ids, strict=True)
            ),
        )
        asker = ex.id if ex is not None else None
        committed = connection.committer.commit_all([Start(run, asker) for run in runs], patient=False)
        local = engine is not None and any(run.owner is not None for run in runs)
        answers = await (engine.local_starts.follow(runs, committed) if local and engine is not None else committed)
        handles: list[Handle[Any]] = []
        failure: BaseException | None = None
        for (call, _), run, answer in zip(prepared, runs, answers, strict=True):
            try:
                created = _started(run, answer)
            except MainspringError as error:
                failure = failure or error
                created = False
            handles.append(self._handle(call, run.id, created=created))
        if failure is not None:
            raise failure
        return handles

    @ours
    async def _store_later(self, call: Call[R], new: NewRun, step: StepScope | None) -> Handle[R]:
        connection = await self._runtime.connected()
        asker = step.execution.id if step is not None else None
        try:
            answer: Started | BaseException = await connection.committer.commit(Start(new, asker), patient=False)
        except Exception as error:  # noqa: BLE001  (what it means is decided below)
            answer = error
        return self._handle_of(call, new, answer)

    # -- in runs -------------------------------------------------------------------------------------------------------
    @ours
    async def _start_in_run(self, ex: Execution, position: str, call: Call[R], text: str, run_id: str) -> Handle[R]:
        make = lambda: [new_run(self._runtime, call, text, run_id, ex)]  # noqa: E731
        begun: Begun = await drive(ex, flows.start(ex, position, call.name, make))
        return self._begun(call, begun)

    @ours
    async def _start_many_in_run(
        self, ex: Execution, position: str, prepared: list[tuple[Call[Any], str]]
    ) -> list[Handle[Any]]:
        ids = [
            call.options.id or ex.child_id(f"{position}.{number}", detached=call.options.parentless)
            for number, (call, _) in enumerate(prepared)
        ]

        def make() -> list[NewRun]:
            return new_runs(
                self._runtime,
                (
                    partial(new_run, self._runtime, call, text, run_id, ex)
                    for (call, text), run_id in zip(prepared, ids, strict=True)
                ),
            )

        begun: Begun = await drive(ex, flows.start(ex, position, "start_many", make))
        return [self._begun(call, begun, number) for number, (call, _) in enumerate(prepared)]

    @ours
    async def _later_in_run(
        self, ex: Execution, position: str, call: Call[R], text: str, time: Callable[[int], int]
    ) -> Handle[R]:
        run_id = call.options.id or ex.child_id(position, detached=True)
        make = lambda: [later_run(self._runtime, call, text, run_id, ex, time=time)]  # noqa: E731
        begun: Begun = await drive(ex, flows.start(ex, position, call.name, make))
        return self._begun(call, begun)

    # -- in transactions -----------------------------------------------------------------------------------------------
    def _start_joined(
        self, scope: TransactionScope, prepared: list[tuple[Call[Any], str]], then: Callable[[list[Handle[Any]]], R]
    ) -> Coroutine[Any, Any, R]:
        """Start runs as part of the transaction that is open here."""
        step = scope.step
        ex = step.execution if step is not None else None
        runs: list[NewRun] = []
        for call, text in prepared:
            detached = call.options.parentless
            run_id = call.options.id or (step.next_start(detached=detached) if step is not None else None)
            runs.append(new_run(self._runtime, call, text, run_id, ex, here=False))

        def handles(started: list[Started]) -> R:
            made = [_started(new, answer) for new, answer in zip(runs, started, strict=True)]
            found = [
                self._handle(call, new.id, created=created)
                for (call, _), new, created in zip(prepared, runs, made, strict=True)
            ]
            return then(found)

        return self._runtime.transacting.start(scope, runs, handles)

    # -- handles -------------------------------------------------------------------------------------------------------
    def _begun(self, call: Call[R], begun: Begun, number: int = 0) -> Handle[R]:
        run_id = begun.ids[number]
        return self._handle(call, run_id, created=run_id not in begun.taken)

    def _handle_of(self, call: Call[R], new: NewRun, answer: Started | BaseException) -> Handle[R]:
        created = _started(new, answer)
        return self._handle(call, new.id, created=created)

    def _handle(self, call: Call[R], run_id: str, *, created: bool) -> Handle[R]:
        return Handle(self._runtime, run_id, call.function.codec.result, created=created)


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
