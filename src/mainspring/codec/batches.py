"""The signature of a batch function for its callers: one input, one output."""

from __future__ import annotations

import inspect
import types
from collections.abc import Awaitable, Collection, Coroutine, Iterable, Sequence
from inspect import Parameter
from typing import TYPE_CHECKING, Any, Union, cast, get_args, get_origin

from mainspring.codec.resolve import annotations_of
from mainspring.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

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
