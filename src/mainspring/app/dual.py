"""One verb for both kinds of code: `await verb(…)` in a coroutine, `verb.sync(…)` in blocking code.

`dual` makes both of one method and keeps its signature, name and docstring, for type checkers and for `help()`. A verb whose
types need overloads defines both methods, as an `OverloadedVerb`.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, cast, overload

from mainspring.app.caller.current import current_caller
from mainspring.app.caller.mistakes import refuse_blocking_on_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from mainspring.app.runtime import Runtime

P = ParamSpec("P")
R = TypeVar("R")


class Owner(Protocol):
    """An object with verbs. `_spelled` is its name in error messages: `run`, `app`, `handle`."""

    @property
    def _runtime(self) -> Runtime: ...

    @property
    def _spelled(self) -> str: ...


class TakesArguments(Protocol):
    """A function of the user's, whose verbs take its arguments."""

    def _arguments(self) -> list[inspect.Parameter]: ...


S = TypeVar("S", bound=Owner)


class _Verb:
    """Makes `help()` and `inspect` treat a verb as a routine: to them a descriptor is one."""

    __slots__ = ()

    def __get__(self, obj: object, owner: type[Any] | None = None) -> Self:
        return self


class Dual(_Verb, Generic[P, R]):
    """A verb bound to its object: call it for a coroutine, or call `.sync` to block."""

    __slots__ = ("_owner", "_verb")

    def __init__(self, owner: Owner, verb: dual[Any, P, R]) -> None:
        self._owner = owner
        self._verb = verb

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        owner = self._owner
        current_caller(owner._runtime).refuse_coroutine(f"{self._label}.sync(…)")  # noqa: SLF001  (the other half)
        try:
            return self._verb.method(owner, *args, **kwargs)
        except TypeError:
            self._check_arguments(args, kwargs)
            raise

    def sync(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Execute the verb, blocking until it is done."""
        owner = self._owner
        refuse_blocking_on_loop(f"await {self._label}(…)")
        try:
            work = self._verb.method(owner, *args, **kwargs)
        except TypeError:
            self._check_arguments(args, kwargs)
            raise
        return current_caller(owner._runtime).block(work)  # noqa: SLF001

    def _check_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise a TypeError that names the verb and its parameters if the arguments do not match its signature."""
        signature = self._signature()
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            functions = [each.name for each in args if hasattr(each, "bind") and hasattr(each, "name")]
            hint = f"; a function is given with its arguments: {functions[0]}.bind(…)" if functions else ""
            shown = ", ".join(signature.parameters)
            raise TypeError(f"{self._label}({shown}): {error}{hint}") from None

    @property
    def _label(self) -> str:
        return f"{self._owner._spelled}.{self._verb.__name__}"  # noqa: SLF001

    def __repr__(self) -> str:
        return f"<verb {self._label}>"

    @property
    def __name__(self) -> str:
        return self._verb.__name__

    def _signature(self) -> inspect.Signature:
        signature = inspect.signature(self._verb.method)
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    @property
    def __signature__(self) -> inspect.Signature:
        """The signature that `help()` shows. A verb that takes the arguments of a user's function has that function's parameters."""
        signature = self._signature()
        if any(each.annotation == "P.args" for each in signature.parameters.values()):
            signature = signature.replace(parameters=cast("TakesArguments", self._owner)._arguments())  # noqa: SLF001
        return signature

    if not TYPE_CHECKING:

        @property
        def __doc__(self) -> str | None:
            return self._verb.__doc__


class dual(Generic[S, P, R]):  # noqa: N801  (used as a decorator)
    """Make a method that returns a coroutine into a `Dual`."""

    def __init__(self, method: Callable[Concatenate[S, P], Coroutine[Any, Any, R]]) -> None:
        self.method = method
        self.__doc__ = method.__doc__
        self.__name__ = method.__name__
        self.__wrapped__ = method

    def __call__(self, obj: S, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call the verb of an object: `App.send(app, …)`. `help(App.send)` shows the signature of what can be called."""
        return Dual(obj, self)(*args, **kwargs)

    @overload
    def __get__(self, obj: None, owner: type[Any]) -> Self: ...
    @overload
    def __get__(self, obj: S, owner: type[Any]) -> Dual[P, R]: ...
    def __get__(self, obj: S | None, owner: type[Any]) -> Self | Dual[P, R]:
        return self if obj is None else Dual(obj, self)


class OverloadedVerb(_Verb):
    """A verb bound to its object, whose types need overloads: it defines `__call__` and, where it can block, `sync`.

    Its text is that of the attribute by which users reach it: the property `_name` of its owner.
    """

    __slots__ = ("_owner",)
    _name = ""

    def __init_subclass__(cls) -> None:
        """Give each subclass a `__doc__` that its objects show in `help()`, which leaves out a text inherited from a class."""
        cls.__doc__ = property(OverloadedVerb._text)  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]

    def _text(self) -> str | None:
        text: str | None = getattr(type(self._owner), self._name).__doc__
        return text

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    @property
    def __name__(self) -> str:
        return self._name

    @property
    def __signature__(self) -> inspect.Signature:
        call: Callable[..., Any] = getattr(self, "__call__")  # noqa: B004, B009  (each subclass has its own)
        return inspect.signature(call)

    @property
    def _label(self) -> str:
        return f"{self._owner._spelled}.{self._name}"  # noqa: SLF001

    def _awaited(self) -> None:
        """Raise an error where nothing could await a coroutine."""
        current_caller(self._owner._runtime).refuse_coroutine(f"{self._label}.sync(…)")  # noqa: SLF001

    def _blocked(self, make: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Execute a verb and block until it is done."""
        refuse_blocking_on_loop(f"await {self._label}(…)")
        return current_caller(self._owner._runtime).block(make())  # noqa: SLF001
