"""What the decorators make of a user's function: it can be called, started, bound and given options, in both colours."""

from __future__ import annotations

import asyncio
import functools
import threading
import warnings
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, cast, overload

from mainspring.app.dual import Dual, refuse_blocking_on_loop, refuse_coroutine_in_def_run
from mainspring.app.options import Options
from mainspring.engine.context import Line, current
from mainspring.engine.registry import Bound
from mainspring.errors import InvalidInput, WrongColour

if TYPE_CHECKING:
    from typing import Unpack

    from mainspring.app.handle import Handle
    from mainspring.app.options import OptionArguments
    from mainspring.app.runtime import Runtime
    from mainspring.engine.registry import Function

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")


class Home(Protocol):
    """The app or blueprint in which a function is registered."""

    @property
    def runtime(self) -> Runtime: ...


@dataclass(frozen=True)
class Call(Generic[R_co]):
    """A call that has not been made: a function with its arguments and options, checked. Start it, or hand it to a schedule."""

    runtime: Runtime
    function: Function
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: Options

    @property
    def name(self) -> str:
        return self.function.name

    def _block(self, work: Coroutine[Any, Any, R], label: str) -> R:
        return self.runtime.block(work, label)

    @property
    def start(self) -> Dual[[], Handle[R_co]]:
        """Start it in the background."""
        return Dual(self, lambda: self.runtime.starting.one(self), f"{self.name}.bind(…).start")


class _Fn(Generic[P, R]):
    """What functions of both colours have."""

    def __init__(self, home: Home, function: Function, options: Options = Options(), receiver: Any = None) -> None:  # noqa: B008
        self._home = home
        self._function = function
        self._options = options
        self._receiver = receiver
        functools.update_wrapper(self, function.fn, updated=())  # type: ignore[arg-type]

    @property
    def _runtime(self) -> Runtime:
        """Inside a run that of the process which executes it; otherwise that of the app."""
        where = current.get()
        return self._home.runtime if where is None else cast("Runtime", where.home)

    @property
    def name(self) -> str:
        """The name it is registered under."""
        return self._function.name

    def __repr__(self) -> str:
        return f"<{self._function.kind} {self.name}>"

    def _block(self, work: Coroutine[Any, Any, Any], label: str) -> Any:
        return self._runtime.block(work, label)

    def _all(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return args if self._receiver is None else (self._receiver, *args)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any], runtime: Runtime | None = None) -> Call[R]:
        if runtime is None:
            runtime = self._runtime
        return Call(runtime, runtime.registry.known(self._function), self._all(args), kwargs, self._options)

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """The call as a value. The arguments are checked now."""
        runtime = self._runtime
        call = self._call(args, kwargs, runtime)
        runtime.calls.encode(call)
        return call

    @property
    def start(self) -> Dual[P, Handle[R]]:
        """Start it in the background and get a handle."""

        def make(*args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Handle[R]]:
            return self._runtime.starting.one(self._call(args, kwargs))

        return Dual(self, make, f"{self.name}.start")

    def options(self, **given: Unpack[OptionArguments]) -> Self:
        """The same function, to run with these options."""
        return self._copy(options=self._options.with_(given))

    def _copy(self, *, options: Options | None = None, receiver: Any = None) -> Self:
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        if options is not None:
            made._options = options
        if receiver is not None:
            made._receiver = receiver
        return made

    def _bound_to(self, obj: Any, owner: Any) -> Self:
        bound = self._function.bound
        if bound is Bound.CLASS:
            return self._copy(receiver=owner)
        if obj is not None and obj is owner:  # only a classmethod asks so
            raise InvalidInput(
                f"{self.name!r} does not know that it is a classmethod; write @classmethod below @app.{self._function.kind}, "
                "directly above the function"
            )
        return self if obj is None or bound is Bound.NOT else self._copy(receiver=obj)

    def _in_run(self) -> Line | None:
        where = current.get()
        return where if isinstance(where, Line) else None

    def _warn_if_lost(self) -> None:
        """A thread of an event loop's own pool does not know that it works for a run."""
        if threading.current_thread().name.startswith("asyncio_") and self._runtime.executing:
            warnings.warn(
                f"{self.name} was called on a thread that does not know of any run (run_in_executor loses it), so it is a "
                f"plain call and nothing is recorded; in a workflow, write `await {self.name}{'' if self._function.is_async else '.aio'}(…)`",
                RuntimeWarning,
                stacklevel=4,
            )


