"""`run`: the current run, for the code that it executes. Needs no app, so any module can import it."""

from __future__ import annotations

import asyncio
import inspect
import json
import random
import uuid
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, Self, TypeVar, cast, overload

from mainspring.app.caller.current import current_branch, current_caller
from mainspring.app.caller.mistakes import refuse_blocking_on_loop
from mainspring.app.dual import OverloadedVerb, dual
from mainspring.app.functions.options import moment
from mainspring.app.messages.names import named
from mainspring.app.messages.questions import Answer
from mainspring.app.undo import Undo
from mainspring.codec import result_codec
from mainspring.engine.drivers import drive, drive_blocking
from mainspring.engine.operations import messages, steps, undo
from mainspring.engine.operations.steps import StepCall
from mainspring.engine.operations.ticks import tick_of
from mainspring.engine.registry import Bound
from mainspring.engine.replay.context import here
from mainspring.engine.retry import Retry
from mainspring.errors import InvalidInput, NotInRun
from mainspring.model.clock import to_datetime
from mainspring.model.ids import is_storable
from mainspring.model.runs import user_of
from mainspring.recurrence.durations import micros

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from datetime import datetime
    from types import TracebackType

    from mainspring.app.functions.options import Duration, Moment
    from mainspring.app.messages.names import Event, Stream, Topic
    from mainspring.app.runtime import Runtime
    from mainspring.codec import ValueCodec
    from mainspring.engine.effects import Flow
    from mainspring.engine.operations.ticks import RunTick
    from mainspring.engine.replay.context import Branch
    from mainspring.engine.replay.execution import Execution
    from mainspring.model.runs import StepKind
    from mainspring.store.messages import Table


P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
_ONCE = Retry(1)


