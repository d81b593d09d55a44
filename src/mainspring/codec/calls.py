"""Encode the arguments of a call as JSON text, and decode them, by the signature of the function.

A call is stored as one object, by parameter name: `{"order": {…}, "retries": 3}`. The values of `*args` and `**kwargs` are stored under
these names with their stars. Only given arguments are stored, so a default is that of the code which executes the call.
A caller that does not have the function stores the positional arguments under a star alone: `{"*": [{…}, 3]}`. Only such a call is bound to the
function's signature when it is decoded: `{"*": [], "order": {…}}` fails if there is no parameter `order`.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Awaitable, Collection, Coroutine, Iterable, Sequence
from inspect import Parameter
from typing import (
    TYPE_CHECKING,
    Any,
    Never,
    NoReturn,
    NotRequired,
    Required,
    TypedDict,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from mainspring.codec.json_schema import schema_of
from mainspring.codec.resolve import annotations_of, return_annotation, unresolved
from mainspring.codec.type_codec import Misfit
from mainspring.codec.values import UNTAGGED, value_codec
from mainspring.errors import InvalidInput, NotSerializable, PayloadError
from mainspring.model.payloads import SEALED, UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.codec.values import ValueCodec

_STARS: dict[object, str] = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}
_NAMELESS = "*"
_SPECIAL = ('{"*":', SEALED)
_write = msgspec.json.Encoder().encode


class CallCodec:
    """Checks, encodes and decodes the arguments of one function, and has the codec of its result.

    `skip_first` omits a parameter that the library fills, `self` or `cls`. `skip` omits one by its number: the
    connection of a transaction. An annotation with a name that is unknown at run time, because it is imported for type
    checkers only, counts as `Any`.
    """

    __slots__ = (
        "_arguments",
        "_by_name",
        "_keys",
        "_keywords",
        "_positional",
        "_required",
        "_rest",
        "_trial",
        "name",
        "result",
        "signature",
        "unresolved",
    )

    def __init__(self, fn: Callable[..., Any], *, name: str, skip_first: bool = False, skip: int | None = None) -> None:
        inner = _function(fn)
        if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
            raise NotSerializable(
                f"{name!r} is a generator, whose result cannot be stored: return a list instead of yielding."
            )
        parameters = [each for number, each in enumerate(_parameters(fn)) if number != (0 if skip_first else skip)]
        hints = annotations_of(inner) if inspect.isfunction(inner) else {}
        self.name = name
        self.signature = inspect.Signature(parameters)
        written = {**{p.name: hints.get(p.name) for p in parameters}, "return": hints.get("return")}
        self.unresolved = {name: text for name, hint in written.items() if (text := unresolved(hint)) is not None}
        """The annotations that could not be resolved, by parameter, or `return`. They count as `Any`."""
        self.result: ValueCodec = value_codec(_awaited(hints.get("return", Any)), f"the result of {name!r}")
        self._keys = {p.name: _STARS.get(p.kind, "") + p.name for p in parameters}
        self._positional = tuple(p.name for p in parameters if p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD})
        self._rest = next((self._keys[p.name] for p in parameters if p.kind is p.VAR_POSITIONAL), None)
        self._keywords = next((self._keys[p.name] for p in parameters if p.kind is p.VAR_KEYWORD), None)
        self._by_name = frozenset(p.name for p in parameters if p.kind in {p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY})
        self._required = frozenset(p.name for p in parameters if p.default is p.empty and p.kind not in _STARS)
        fields = {self._keys[p.name]: _field(p, hints.get(p.name, Any)) for p in parameters}
        self._arguments = value_codec(cast("Any", TypedDict)(name, fields), f"the arguments of {name!r}")
        self._trial = self._arguments.custom

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the arguments, by parameter name. A parameter that a schema cannot describe takes anything."""
        hints = get_type_hints(self._arguments.annotation)
        properties = {name: schema_of(hint) or {} for name, hint in hints.items()}
        for each in self.signature.parameters.values():
            if each.default is not each.empty and (default := _plain_default(each.default)) is not None:
                properties[self._keys[each.name]] = {**properties[self._keys[each.name]], "default": default}
        needed = [name for name in properties if name in self._required]
        return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}

    def bind_and_encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Return the JSON text of a call.

        Raises `InvalidInput` if the function does not take these arguments, and `NotSerializable` if a value does not
        match its annotation.
        """
        if not args and not kwargs and not self._required:
            return "{}"
        given = dict(zip(self._positional, args, strict=False))
        if kwargs:
            given |= kwargs
        # The fast path: all names known, none twice, none missing. Otherwise `_bind` finds the fault.
        if len(given) != len(args) + len(kwargs) or not (
            kwargs.keys() <= self._by_name and self._required <= given.keys()
        ):
            given = self._bind(args, kwargs)
        text = self._arguments.encode(given)
        if self._trial:  # constructors and validators run at the call, not only when a worker decodes the arguments
            self._arguments.decode(text)
        return text

    def decode(self, text: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments for `fn(*args, **kwargs)`. Raises `NotSerializable` if they do not fit the function."""
        if text == "{}" and not self._required:
            return (), {}
        if text.startswith(_SPECIAL):
            text = self._name_positionals(text)
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
            raise InvalidInput(f"{self._shown()} cannot be called like this: {error}.") from None
        return {
            self._keys[name]: list(value) if self._keys[name] == self._rest else value for name, value in bound.items()
        }

    def _name_positionals(self, text: str) -> str:
        """Return the text of a call that was stored without the function, as if it had been stored with it."""
        if text.startswith(SEALED):
            raise PayloadError(f"the input of {self.name!r} {UNREADABLE}")
        try:
            stored: dict[str, Any] = msgspec.json.decode(text)
            return _write(self._bind(tuple(stored.pop(_NAMELESS)), stored)).decode()
        except (InvalidInput, TypeError, msgspec.DecodeError) as error:
            raise NotSerializable(f"the stored arguments of {self.name!r} do not fit: {error}") from None

    def _shown(self) -> str:
        shown = str(self.signature).replace("'", "")
        return f"{self.name}{shown}"


