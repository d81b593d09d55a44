"""Calls of users' functions inside runs: a step or a transaction, its arguments, its options, and exceptions that would end more than it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from mainspring.engine.forked import await_here, call_here
from mainspring.engine.registry import Bound
from mainspring.engine.retry import Retry
from mainspring.store.external.tx import Wants

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.codec import ValueCodec
    from mainspring.engine.registry import Function
    from mainspring.engine.replay.execution import Execution
    from mainspring.model.runs import StepKind
    from mainspring.store.external.join import Inside
    from mainspring.store.external.other_database import OtherDatabase
    from mainspring.store.external.transactions import Session, Within


_ONCE = Retry(1)


class StepCall(Struct):
    """A step to execute: the function, its arguments and its retry policy."""

    name: str
    fn: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    is_async: bool
    retry: Retry
    timeout: int | None
    at_most_once: bool
    interruptible: bool
    result: ValueCodec
    batch: int | None = None
    """Most inputs of one call of a batch function."""
    awaits_result: bool = False
    """Whether a coroutine that the function returns is awaited: a lambda or an object does not say that it makes one."""

    @classmethod
    def of(cls, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> StepCall:
        return cls(
            function.name,
            function.fn,
            args,
            kwargs,
            function.is_async,
            function.retry,
            function.timeout,
            function.at_most_once,
            function.interruptible,
            function.codec.result,
            function.batch,
        )

    @classmethod
    def once(
        cls,
        name: str,
        fn: Callable[..., Any],
        result: ValueCodec,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        is_async: bool = True,
    ) -> StepCall:
        """Return the call of a plain function as a step: one attempt, no timeout."""
        return cls(
            name=name,
            fn=fn,
            args=args,
            kwargs=kwargs or {},
            is_async=is_async,
            retry=_ONCE,
            timeout=None,
            at_most_once=False,
            interruptible=False,
            result=result,
        )


class TransactionCall(Struct):
    """A transaction to execute: the function, its arguments, and the position of its connection parameter."""

    name: str
    fn: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    is_async: bool
    result: ValueCodec
    wants: Wants
    place: int
    isolation: str | None
    database: OtherDatabase | None = None
    """The database of the transaction, if not the app's own."""
    within: Within | None = None
    """Opens the transaction, if it is executed on a connection of the user's."""
    kind: StepKind = "transaction"
    """The kind under which the transaction is recorded."""
    of_library: bool = False
    """Whether the function is the library's own, which works with the store inside the transaction."""

    @classmethod
    def of(cls, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TransactionCall:
        assert function.wants is not None  # noqa: S101
        return cls(
            function.name,
            function.fn,
            args,
            kwargs,
            function.is_async,
            function.codec.result,
            function.wants,
            0 if function.bound is Bound.NOT else 1,
            function.isolation,
            function.database,
            function.within,
        )

    @classmethod
    def of_own(cls, name: str, work: Callable[[Inside], Any], result: ValueCodec) -> TransactionCall:
        """Return a change that the library makes in the store, recorded as a step."""
        return cls(
            name=name,
            fn=work,
            args=(),
            kwargs={},
            is_async=False,
            result=result,
            wants=Wants.TX,
            place=0,
            isolation=None,
            kind="step",
            of_library=True,
        )

    def made(self, session: Session) -> Any:
        """Call the function with its connection or session and its arguments."""
        if self.of_library:
            return session.joined.within(self.fn)
        given = session.give(self.wants)
        args = self.args if self.wants is Wants.NOTHING else (*self.args[: self.place], given, *self.args[self.place :])
        return await_here(self.fn(*args, **self.kwargs)) if self.is_async else call_here(self.fn, *args, **self.kwargs)


# StopIteration and GeneratorExit end the generators and coroutines above. A SystemExit of a task ends the event loop, and the worker with it; the
# next worker would recover the run and end in the same way. So each of them becomes an error of its function. A KeyboardInterrupt comes from the
# user at the terminal, and ends the process. A step or transaction that is a run of its own has no tasks of the user's above it, so its SystemExit
# is recorded as it is.
EXITS: Final = (StopIteration, GeneratorExit, SystemExit)


def exits_of(ex: Execution) -> tuple[type[BaseException], ...]:
    """Return the exceptions that become errors of a step or transaction of this run."""
    return EXITS if ex.function.kind == "workflow" else (StopIteration, GeneratorExit)


def error_of(exit_: BaseException, what: str) -> RuntimeError:
    """Return the error of a function that raised one of these exceptions."""
    return RuntimeError(f"{what} raised {type(exit_).__name__}")


def was_closed(error: BaseException) -> bool:
    """Whether an exception means that a coroutine was closed by the garbage collector, and was not raised by code below it."""
    trace = error.__traceback__
    return isinstance(error, GeneratorExit) and (trace is None or trace.tb_next is None)