class AdHocStep(OverloadedVerb):
    """The verb `run.step`, with its options."""

    __slots__ = ("_at_most_once", "_interruptible", "_retry", "_timeout")
    _name = "step"

    def __init__(
        self,
        owner: CurrentRun,
        retry: Retry = _ONCE,
        timeout: int | None = None,
        *,
        at_most_once: bool = False,
        interruptible: bool = False,
    ) -> None:
        super().__init__(owner)
        self._retry = retry
        self._timeout = timeout
        self._at_most_once = at_most_once
        self._interruptible = interruptible

    def options(
        self,
        *,
        retry: Retry | int | None = None,
        timeout: Duration | None = None,
        at_most_once: bool = False,
        interruptible: bool = False,
    ) -> AdHocStep:
        """The same with the options of `@app.step`: `await run.step.options(retry=3, timeout="1m")("name", fn, …)`."""
        length = None if timeout is None else micros(timeout)
        if length is not None and length <= 0:
            raise InvalidInput(f"run.step.options: a timeout must be longer than zero, not {timeout!r}")
        policy = Retry.of(retry)
        if at_most_once and policy.attempts > 1:
            raise InvalidInput(
                "run.step.options: a step is never started a second time (at_most_once), so it cannot be retried"
            )
        return AdHocStep(
            cast("CurrentRun", self._owner),
            policy,
            length,
            at_most_once=at_most_once,
            interruptible=interruptible,
        )

    @overload
    def __call__(
        self, name: str, fn: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def __call__(
        self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]: ...
    def __call__(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        branch = current_branch("step")
        self._awaited()
        return drive(branch.execution, self._flow(branch, name, fn, args, kwargs))

    @overload
    def sync(self, name: str, fn: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def sync(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def sync(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """The same in a `def` workflow."""
        refuse_blocking_on_loop("await run.step(…)")
        branch = current_branch("step")
        return drive_blocking(branch.execution, self._flow(branch, name, fn, args, kwargs))

    def _flow(
        self, branch: Branch, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Flow:
        if not isinstance(name, str) or not name.strip() or not is_storable(name):
            raise InvalidInput(f"run.step takes a name first, then the function; {name!r} is not a name")
        if not callable(fn):
            raise InvalidInput(
                f"run.step({name!r}, …) takes the function and its arguments, not {fn!r}; do not call it yourself"
            )
        call = StepCall(
            name,
            fn,
            args,
            kwargs,
            is_async=inspect.iscoroutinefunction(fn),
            retry=self._retry,
            timeout=self._timeout,
            at_most_once=self._at_most_once,
            interruptible=self._interruptible,
            result=result_codec(fn, f"the result of step {name!r}"),
            awaits_result=True,
        )
        return steps.step(branch.execution, branch.take_position("run.step"), call)


class Receive(OverloadedVerb):
    """The verb `run.receive`."""

    __slots__ = ()
    _name = "receive"

    @overload
    def __call__(self, topic: Topic[T], timeout: None = None) -> Coroutine[Any, Any, T]: ...
    @overload
    def __call__(self, topic: Topic[T], timeout: Duration) -> Coroutine[Any, Any, T | None]: ...
    @overload
    def __call__(self, topic: str, timeout: Duration | None = None) -> Coroutine[Any, Any, Any]: ...
    def __call__(self, topic: Topic[Any] | str, timeout: Duration | None = None) -> Coroutine[Any, Any, Any]:
        branch = current_branch("receive")
        self._awaited()
        return drive(branch.execution, _receipt(branch, topic, timeout))

    @overload
    def sync(self, topic: Topic[T], timeout: None = None) -> T: ...
    @overload
    def sync(self, topic: Topic[T], timeout: Duration) -> T | None: ...
    @overload
    def sync(self, topic: str, timeout: Duration | None = None) -> Any: ...
    def sync(self, topic: Topic[Any] | str, timeout: Duration | None = None) -> Any:
        """The same in a `def` workflow."""
        refuse_blocking_on_loop("await run.receive(…)")
        branch = current_branch("receive")
        return drive_blocking(branch.execution, _receipt(branch, topic, timeout))


def _receipt(branch: Branch, topic: Topic[Any] | str, timeout: Duration | None) -> Flow:
    name, codec = named(topic, "topic")
    ex = branch.execution
    until = None if timeout is None else ex.engine.clock.now() + micros(timeout)
    return messages.receive(ex, branch.take_position("run.receive"), name, until, codec)


class CurrentRun:
    """The run whose code is executing. Outside a run every attribute and method raises `NotInRun`."""

    _spelled = "run"

    @property
    def _runtime(self) -> Runtime:
        return cast("Runtime", here().home)

    def __repr__(self) -> str:
        return "<the current run>"

    # -- messages ------------------------------------------------------------------------------------------------------
    @property
    def step(self) -> AdHocStep:
        """Run any function as a step of the current workflow, without registering it: `await run.step("name", fn, …)`.

        Options come before: `await run.step.options(retry=3, timeout="1m")("name", fn, …)`.
        """
        return AdHocStep(self)

    @property
    def receive(self) -> Receive:
        """Wait for the next message of a topic: `await run.receive(topic, timeout=…)`. Returns None when the timeout is over.

        Each message is received once, in the order in which they were sent. The wait holds no thread and no connection.
        """
        return Receive(self)

    @dual
    def set_event(self, /, key: Event[T] | str, value: T) -> Coroutine[Any, Any, None]:
        """Set a named value that every process can read with `get_event`, also after the end of the run. The last value counts."""
        name, codec = named(key, "event")
        return _publish("set_event", "events", name, _text(name, codec, value))

    @dual
    def write_stream(self, /, key: Stream[T] | str, value: T) -> Coroutine[Any, Any, None]:
        """Append a value to a stream that every process can read with `read_stream`. Raises `InvalidInput` if the stream is closed."""
        name, codec = named(key, "stream")
        return _publish("write_stream", "streams", name, _text(name, codec, value))

    @dual
    def close_stream(self, /, key: Stream[Any] | str) -> Coroutine[Any, Any, None]:
        """Close a stream: its readers end after the last value."""
        return _publish("close_stream", "streams", named(key, "stream")[0], None)

    @property
    def answer(self) -> Answer:
        """Register a handler that answers a question until the run ends: `run.answer(question, handler, validate=…)`.

        The handler gets the value and returns the answer. It may use all operations of a workflow. Questions of one name are
        answered one after the other, concurrently with the workflow. `validate` gets the value first. Its exception refuses the
        question, is raised at the caller, and is not recorded in the run. `validate` must have no effects.
        """
        return Answer(self)

    # -- plain ---------------------------------------------------------------------------------------------------------
    @property
    def id(self) -> str:
        """The id of the run."""
        return _execution().id

    @property
    def attempt(self) -> int:
        """The number of the present attempt, from 1: of the step inside a step, of the run in a workflow.

        In a step that is a run of its own, the attempts of both are counted together.
        """
        return here().attempt

    @property
    def version(self) -> str | None:
        """The version of the app that began the run."""
        return _execution().run.version

    @property
    def deadline(self) -> datetime | None:
        """The time at which the run times out, by its own timeout or its parent's. None: never."""
        deadline = _execution().run.deadline
        return None if deadline is None else to_datetime(deadline)

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the run (`options(attributes=…)`)."""
        found: dict[str, Any] = json.loads(_execution().run.attributes)
        return found

    @property
    def user(self) -> str | None:
        """The user of the run: `options(user=…)` of its start, or the user of its parent. None: there is none."""
        return user_of(_execution().run.attributes)

    @property
    def tick(self) -> RunTick | None:
        """The tick of the schedule that started the run, with the schedule's last result and failure. None: no schedule started it."""
        ex = _execution()
        return tick_of(ex.run, ex.function.codec.result)

    @property
    def step_key(self) -> str:
        """An idempotency key for outside services: the same in every attempt of this step and after a crash, unique to the step."""
        where = here()
        return f"{where.execution.run.uid}-{where.last_place()}"

    def patched(self, name: str) -> bool:
        """Whether the run takes the path of a patch: True in new runs, False in runs that were past this point before the patch.

        The answer is the same in every replay, and everywhere in the run.
        """
        if not isinstance(name, str) or not name.strip() or not is_storable(name):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"run.patched takes the name of a change, not {name!r}")
        return current_branch("patched").execution.patched(name)

    def undo(self) -> Undo:
        """Open a block with compensations: `async with run.undo() as undo:` … `undo.push(refund.bind(receipt))`.

        The pushed compensations are executed, last first, if the block fails or the run is cancelled or times out inside it.
        """
        return Undo()

    def now(self) -> datetime:
        """The time of the last recorded outcome: the same in every replay."""
        return to_datetime(_execution().history.last_time)

    def random(self) -> random.Random:
        """Return a random generator that gives the same numbers in every replay."""
        return random.Random(self._draw("random"))

    def uuid(self) -> uuid.UUID:
        """Return a UUID that is the same in every replay."""
        return uuid.UUID(int=random.Random(self._draw("uuid")).getrandbits(128), version=4)

    def _draw(self, what: str) -> str:
        where = here()
        return f"{where.execution.run.uid}:{what}:{where.next_draw()}"

    # -- waiting -------------------------------------------------------------------------------------------------------
    @dual
    def sleep(self, /, duration: Duration) -> Coroutine[Any, Any, None]:
        """Wait for a duration: `await run.sleep("3d")`. The wake-up time is recorded, so a restart neither shortens nor lengthens the wait."""
        length = micros(duration)
        branch = current_branch("sleep")
        return _sleep(branch, branch.execution.engine.clock.now() + length, "run.sleep")

    @dual
    def continue_as(self, /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, NoReturn]:
        """Restart the workflow with other arguments, under the same id and with an empty record. For endless workflows.

        The call does not return. Messages that were not received yet stay. Raises `InvalidInput` inside a `run.undo` block.
        """
        branch = current_branch("continue_as")
        ex = branch.execution
        if ex.scopes:
            raise InvalidInput(
                "run.continue_as inside a run.undo block would forget what there is to undo; leave the block first"
            )
        if ex.function.at_most_once:
            raise InvalidInput(f"{ex.function.name!r} is at_most_once, so run.continue_as cannot restart it")
        if ex.function.bound is not Bound.NOT:
            args = (ex.function.codec.decode(ex.run.input)[0][0], *args)
        text = ex.engine.check_size(
            ex.function.codec.bind_and_encode(args, kwargs), (args, kwargs), f"the arguments of {ex.function.name!r}"
        )
        return drive(ex, undo.continue_as(ex, branch.take_position("run.continue_as"), text))

    @dual
    def sleep_until(self, /, when: Moment) -> Coroutine[Any, Any, None]:
        """Wait until a time: an aware datetime, or seconds since 1970."""
        return _sleep(current_branch("sleep_until"), moment(when), "run.sleep_until")

    def timeout(self, duration: Duration) -> DurableTimeout:
        """Limit a block: `async with run.timeout("10m"):` raises TimeoutError in it. Durable: a restart does not extend the limit."""
        length = micros(duration)
        branch = current_branch("timeout")
        if not branch.execution.function.is_async:
            raise NotInRun("run.timeout needs an `async def` workflow: the code of a `def` one cannot be interrupted")
        until = branch.execution.engine.clock.now() + length
        return DurableTimeout(lambda: _sleep(current_branch("timeout"), until))


def _sleep(branch: Branch, until: int, verb: str | None = None) -> Coroutine[Any, Any, None]:
    ex = branch.execution
    return drive(ex, steps.sleep(ex, branch.take_position(verb), until))


def _publish(verb: StepKind, table: Table, key: str, value: str | None) -> Coroutine[Any, Any, None]:
    return current_caller(cast("Runtime", here().home)).publish(verb, table, key, value)


def _text(key: str, codec: ValueCodec, value: Any) -> str:
    return here().execution.engine.check_size(codec.encode(value), value, f"a value of {key!r}")


def _execution() -> Execution:
    return here().execution


run = CurrentRun()
"""The current run."""


class DurableTimeout:
    """The context manager of `run.timeout`. `expired` is True afterwards if the limit ended the block.

    The limit is a sleep in a branch of its own. Whether and when it ended is recorded, so a replay ends in the same way at any later time.
    `asyncio.timeout` would start over in every process.
    """

    def __init__(self, sleep: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._sleep = sleep
        self._task: asyncio.Task[Any] | None = None
        self._alarm: asyncio.Task[None] | None = None
        self._cancelling = 0
        self._over = False
        self.expired = False

    async def __aenter__(self) -> Self:
        if self._task is not None:
            raise InvalidInput("a run.timeout can be entered once; make another one")
        self._task = asyncio.current_task()
        assert self._task is not None  # noqa: S101  (a coroutine is being awaited)
        self._cancelling = self._task.cancelling()
        self._alarm = asyncio.get_running_loop().create_task(self._ring())
        return self

    async def _ring(self) -> None:
        await self._sleep()
        if self._task is not None and not self._over:
            self.expired = True
            self._task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        assert self._task is not None and self._alarm is not None  # noqa: S101, PT018  (it was entered)
        if not self.expired:
            self._alarm.cancel()
        await asyncio.wait({self._alarm})
        if not self.expired:
            return
        if self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError("the time that run.timeout allowed is over") from error
