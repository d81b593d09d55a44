"""Finds out where code is called from: outside, in a run, in a step or in a transaction. No other module looks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

from mainspring.app.caller.in_run import InRun
from mainspring.app.caller.in_transaction import InTransaction
from mainspring.app.caller.outside import InStep, Outside
from mainspring.engine.replay.context import Branch, StepScope, TransactionScope, current, here
from mainspring.errors import NotInRun

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from mainspring.app.caller.protocol import Args, Caller, Kwargs
    from mainspring.app.functions.options import Options
    from mainspring.app.runtime import Runtime
    from mainspring.engine.registry import Function

CALLERS: dict[type, Callable[[Runtime, Any], Caller]] = {
    type(None): lambda runtime, _: Outside(runtime),
    Branch: InRun,
    StepScope: InStep,
    TransactionScope: InTransaction,
}


class Home(Protocol):
    """The app or blueprint in which a function is registered."""

    @property
    def _runtime(self) -> Runtime: ...

    @property
    def _is_part_of_app(self) -> bool: ...


class FunctionCaller(Protocol):
    """The part of a caller that a function uses."""

    def call(self, function: Function, args: Args, kwargs: Kwargs, options: Options) -> Coroutine[Any, Any, Any]: ...

    def call_blocking(self, function: Function, args: Args, kwargs: Kwargs, options: Options) -> Any: ...


def current_caller(runtime: Runtime) -> Caller:
    """Return the caller of a verb of an app or client."""
    where = current.get()
    return (runtime.callers or CALLERS)[type(where)](runtime, where)


def caller_of_function(home: Home) -> FunctionCaller:
    """Return the caller of an app's function. Inside a run it acts for the process that executes the run."""
    where = current.get()
    if where is None:
        if not home._is_part_of_app:  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  (the other half)
            return WithoutApp(home)
        runtime = home._runtime  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    else:
        runtime = cast("Runtime", where.home)
    return (runtime.callers or CALLERS)[type(where)](runtime, where)


class WithoutApp:
    """The caller of a function of a blueprint that no app includes: a step is a plain function, the rest is an error."""

    __slots__ = ("_home",)

    def __init__(self, home: Home) -> None:
        self._home = home

    def call(self, function: Function, args: Args, kwargs: Kwargs, options: Options) -> Coroutine[Any, Any, Any]:
        if function.kind != "step" or not function.is_async:
            return Outside(runtime_here(self._home)).call(function, args, kwargs, options)
        plain: Coroutine[Any, Any, Any] = function.call_plainly(*args, **kwargs)
        return plain

    def call_blocking(self, function: Function, args: Args, kwargs: Kwargs, options: Options) -> Any:
        if function.kind != "step" or function.is_async:
            return Outside(runtime_here(self._home)).call_blocking(function, args, kwargs, options)
        return function.call_plainly(*args, **kwargs)


def runtime_here(home: Home) -> Runtime:
    """Return the runtime of the process that executes the current run; outside of runs the app's own runtime."""
    where = current.get()
    if where is None:
        return home._runtime  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return cast("Runtime", where.home)


def current_branch(verb: str) -> Branch:
    """Return the branch of a workflow in which a verb of `run` is called. Raise an error outside of workflows."""
    where = here()
    if isinstance(where, StepScope):
        raise NotInRun(f"run.{verb} belongs in a workflow, and this is a step; call it before or after the step")
    return where