class AsyncFn(_Fn[P, R]):
    """An `async def` workflow or step: `await fn(…)`, or `fn.sync(…)` from blocking code."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        refuse_coroutine_in_def_run(f"{self.name}.sync(…)")
        return self._made(args, kwargs)

    def _made(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Coroutine[Any, Any, R]:
        line = self._in_run()
        if line is not None:
            return self._runtime.calls.operation(line, self._call(args, kwargs))
        if self._function.kind == "transaction":
            return self._runtime.transacting.await_outside(self._call(args, kwargs))
        if self._function.kind != "workflow":
            self._warn_if_lost()
            plain: Coroutine[Any, Any, R] = self._function.fn(*self._all(args), **kwargs)
            return plain
        return self._runtime.results.call(self._call(args, kwargs))

    def sync(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call it from blocking code and wait for the result."""
        refuse_blocking_on_loop(f"await {self.name}(…)")
        line = self._in_run()
        if line is not None:
            found: R = self._runtime.calls.blocking_operation(line, self._call(args, kwargs))
            return found
        result: R = self._runtime.block(self._made(args, kwargs), self.name)
        return result

    @overload
    def __get__(self, obj: None, owner: type[Any]) -> Self: ...
    @overload
    def __get__(self: AsyncFn[Concatenate[S, Q], R], obj: S, owner: type[Any]) -> AsyncFn[Q, R]: ...
    def __get__(self, obj: Any, owner: Any) -> Any:
        return self._bound_to(obj, owner)


class SyncFn(_Fn[P, R]):
    """A `def` workflow or step: `fn(…)`, or `await fn.aio(…)` from a coroutine."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        line = self._in_run()
        if line is not None:
            if line.execution.function.is_async:
                raise WrongColour(
                    f"{self.name!r} is a `def` {self._function.kind} and this is a coroutine; write `await {self.name}.aio(…)`"
                )
            runtime = self._runtime
            if self._function.kind == "transaction":
                done: R = runtime.calls.blocking_transaction(line, self._function, self._all(args), kwargs)
                return done
            found: R = runtime.calls.blocking_operation(line, self._call(args, kwargs, runtime))
            return found
        if self._function.kind == "transaction":
            refuse_blocking_on_loop(f"await {self.name}.aio(…)")
            made: R = self._runtime.transacting.outside(self._call(args, kwargs))
            return made
        if self._function.kind != "workflow":
            self._warn_if_lost()
            plain: R = self._function.fn(*self._all(args), **kwargs)
            return plain
        refuse_blocking_on_loop(f"await {self.name}.aio(…)")
        result: R = self._runtime.block(self._runtime.results.call(self._call(args, kwargs)), self.name)
        return result

    def aio(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call it from a coroutine: it works on a thread of the app's pool meanwhile."""
        refuse_coroutine_in_def_run(f"{self.name}(…)")
        line = self._in_run()
        if line is not None:
            return self._runtime.calls.operation(line, self._call(args, kwargs))
        if self._function.kind == "transaction":
            return asyncio.to_thread(self._runtime.transacting.outside, self._call(args, kwargs))
        if self._function.kind != "workflow":
            return asyncio.to_thread(self._function.fn, *self._all(args), **kwargs)
        return self._runtime.results.call(self._call(args, kwargs))

    @overload
    def __get__(self, obj: None, owner: type[Any]) -> Self: ...
    @overload
    def __get__(self: SyncFn[Concatenate[S, Q], R], obj: S, owner: type[Any]) -> SyncFn[Q, R]: ...
    def __get__(self, obj: Any, owner: Any) -> Any:
        return self._bound_to(obj, owner)


def as_call(value: object) -> Call[Any]:
    """The call, or an error that says how to make one."""
    if isinstance(value, Call):
        call: Call[Any] = value  # pyright: ignore[reportUnknownVariableType]
        return call
    if isinstance(value, _Fn):
        raise InvalidInput(f"{value.name} is a function, not a call; write {value.name}.bind(…) with its arguments")
    raise InvalidInput(f"this takes a call, made with fn.bind(…), not {value!r}")


AnyFunction = Callable[..., Any]
