"""`run`: the run that is being executed, seen from its own code. Needs no app, so it can be imported anywhere."""

from __future__ import annotations

import inspect
import json
import random
import uuid
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, ParamSpec, TypeVar, overload

from mainspring.app.asking import Answer
from mainspring.app.dual import dual, refuse_blocking_on_loop, refuse_coroutine_in_def_run
from mainspring.app.options import micros, moment
from mainspring.app.run_talk import CloseStream, Receive, SetEvent, WriteStream
from mainspring.app.run_timeout import DurableTimeout
from mainspring.app.undo import Undo
from mainspring.codec import value_codec
from mainspring.engine import flows, undoing
from mainspring.engine.context import Line, StepScope, here
from mainspring.engine.drivers import drive, drive_blocking, on_loop
from mainspring.engine.flows import StepCall
from mainspring.engine.registry import Bound
from mainspring.engine.retry import Retry
from mainspring.engine.ticks import tick_of
from mainspring.errors import InvalidInput, NotInRun
from mainspring.model.clock import to_datetime

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from datetime import datetime

    from mainspring.app.options import Duration, Moment
    from mainspring.engine.execution import Execution
    from mainspring.engine.recording import Flow
    from mainspring.engine.ticks import RunTick

P = ParamSpec("P")
R = TypeVar("R")


def _line(verb: str) -> Line:
    where = here()
    if isinstance(where, StepScope):
        raise NotInRun(f"run.{verb} belongs in a workflow; inside a step nothing is recorded by itself")
    return where