def _plain_default(value: object) -> Any:
    """Return a default that JSON can express, for a form. None for others."""
    return value if isinstance(value, str | int | float | bool) else None


def encode_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return the JSON text of a call of a function that is not known here, as by a client without its code.

    Values are encoded by their own classes. The worker that has the function checks whether they fit.
    """
    try:
        return _write({_NAMELESS: UNTAGGED.lower(args), **UNTAGGED.lower(kwargs)}).decode()
    except Misfit as misfit:
        raise NotSerializable(f"the arguments cannot be stored as JSON: {misfit}.") from None
    except RecursionError:
        raise NotSerializable(
            "the arguments cannot be stored as JSON: they are nested too deeply, or contain themselves."
        ) from None


def result_codec(fn: Callable[..., Any], where: str) -> ValueCodec:
    """Return the codec of what a function returns, by its annotation, also behind a method, a partial or a callable object."""
    inner = _function(fn)
    return value_codec(_awaited(return_annotation(inner)) if inspect.isfunction(inner) else Any, where)


def _function(fn: Any) -> Any:
    """Return the plain function behind methods, partials, wrappers and callable objects, or `fn` itself."""
    while True:
        if isinstance(fn, functools.partial):
            fn = fn.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        elif inspect.ismethod(fn):
            fn = fn.__func__
        elif hasattr(fn, "__wrapped__"):
            fn = fn.__wrapped__
        elif not inspect.isroutine(fn) and not inspect.isclass(fn):
            fn = type(fn).__call__
        else:
            return fn


def _parameters(fn: Callable[..., Any]) -> list[Parameter]:
    try:
        return list(inspect.signature(fn).parameters.values())
    except ValueError:  # some built-in functions have no signature
        return [Parameter("args", Parameter.VAR_POSITIONAL), Parameter("kwargs", Parameter.VAR_KEYWORD)]


def _field(parameter: Parameter, annotation: Any) -> Any:
    if parameter.kind is parameter.VAR_POSITIONAL:
        return NotRequired[list[annotation]]
    if parameter.kind is parameter.VAR_KEYWORD:
        return NotRequired[dict[str, annotation]]
    return Required[annotation] if parameter.default is parameter.empty else NotRequired[annotation]


def _awaited(annotation: Any) -> Any:
    """Return the annotation of the stored result: the value of an awaitable, None for a function that never returns."""
    if annotation is Never or annotation is NoReturn:
        return None
    if get_origin(annotation) in {Awaitable, Coroutine}:
        return get_args(annotation)[-1]
    return annotation


_LISTS = (list, Sequence, Iterable, Collection)


def for_single_input(fn: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a function with the signature of `fn` for a single input. The function is never called.

    A parameter `list[T]` becomes `T`, and a result `list[R | Exception]` becomes `R`.
    """
    parameters = list(inspect.signature(fn).parameters.values())
    if len(parameters) != 1 or parameters[0].kind not in {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}:
        raise InvalidInput(f"{name!r} is a batch function: it takes one parameter, the list of inputs")
    hints = annotations_of(fn)
    (parameter,) = parameters
    taken = _element(hints.get(parameter.name, Any))
    returned = hints.get("return", Any)
    if get_origin(returned) in {Awaitable, Coroutine}:
        returned = get_args(returned)[-1]
    if returned is None or returned is type(None):
        raise InvalidInput(f"{name!r} is a batch function: it returns a list with an outcome for each input")
    given = _value(_element(returned))

    def one(value: Any) -> Any:
        raise AssertionError(value)

    one.__qualname__ = fn.__qualname__
    one.__signature__ = inspect.Signature([parameter.replace(annotation=taken)], return_annotation=given)  # type: ignore[attr-defined]
    one.__annotations__ = {parameter.name: taken, "return": given}
    return one


def _element(annotation: Any) -> Any:
    """Return the item type of a list annotation, or `Any`."""
    arguments = get_args(annotation)
    return arguments[0] if get_origin(annotation) in _LISTS and len(arguments) == 1 else Any


def _value(annotation: Any) -> Any:
    """Return the annotation of an outcome without its exception types."""
    if get_origin(annotation) not in {Union, types.UnionType}:
        return annotation
    kept: list[Any] = [
        each for each in get_args(annotation) if not (isinstance(each, type) and issubclass(each, BaseException))
    ]
    return cast("Any", Union)[tuple(kept)] if kept else Any
