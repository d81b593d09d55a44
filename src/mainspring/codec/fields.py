"""The fields of a class: names, defaults, and annotations with the type variables filled in."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast, get_args, get_origin

import msgspec

from mainspring.codec.resolve import class_annotations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

type_variables = dict[Any, Any]


class Declared(NamedTuple):
    """The fields of a class, each as (name, key in JSON, required), the function that makes an instance, and the tag of a Struct."""

    fields: list[tuple[str, str, bool]]
    build: Callable[[dict[str, Any]], Any]
    label: tuple[str, Any] | None = None


def declared(cls: type[Any]) -> Declared | None:
    """Return the fields of a dataclass, a Struct or an attrs class. None for any other class."""
    if issubclass(cls, msgspec.Struct):
        return _of_struct(cls)
    if dataclasses.is_dataclass(cls):
        return _of_fields(cls, dataclasses.fields(cls), dataclasses.MISSING)
    if (attributes := getattr(cls, "__attrs_attrs__", None)) is not None:
        return _of_fields(cls, attributes, sys.modules["attr"].NOTHING)
    return None


def is_named_tuple(cls: type[Any]) -> bool:
    return issubclass(cls, tuple) and hasattr(cast("Any", cls), "_fields")


def _of_struct(cls: type[msgspec.Struct]) -> Declared:
    def build(parts: dict[str, Any]) -> Any:
        return cls(**parts)

    config = cls.__struct_config__
    label = (config.tag_field, config.tag) if config.tag_field else None
    return Declared([(f.name, f.encode_name, f.required) for f in msgspec.structs.fields(cls)], build, label)


def _of_fields(cls: type[Any], fields: Iterable[Any], missing: Any) -> Declared:
    defaults: dict[str, Callable[[], Any]] = {}
    for field in fields:
        factory = getattr(field, "default_factory", missing)  # an attrs default may be a factory itself
        factory = getattr(field.default, "factory", factory)
        if factory is not missing:
            defaults[field.name] = factory
        elif field.default is not missing:
            defaults[field.name] = partial(_same, field.default)
    return Declared([(f.name, f.name, f.name not in defaults) for f in fields], _restorer(cls, defaults))


def _same(value: Any) -> Any:
    return value


def _restorer(cls: type[Any], defaults: dict[str, Callable[[], Any]]) -> Callable[[dict[str, Any]], Any]:
    """Return a function that makes an instance from its fields, as msgspec does: it calls `__post_init__`, but not `__init__`."""
    finish = getattr(cls, "__post_init__", None) or getattr(cls, "__attrs_post_init__", None)

    def build(parts: dict[str, Any]) -> Any:
        made = object.__new__(cls)
        for name, part in parts.items():
            object.__setattr__(made, name, part)
        for name, default in defaults.items():
            if name not in parts:
                object.__setattr__(made, name, default())
        if finish is not None:
            finish(made)
        return made

    return build


def hints_of(cls: type[Any], arguments: tuple[Any, ...]) -> dict[str, Any]:
    """Return the annotations of all fields. Each base class resolves its own, with its arguments for type variables."""
    bindings = _bindings(cls, arguments)
    hints: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if own := inspect.get_annotations(base):
            resolved = class_annotations(base)
            hints |= {name: fill(resolved[name], bindings.get(base, {})) for name in own if name in resolved}
    return hints


def _bindings(cls: type[Any], arguments: tuple[Any, ...]) -> dict[type[Any], type_variables]:
    mine = dict(zip(getattr(cls, "__parameters__", ()), arguments, strict=False))
    found: dict[type[Any], type_variables] = {cls: mine}
    for base in getattr(cls, "__orig_bases__", ()):
        origin = get_origin(base)
        if isinstance(origin, type) and origin is not Generic:
            found |= _bindings(cast("type[Any]", origin), tuple(fill(argument, mine) for argument in get_args(base)))
    return found


def fill(annotation: Any, variables: type_variables) -> Any:
    """Return an annotation with its known type variables replaced."""
    if isinstance(annotation, TypeVar):
        return variables.get(annotation, annotation)
    if isinstance(annotation, type) and get_origin(annotation) is None:  # a plain class has no arguments to fill
        return annotation
    parameters: tuple[Any, ...] = getattr(annotation, "__parameters__", ())
    if not parameters or not variables:
        return annotation
    return cast("Any", annotation)[tuple(variables.get(parameter, parameter) for parameter in parameters)]