class _AdHocStep:
    """`await run.step("name", fn, …)`, or `run.step.sync("name", fn, …)` in a `def` workflow."""

    @overload
    def __call__(
        self, name: str, fn: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def __call__(
        self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]: ...
    def __call__(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        refuse_coroutine_in_def_run("run.step.sync(…)")
        line = _line("step")
        return drive(line.execution, self._flow(line, name, fn, args, kwargs))

    @overload
    def sync(self, name: str, fn: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def sync(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def sync(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """The same in a `def` workflow."""
        refuse_blocking_on_loop("await run.step(…)")
        line = _line("step")
        return drive_blocking(line.execution, self._flow(line, name, fn, args, kwargs))

    @staticmethod
    def _flow(line: Line, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Flow:
        if not isinstance(name, str) or not name.strip():
            raise InvalidInput(f"run.step takes a name first, then the function; {name!r} is not a name")
        if not callable(fn):
            raise InvalidInput(
                f"run.step({name!r}, …) takes the function and its arguments, not {fn!r}; do not call it yourself"
            )
        hints = inspect.get_annotations(fn) if inspect.isfunction(fn) else {}
        returns = hints.get("return", Any)
        codec = value_codec(Any if isinstance(returns, str) else returns, f"the result of step {name!r}")
        call = StepCall(
            name,
            fn,
            args,
            kwargs,
            is_async=inspect.iscoroutinefunction(fn),
            retry=Retry(1),
            timeout=None,
            at_most_once=False,
            interruptible=False,
            result=codec,
        )
        line.execution.outstanding += 1
        return flows.step(line.execution, line.next_position(), call)


class CurrentRun:
    """The run whose code is executing. Outside runs everything here is a `NotInRun` error."""

    _spelled: ClassVar[str] = "run"

    step = _AdHocStep()
    """Run any function as a step of the current workflow, without registering it."""

    receive = Receive()
    """The next message of a topic; None when the time is over."""
    set_event = SetEvent()
    """Give a named value that anybody can read; the last one counts."""
    write_stream = WriteStream()
    """Add a value to a stream that anybody can read."""
    answer = Answer()
    """Answer a question from now on, for as long as the run lasts."""
    close_stream = CloseStream()
    """Let the readers of a stream come to their end."""

    def _block(self, work: Coroutine[Any, Any, R], label: str) -> R:
        del label
        result: R = on_loop(here().execution, work)
        return result

    def __repr__(self) -> str:
        return "<the current run>"

    # -- plain ---------------------------------------------------------------------------------------------------------
    @property
    def id(self) -> str:
        """The run's id."""
        return _execution().id

    @property
    def attempt(self) -> int:
        """Inside a step: the number of this attempt of the step, from 1. In a workflow: that of this attempt of the run.

        In a step that is a run of its own, attempts of both are counted together.
        """
        where = here()
        return where.attempt if isinstance(where, StepScope) else where.execution.run.attempts

    @property
    def version(self) -> str | None:
        """The version of the app that began the run."""
        return _execution().run.version

    @property
    def deadline(self) -> datetime | None:
        """When the run is out of time."""
        deadline = _execution().run.deadline
        return None if deadline is None else to_datetime(deadline)

    @property
    def attributes(self) -> dict[str, Any]:
        """What the run was tagged with when it was started."""
        found: dict[str, Any] = json.loads(_execution().run.attributes)
        return found

    @property
    def tick(self) -> RunTick | None:
        """The tick of the schedule that started the run, with what there was to know at that moment; None if none did."""
        ex = _execution()
        return tick_of(ex.run, ex.function.codec.result)

    @property
    def step_key(self) -> str:
        """The same in every attempt and after every crash, and nowhere else: an idempotency key for outside services."""
        where = here()
        position = where.position if isinstance(where, StepScope) else where.last_position()
        return f"{where.execution.run.uid}-{position}"

    def patched(self, name: str) -> bool:
        """Whether to take the path that a change of the workflow has made: True in new runs, False in those that have been past
        here before the change. The answer is the same in every replay, and everywhere in the run.
        """
        if not isinstance(name, str) or not name.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"run.patched takes the name of a change, not {name!r}")
        return _line("patched").execution.patched(name)

    def undo(self) -> Undo:
        """A block with compensations: `async with run.undo() as undo:` … `undo.push(refund.bind(receipt))`."""
        return Undo()

    def now(self) -> datetime:
        """The time of the last recorded outcome: the same in every replay."""
        return to_datetime(_execution().last_time)

    def random(self) -> random.Random:
        """A random generator that gives the same numbers in every replay."""
        return random.Random(self._draw("random"))

    def uuid(self) -> uuid.UUID:
        """A UUID that is the same in every replay."""
        return uuid.UUID(int=random.Random(self._draw("uuid")).getrandbits(128), version=4)

    def _draw(self, what: str) -> str:
        where = here()
        return f"{where.execution.run.uid}:{what}:{where.next_draw()}"

    # -- waiting -------------------------------------------------------------------------------------------------------
    @dual
    def sleep(self, /, duration: Duration) -> Coroutine[Any, Any, None]:
        """Wait for a duration. The time to wake is recorded, so restarts neither shorten nor lengthen it."""
        length = micros(duration)
        line = _line("sleep")
        return _sleep(line, line.execution.engine.clock.now() + length)

    @dual
    def continue_as(self, /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, NoReturn]:
        """Begin anew with other arguments, under the same id, with nothing recorded: for workflows that never end."""
        line = _line("continue_as")
        ex = line.execution
        if ex.scopes:
            raise InvalidInput(
                "run.continue_as inside a run.undo block would forget what there is to undo; leave the block first"
            )
        if ex.function.at_most_once:
            raise InvalidInput(f"{ex.function.name!r} is started at most once, so it cannot begin anew")
        if ex.function.bound is not Bound.NOT:
            args = (ex.function.codec.decode(ex.run.input)[0][0], *args)
        text = ex.engine.check_size(
            ex.function.codec.bind_and_encode(args, kwargs), (args, kwargs), f"the arguments of {ex.function.name!r}"
        )
        ex.outstanding += 1
        return drive(ex, undoing.continue_as(ex, line.next_position(), text))

    @dual
    def sleep_until(self, /, when: Moment) -> Coroutine[Any, Any, None]:
        """Wait until a time: an aware datetime, or seconds since 1970."""
        return _sleep(_line("sleep_until"), moment(when))

    def timeout(self, duration: Duration) -> DurableTimeout:
        """`async with run.timeout("10m"):` raises TimeoutError in the block when that much time is over, restarts or not."""
        length = micros(duration)
        line = _line("timeout")
        if not line.execution.function.is_async:
            raise NotInRun("run.timeout needs an `async def` workflow: the code of a `def` one cannot be interrupted")
        until = line.execution.engine.clock.now() + length
        return DurableTimeout(lambda: _sleep(_line("timeout"), until))


def _sleep(line: Line, until: int) -> Coroutine[Any, Any, None]:
    line.execution.outstanding += 1
    return drive(line.execution, flows.sleep(line.execution, line.next_position(), until))


def _execution() -> Execution:
    return here().execution


run = CurrentRun()
"""The current run."""
