"""The arguments of a call to JSON text and back, by the signature of the function.

A call is stored as one object, by parameter name: `{"order": {…}, "retries": 3}`; what goes into `*args` and `**kwargs`
stands under these names with their stars. Only what was given is stored, so a default is that of the code which executes.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Coroutine
from inspect import Parameter
from typing import TYPE_CHECKING, Any, Never, NoReturn, NotRequired, Required, TypedDict, get_args, get_origin

from mainspring.codec.resolve import Unresolved, annotations_of
from mainspring.codec.values import value_codec
from mainspring.errors import InvalidInput, NotSerializable

if TYPE_CHECKING:
    from collections.abc import Callable

_STARS = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}


class CallCodec:
    """Checks, writes and reads the arguments of one function, and has the codec of its result.

    `skip_first` leaves out a parameter that the library fills: `self`, `cls`, or the connection of a transaction.
    An annotation whose names cannot be found, because they are imported for type checkers only, counts as Any.
    """

    __slots__ = ("_arguments", "_keys", "_keywords", "_positional", "_rest", "_simple", "name", "result", "signature")

    def __init__(self, fn: Callable[..., Any], *, name: str, skip_first: bool = False) -> None:
        if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
            raise NotSerializable(
                f"{name!r} is a generator, whose result cannot be stored; return a list instead of yielding."
            )
        self.name = name
        signature = inspect.signature(fn)
        parameters = list(signature.parameters.values())[skip_first:]
        self.signature = signature.replace(parameters=parameters)
        hints = annotations_of(inspect.unwrap(fn))
        self.result = value_codec(_awaited(_known(hints.get("return", Any))), f"the result of {name!r}")

        self._keys = {parameter.name: _STARS.get(parameter.kind, "") + parameter.name for parameter in parameters}
        self._positional = tuple(p.name for p in parameters if p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD})
        self._rest = next((self._keys[p.name] for p in parameters if p.kind is p.VAR_POSITIONAL), None)
        self._keywords = next((self._keys[p.name] for p in parameters if p.kind is p.VAR_KEYWORD), None)
        self._simple = _simple_counts(parameters)
        fields = {self._keys[p.name]: _field(p, _known(hints.get(p.name, Any))) for p in parameters}
        shape = TypedDict(name, fields)  # type: ignore[operator, misc] # pyright: ignore
        self._arguments = value_codec(shape, f"the arguments of {name!r}")

    def bind_and_encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """The text to store for this call. Raises InvalidInput when the function could not be called, or not executed later,
        with these arguments."""
        if not args and not kwargs and 0 in self._simple:
            return "{}"
        if not kwargs and len(args) in self._simple:
            given = dict(zip(self._positional, args, strict=False))
        else:
            given = self._bind(args, kwargs)
        text = self._arguments.encode(given)
        self._arguments.decode(text)  # what is accepted can be executed: constructors and validators have had their say
        return text

    def decode(self, text: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments again, ready for `fn(*args, **kwargs)`."""
        if text == "{}" and 0 in self._simple:
            return (), {}
        named: dict[str, Any] = self._arguments.decode(text)
        args: list[Any] = []
        for name in self._positional:
            if name not in named:
                break
            args.append(named.pop(name))
        if self._rest is not None:
            args.extend(named.pop(self._rest, ()))
        if self._keywords is not None:
            named.update(named.pop(self._keywords, {}))
        return tuple(args), named

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        try:
            bound = self.signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidInput(
                f"{self.name!r} cannot be called like this: {error}. It is {self.name}{self.signature}."
            ) from None
        return {
            self._keys[name]: list(value) if self._keys[name] == self._rest else value for name, value in bound.items()
        }


def _simple_counts(parameters: list[Parameter]) -> range:
    """With how many positional arguments, and nothing else, a call is complete."""
    plain = [p for p in parameters if p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD}]
    if any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters):
        return range(0)
    return range(sum(p.default is p.empty for p in plain), len(plain) + 1)


def _field(parameter: Parameter, annotation: Any) -> Any:
    if parameter.kind is parameter.VAR_POSITIONAL:
        return NotRequired[list[annotation]]
    if parameter.kind is parameter.VAR_KEYWORD:
        return NotRequired[dict[str, annotation]]
    return Required[annotation] if parameter.default is parameter.empty else NotRequired[annotation]


def _known(annotation: Any) -> Any:
    return Any if isinstance(annotation, Unresolved) else annotation


def _awaited(annotation: Any) -> Any:
    """What is stored for a result: of an awaitable its value, of a function that never returns nothing."""
    if annotation in {Never, NoReturn}:
        return None
    if get_origin(annotation) in {Awaitable, Coroutine}:
        return get_args(annotation)[-1]
    return annotation
