"""Registered functions: they can be called, started, bound and given options, from coroutines and from blocking code."""

from __future__ import annotations

import functools
from types import NoneType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from msgspec.structs import force_setattr

from mainspring.app.caller.current import caller_of_function, current_caller, runtime_here
from mainspring.app.coroutines import Mapped
from mainspring.app.dual import dual
from mainspring.app.functions.invocation import Invocation
from mainspring.app.functions.options import Options
from mainspring.app.handle import Handle, handle_of
from mainspring.engine.registry import Bound
from mainspring.errors import InvalidInput
from mainspring.model.given import check_name

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from inspect import Parameter
    from typing import Unpack

    from mainspring.app.caller.current import Home
    from mainspring.app.caller.protocol import StartedRun
    from mainspring.app.functions.options import OptionArguments
    from mainspring.app.runtime import Runtime
    from mainspring.engine.registry import Function

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")

_UNCHANGING: frozenset[type] = frozenset({str, int, float, bool, bytes, NoneType})
"""Types of arguments that cannot change between `bind` and `start`."""


class Call(Invocation, Generic[R_co], frozen=True):
    """A function with its arguments and options, checked and not called yet. Start it, or give it to a schedule."""

    @property
    def _runtime(self) -> Runtime:
        return self.runtime

    @property
    def _spelled(self) -> str:
        return f"{self.name}.bind(…)"

    @dual
    def start(self, /) -> Coroutine[Any, Any, Handle[R_co]]:
        """Start the function in the background. Returns a handle when the run is stored."""
        return start_one(self.runtime, self)


def start_all(runtime: Runtime, calls: list[Call[R]]) -> Coroutine[Any, Any, list[Handle[R]]]:
    """Start calls in one commit."""

    def handles(started: list[StartedRun]) -> list[Handle[R]]:
        return [handle_of(runtime, call.function.codec.result, one) for call, one in zip(calls, started, strict=True)]

    return Mapped(current_caller(runtime).start(calls), handles)


def start_one(runtime: Runtime, call: Call[R]) -> Coroutine[Any, Any, Handle[R]]:
    """Start a call."""
    codec = call.function.codec.result
    return Mapped(current_caller(runtime).start([call]), lambda started: handle_of(runtime, codec, started[0]))


class _Fn(Generic[P, R]):
    """The part that `AsyncFn` and `SyncFn` share."""

    def __init__(self, home: Home, function: Function, options: Options = Options(), receiver: Any = None) -> None:  # noqa: B008
        self._home = home
        self._function = function
        self._options = options
        self._receiver = receiver
        functools.update_wrapper(self, function.fn, updated=())  # type: ignore[arg-type]

    @property
    def _runtime(self) -> Runtime:
        """The runtime to use: inside a run that of the executing process, otherwise that of the app."""
        return runtime_here(self._home)

    @property
    def _spelled(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        """The name under which the function is registered."""
        return self._function.name

    def __repr__(self) -> str:
        return f"<{self._function.kind} {self.name}>"

    def _all(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return args if self._receiver is None else (self._receiver, *args)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call[R]:
        runtime = self._runtime
        return Call(runtime, runtime.registry.known(self._function), self._all(args), kwargs, self._options)

    def _arguments(self) -> list[Parameter]:
        """Return the parameters of a call: those of the function without the receiver and the transaction."""
        parameters = list(self._function.codec.signature.parameters.values())
        return parameters if self._receiver is None else parameters[1:]

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Return the call as a value, to be started later: `app.start_many(fn.bind(item) for item in items)`.

        The arguments are checked now. Raises `NotSerializable` for one that cannot be stored.
        """
        call = self._call(args, kwargs)
        text = call.encode()
        if _UNCHANGING.issuperset(map(type, args)) and _UNCHANGING.issuperset(map(type, kwargs.values())):
            force_setattr(call, "text", text)  # other arguments may change until the start, and are encoded again then
        return call

    @dual
    def start(self, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Handle[R]]:
        """Start the function in the background: `handle = await fn.options(id="order-7").start(order)`.

        Returns a handle when the run is stored; from then on no crash loses it. A second start with the same id returns the same run,
        with `created` False. Raises `Conflict` if the id belongs to a run of another function, `NotSerializable` for an argument
        that cannot be stored, and `StoreUnavailable` if the database cannot be reached; with an id it is safe to start again.
        """
        call = self._call(args, kwargs)
        return start_one(call.runtime, call)

    def handle(self, run_id: str) -> Handle[R]:
        """Return a typed handle for a run of this function by its id. An unknown id raises `NotFound` when the handle is used."""
        return Handle(self._runtime, check_name("the id of a run", run_id), self._function.codec.result)

    def options(self, **given: Unpack[OptionArguments]) -> Self:
        """Return the same function with options: `fn.options(queue="slow")(x)`, `.start(x)`, `.bind(x)`.

        `id` (a second start finds the same run), `queue`, `partition` and `priority` (smaller first), `after` or `at` (start later),
        `timeout` and `retry` of the run, `attributes` and `user` (to find it by), `key` and `key_mode` (one unfinished run per key),
        `debounce`, `detached` (not a child of the present run), `version` (only workers of that version execute it).
        """
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


class AsyncFn(_Fn[P, R]):
    """An `async def` workflow or step: `await fn(…)`, or `fn.sync(…)` from blocking code."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        caller = caller_of_function(self._home)
        return caller.call(self._function, self._all(args), kwargs, self._options)

    def sync(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function from blocking code, and wait for its result."""
        caller = caller_of_function(self._home)
        found: R = caller.call_blocking(self._function, self._all(args), kwargs, self._options)
        return found

    @overload
    def __get__(self: AsyncFn[Concatenate[type[S], Q], R], obj: S | None, owner: type[S]) -> AsyncFn[Q, R]: ...
    @overload
    def __get__(self, obj: None, owner: type[Any]) -> Self: ...
    @overload
    def __get__(self: AsyncFn[Concatenate[S, Q], R], obj: S, owner: type[Any]) -> AsyncFn[Q, R]: ...
    def __get__(self, obj: Any, owner: Any) -> Any:
        return self._bound_to(obj, owner)


class SyncFn(_Fn[P, R]):
    """A `def` workflow or step: `fn(…)`, or `await fn.aio(…)` from a coroutine."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        caller = caller_of_function(self._home)
        found: R = caller.call_blocking(self._function, self._all(args), kwargs, self._options)
        return found

    def aio(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call the function from a coroutine. It executes on a thread of the app's pool."""
        caller = caller_of_function(self._home)
        return caller.call(self._function, self._all(args), kwargs, self._options)

    @overload
    def __get__(self: SyncFn[Concatenate[type[S], Q], R], obj: S | None, owner: type[S]) -> SyncFn[Q, R]: ...
    @overload
    def __get__(self, obj: None, owner: type[Any]) -> Self: ...
    @overload
    def __get__(self: SyncFn[Concatenate[S, Q], R], obj: S, owner: type[Any]) -> SyncFn[Q, R]: ...
    def __get__(self, obj: Any, owner: Any) -> Any:
        return self._bound_to(obj, owner)


def as_call(value: object) -> Call[Any]:
    """Return the call. Raises `InvalidInput`, with the line to write instead, if the value is no call."""
    if isinstance(value, Call):
        call: Call[Any] = value  # pyright: ignore[reportUnknownVariableType]
        return call
    if isinstance(value, _Fn):
        raise InvalidInput(f"{value.name} is a function, not a call; write {value.name}.bind(…) with its arguments")
    raise InvalidInput(f"this takes a call, made with fn.bind(…), not {value!r}")
