"""One verb, two colours: `await verb(…)` in a coroutine, `verb.sync(…)` in blocking code. No verb is written twice."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from mainspring.engine.context import Line, current
from mainspring.errors import WrongColour

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

P = ParamSpec("P")
R = TypeVar("R")


class Bridged(Protocol):
    """Something whose coroutines can be waited for by blocking code."""

    def _block(self, work: Coroutine[Any, Any, R], label: str) -> R:
        """Run a coroutine on a loop of the app's and block until it is done."""
        ...


class Spelled(Bridged, Protocol):
    """One that has a name which users write: `run`, `app`, `handle`. Messages spell the right line with it."""

    _spelled: ClassVar[str]


S = TypeVar("S", bound=Spelled)


class Dual(Generic[P, R]):
    """A verb bound to its object: call it for a coroutine, or call `.sync` to block."""

    __slots__ = ("_label", "_make", "_owner")

    def __init__(self, owner: Bridged, make: Callable[P, Coroutine[Any, Any, R]], label: str) -> None:
        self._owner = owner
        self._make = make
        self._label = label

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        refuse_coroutine_in_def_run(f"{self._label}.sync(…)")
        return self._make(*args, **kwargs)

    def sync(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The same, blocking until it is done."""
        refuse_blocking_on_loop(f"await {self._label}(…)")
        return self._owner._block(self._make(*args, **kwargs), self._label)  # noqa: SLF001  (the other half of the bridge)


class dual(Generic[S, P, R]):  # noqa: N801  (used as a decorator)
    """Make a method that returns a coroutine into a `Dual`."""

    def __init__(self, method: Callable[Concatenate[S, P], Coroutine[Any, Any, R]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__
        self._name = method.__name__

    @overload
    def __get__(self, obj: None, owner: type[Any]) -> Self: ...
    @overload
    def __get__(self, obj: S, owner: type[Any]) -> Dual[P, R]: ...
    def __get__(self, obj: S | None, owner: type[Any]) -> Self | Dual[P, R]:
        if obj is None:
            return self
        method = self._method

        def make(*args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
            return method(obj, *args, **kwargs)

        return Dual(obj, make, f"{obj._spelled}.{self._name}")  # noqa: SLF001  (the other half of the bridge)


def on_running_loop() -> bool:
    """Whether this thread is executing an event loop right now."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def refuse_blocking_on_loop(instead: str) -> None:
    """Blocking here would stop everything else that the loop does, and wait for itself for ever."""
    if on_running_loop():
        raise WrongColour(f"this blocks, and here an event loop is running; write `{instead}` instead")


def refuse_coroutine_in_def_run(instead: str) -> None:
    """A coroutine that nothing can await would silently not happen."""
    where = current.get()
    if isinstance(where, Line) and not where.execution.function.is_async:
        raise WrongColour(
            f"this is a coroutine, and {where.execution.function.name!r} is a `def` workflow; write `{instead}` instead"
        )
