"""Verbs in the body of a workflow: each is an operation of the run, recorded once and replayed after a crash."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.app.caller.mistakes import named_after, on_running_loop, refuse_blocking_on_loop
from mainspring.app.caller.outside import encoded, of_all
from mainspring.app.caller.protocol import StartedRun
from mainspring.app.coroutines import Mapped, bridged, fastest, gathered
from mainspring.app.functions.invocation import Invocation, later_run, new_runs
from mainspring.codec import value_codec
from mainspring.engine.drivers import drive, drive_blocking
from mainspring.engine.operations import messages, questions, steps
from mainspring.engine.operations.steps import StepCall
from mainspring.engine.operations.transactions import TransactionCall, transaction
from mainspring.engine.replay.branches import ours
from mainspring.errors import InvalidInput, StoreUnavailable, WrongColour
from mainspring.operations.runs.actions import RunActions
from mainspring.operations.runs.bulk import Found, act_on_batch, kin_of
from mainspring.recurrence.durations import micros
from mainspring.store.messages import Entry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from mainspring.app.caller.protocol import ActOn, Args, Find, Kwargs, Parts, Work
    from mainspring.app.functions.options import Duration, Options
    from mainspring.app.runtime import Runtime
    from mainspring.codec import ValueCodec
    from mainspring.engine.effects import Flow
    from mainspring.engine.operations.steps import Begun
    from mainspring.engine.registry import Function
    from mainspring.engine.replay.context import Branch
    from mainspring.engine.replay.execution import Execution, Quota
    from mainspring.model.clock import Clock
    from mainspring.model.runs import StepKind
    from mainspring.store.external.join import Inside
    from mainspring.store.messages import Post, Table
    from mainspring.store.protocol import Store

R = TypeVar("R")
log = logging.getLogger("mainspring.engine")
S = TypeVar("S")


class InRun:
    """A branch of a run that is being executed."""

    __slots__ = ("_branch", "runtime")

    def __init__(self, runtime: Runtime, branch: Branch) -> None:
        self.runtime = runtime
        self._branch = branch

    @property
    def quota(self) -> Quota | None:
        return self._branch.execution.quota

    # -- colours -------------------------------------------------------------------------------------------------------
    @property
    def held_clock(self) -> Clock | None:
        ex = self._branch.execution
        return None if ex.function.is_async else ex.engine.clock

    def refuse_coroutine(self, instead: str) -> None:
        function = self._branch.execution.function
        if not function.is_async:
            raise WrongColour(
                f"this is a coroutine, and {function.name!r} is a `def` workflow; write `{instead}` instead"
            )

    def block(self, work: Coroutine[Any, Any, R]) -> R:
        return asyncio.run_coroutine_threadsafe(bridged(work), self._branch.execution.engine.loop).result()

    def _perform(self, flow: Flow) -> Coroutine[Any, Any, Any]:
        return drive(self._branch.execution, flow)

    # -- functions -----------------------------------------------------------------------------------------------------
    def call(self, function: Function, args: Args, kwargs: Kwargs, options: Options) -> Coroutine[Any, Any, Any]:
        ex = self._branch.execution
        if not ex.function.is_async:
            self.refuse_coroutine(f"{function.name}.sync(…)" if function.is_async else f"{function.name}(…)")
        return named_after(function, drive(ex, self._operation(function, args, kwargs, options)))

    def call_blocking(self, function: Function, args: Args, kwargs: Kwargs, options: Options) -> Any:
        ex = self._branch.execution
        if ex.function.is_async:
            instead = f"await {function.name}{'' if function.is_async else '.aio'}(…)"
            if not on_running_loop():
                raise WrongColour(
                    f"{function.name!r} was called on a thread that an `async def` workflow uses; in the workflow itself write `{instead}`"
                )
            if function.is_async:
                refuse_blocking_on_loop(instead)
            raise WrongColour(
                f"{function.name!r} is a `def` {function.kind} and this is a coroutine; write `{instead}`"
            )
        return drive_blocking(ex, self._operation(function, args, kwargs, options))

    def _operation(self, function: Function, args: Args, kwargs: Kwargs, options: Options) -> Flow:
        """Return the call as an operation."""
        branch = self._branch
        ex = branch.execution
        known = self.runtime.registry.known(function)
        if known.kind == "step":
            step = StepCall.of(known, args, kwargs)
            if options.timeout is not None or options.no_timeout:
                step.timeout = options.timeout
            return steps.step(ex, branch.take_position(known.name), step)
        if known.kind == "transaction":
            return transaction(ex, branch.take_position(known.name), TransactionCall.of(known, args, kwargs))
        if options.key is not None or options.debounce is not None:
            raise InvalidInput(
                f"with a key it may be another run: write handle = await {known.name}.options(…).start(…), then its result()"
            )
        call = Invocation(self.runtime, known, args, kwargs, options)
        text = call.encode()
        position = branch.take_position(known.name)
        run_id = options.id or ex.child_id(ex.history.place(position, known.name))
        make = lambda: new_runs(self.runtime, [call], [text], [run_id], ex)  # noqa: E731
        return steps.call(ex, position, known.name, make, known.codec.result)

    def start(self, calls: Sequence[Invocation]) -> Coroutine[Any, Any, list[StartedRun]]:
        texts = encoded(self.runtime, calls)
        ex, position = (
            self._branch.execution,
            self._branch.take_position(f"{calls[0].name}.start" if len(calls) == 1 else "start_many"),
        )
        label = calls[0].name if len(calls) == 1 else "start_many"
        place = ex.history.place(position, label)
        places = [place] if len(calls) == 1 else [f"{place}.{number}" for number in range(len(calls))]
        ids = [
            call.options.id or ex.child_id(place, detached=call.options.parentless)
            for call, place in zip(calls, places, strict=True)
        ]

        make = lambda: new_runs(self.runtime, calls, texts, ids, ex)  # noqa: E731
        return self._started(steps.start(ex, position, label, make))

    def start_later(self, call: Invocation, text: str, time: Callable[[int], int]) -> Coroutine[Any, Any, StartedRun]:
        ex, position = self._branch.execution, self._branch.take_position(f"{call.name} for later")
        run_id = call.options.id or ex.child_id(ex.history.place(position, call.name), detached=True)
        make = lambda: [later_run(self.runtime, call, text, run_id, ex, time=time)]  # noqa: E731
        return Mapped(self._started(steps.start(ex, position, call.name, make)), lambda started: started[0])

    def _started(self, flow: Flow) -> Coroutine[Any, Any, list[StartedRun]]:
        return Mapped(self._perform(flow), _runs_of)

    # -- waiting -------------------------------------------------------------------------------------------------------
    def _until(self, timeout: Duration | None) -> int | None:
        return None if timeout is None else self._branch.execution.engine.clock.now() + micros(timeout)

    def result(self, run_id: str, codec: ValueCodec | None, timeout: Duration | None) -> Coroutine[Any, Any, Any]:
        until = self._until(timeout)
        if codec is None:
            return self._untyped_result(run_id, until)
        return self._perform(self._result(run_id, codec, until, together=False))

    def _result(self, run_id: str, codec: ValueCodec, until: int | None, *, together: bool) -> Flow:
        position = self._branch.take_position("result")
        return steps.result(self._branch.execution, position, run_id, codec, until, together=together)

    @ours
    async def _untyped_result(self, run_id: str, until: int | None) -> Any:
        (codec,) = await self._codecs([run_id])
        return await self._perform(self._result(run_id, codec, until, together=False))

    async def _codecs(self, ids: Sequence[str]) -> list[ValueCodec]:
        """Return the codecs of the runs' results. Each run's function is recorded, because the run may be deleted."""
        if self.runtime.has_no_code:
            return [self.runtime.result_codec(None) for _ in ids]

        def names(store: Store) -> list[str | None]:
            found = [store.run(run_id) for run_id in ids]
            return [None if run is None else run.workflow for run in found]

        workflows = await self.read("handle", list[str | None], names)
        return [self.runtime.result_codec(workflow) for workflow in workflows]

    def results(self, runs: Sequence[tuple[str, ValueCodec | None]]) -> Coroutine[Any, Any, list[Any]]:
        if any(codec is None for _, codec in runs):
            return self._untyped_results(runs)
        works = [
            self._perform(self._result(run_id, codec, None, together=True))
            for run_id, codec in runs
            if codec is not None
        ]
        return gathered(works, self.held_clock)

    @ours
    async def _untyped_results(self, runs: Sequence[tuple[str, ValueCodec | None]]) -> list[Any]:
        found = iter(await self._codecs([run_id for run_id, codec in runs if codec is None]))
        return await self.results([(run_id, codec or next(found)) for run_id, codec in runs])

    def first(self, ids: Sequence[str]) -> Coroutine[Any, Any, int]:
        ex = self._branch.execution
        works = [self._perform(steps.ended(ex, self._branch.take_position(), run_id)) for run_id in ids]
        return fastest(works, self.held_clock)

    # -- messages ------------------------------------------------------------------------------------------------------
    def send(self, posts: list[Post], label: str) -> Coroutine[Any, Any, None]:
        ex = self._branch.execution
        for post in posts:
            post.sender = ex.id
        return self._perform(messages.send(ex, self._branch.take_position("send"), "send", label, lambda: list(posts)))

    def publish(self, verb: StepKind, table: Table, key: str, value: str | None) -> Coroutine[Any, Any, None]:
        ex, position = self._branch.execution, self._branch.take_position(f"run.{verb}")
        return self._perform(
            messages.send(
                ex, position, verb, key, lambda: [Entry(table, ex.id, key, value, ex.engine.clock.now(), position)]
            )
        )

    def get_event(self, run_id: str, key: str, codec: ValueCodec, timeout: Duration | None) -> Coroutine[Any, Any, Any]:
        until = self._until(timeout)
        position = self._branch.take_position("get_event")
        return self._perform(messages.event(self._branch.execution, position, run_id, key, until=until, codec=codec))

    async def read_stream(
        self, run_id: str, key: str, codec: ValueCodec, offset: int, timeout: Duration | None
    ) -> AsyncIterator[Any]:
        one: Any = list[codec.annotation]  # type: ignore[name-defined]
        listed = value_codec(one, codec.where)
        while True:
            position, until = self._branch.take_position(), self._until(timeout)
            values = await self._perform(
                messages.stream(self._branch.execution, position, run_id, key, offset=offset, until=until, codec=listed)
            )
            if not values:
                return
            yield values[0]
            offset += 1

    def ask(self, post: Post, codec: ValueCodec, timeout: Duration | None) -> Coroutine[Any, Any, Any]:
        ex = self._branch.execution
        if post.run == ex.id:
            raise InvalidInput("a run cannot ask itself, because it would wait for ever; call the handler instead")
        post.sender = ex.id
        until = self._until(timeout)
        return self._perform(questions.ask(ex, self._branch.take_position("ask"), post, until, codec))

    # -- the store -----------------------------------------------------------------------------------------------------
    def read(self, label: str, kind: Any, question: Callable[[Store], R]) -> Coroutine[Any, Any, R]:
        return self._read_at(self._branch.take_position(label), label, kind, question)

    def _read_at(self, position: str, label: str, kind: Any, question: Callable[[Store], R]) -> Coroutine[Any, Any, R]:
        """Read from the store as a step: the read is executed again if no outcome was recorded, and while the database is unavailable."""
        runtime, ex = self.runtime, self._branch.execution

        async def step() -> R:
            connection = await runtime.connected()
            while True:
                try:
                    return await runtime.in_thread(question, connection.store)
                except StoreUnavailable as error:
                    log.warning("run %s waits for the database: %s", ex.id, error)
                    await asyncio.sleep(ex.engine.patience)

        call = StepCall(label, step, (), {}, is_async=True, result=value_codec(kind, f"the answer of {label}"))
        return drive(ex, steps.step(ex, position, call))

    def read_inside(self, label: str, kind: Any, question: Work[R]) -> Coroutine[Any, Any, R]:
        position = self._branch.take_position(label)
        origin = self._origin(position, label)
        return self._read_at(position, label, kind, lambda store: question(store, origin))

    def change(self, label: str, kind: Any, work: Work[R]) -> Coroutine[Any, Any, R]:
        position = self._branch.take_position(label)
        origin = self._origin(position, label)
        return self._change_at(position, label, kind, lambda inside: work(inside, origin))

    def _change_at(self, position: str, label: str, kind: Any, work: Callable[[Inside], R]) -> Coroutine[Any, Any, R]:
        """Do `work` in the transaction that records its outcome."""
        ex = self._branch.execution
        call = TransactionCall.of_own(label, work, value_codec(kind, f"the answer of {label}"))
        return drive(ex, transaction(ex, position, call))

    def _origin(self, position: str, label: str) -> str:
        ex = self._branch.execution
        return f"{ex.run.uid}-{ex.history.place(position, label)}"

    def change_in_parts(self, label: str, enter: Work[S], parts: Parts[S]) -> Coroutine[Any, Any, dict[str, str]]:
        return self._in_parts(self._branch.take_position(label), label, enter, parts)

    @ours
    async def _in_parts(self, position: str, label: str, enter: Work[S], parts: Parts[S]) -> dict[str, str]:
        def change(number: int) -> Coroutine[Any, Any, dict[str, str]]:
            place = f"{position}.{number}" if number else position
            origin = self._origin(place, label)
            return self._change_at(
                place, label, dict[str, str], lambda inside: parts[number](enter(inside, origin)) if parts else {}
            )

        answers = await change(0)
        for number in range(1, len(parts)):
            self._branch.execution.outstanding += 1
            answers |= await change(number)
        return answers

    def change_found(
        self, label: str, find: Find, act: ActOn, *, fences: bool = False
    ) -> Coroutine[Any, Any, dict[str, bool]]:
        ex = self._branch.execution
        batches = _Batches(self, ex, self._branch.take_position(label), label, act)
        return batches.all(lambda store, place: _kin_last(store, ex, find(store, place)), fences=fences)

    def cancel(self, label: str, ids: Sequence[str], reason: str | None) -> Coroutine[Any, Any, dict[str, bool]]:
        clock = self.runtime.clock
        return self.change(label, dict[str, bool], lambda store, _: dict(RunActions(store, clock).cancel(ids, reason)))

    def terminate(self, ids: Sequence[str], reason: str | None) -> Coroutine[Any, Any, dict[str, bool]]:
        """Terminate runs. A run cannot record that it ended itself or its ancestor, so these are terminated last."""
        ex, clock = self._branch.execution, self.runtime.clock
        found = list(dict.fromkeys(ids))

        def act(store: Store | Inside, chosen: list[str]) -> dict[str, bool]:
            return dict(RunActions(store, clock).terminate(chosen, reason))

        if ex.run.parent is None and ex.id not in found:
            return self.change("runs.terminate", dict[str, bool], lambda store, _: act(store, found))
        named = self.change_found("runs.terminate", lambda _store, _place: Found(found), act, fences=True)
        return of_all(ids, named)


def _runs_of(begun: Begun) -> list[StartedRun]:
    return [StartedRun(run_id, run_id not in begun.taken) for run_id in begun.ids]


def _kin_last(store: Store, ex: Execution, found: Found) -> Found:
    kin = kin_of(store, ex.run) & {*found.ids}
    return Found([run_id for run_id in found.ids if run_id not in kin], found.more, sorted(kin))


class _Batches:
    """Operations that one call makes: the first has the position of the call, the others have positions below it."""

    def __init__(self, caller: InRun, ex: Execution, position: str, label: str, act: ActOn) -> None:
        self._caller = caller
        self._ex = ex
        self._position = position
        self._label = label
        self._act = act
        self._made = 0

    @ours
    async def all(self, find: Find, *, fences: bool) -> dict[str, bool]:
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
            return done | await self._caller._read_at(  # noqa: SLF001
                self._next(), self._label, dict[str, bool], lambda store: self._act(store, kin)
            )
        return done | await self._change(kin)

    def _find(self, find: Find, place: str | None) -> Coroutine[Any, Any, Found]:
        return self._caller._read_at(self._next(), "runs.find", Found, lambda store: find(store, place))  # noqa: SLF001

    async def _change(self, ids: list[str]) -> dict[str, bool]:
        if not ids:
            return {}
        return await self._caller._change_at(  # noqa: SLF001
            self._next(),
            self._label,
            dict[str, bool],
            lambda inside: act_on_batch(lambda batch: self._act(inside, batch), ids),
        )

    def _next(self) -> str:
        self._made += 1
        if self._made == 1:
            return self._position
        self._ex.outstanding += 1
        return f"{self._position}.{self._made - 1}"
