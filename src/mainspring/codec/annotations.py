"""From an annotation to its shape."""

from __future__ import annotations

import collections
import collections.abc as abc
import dataclasses
import inspect
import sys
import types
import typing
from typing import Any, NoReturn

import msgspec

from mainspring.codec.containers import Group, Row, Series, Table
from mainspring.codec.records import Field, Keyed, Model, Record, restore
from mainspring.codec.resolve import class_annotations
from mainspring.codec.scalars import Choices, Constrained, scalar
from mainspring.codec.shape import Misfit, Shape, class_name
from mainspring.codec.unions import ANYTHING, Union

_LISTS = (list, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable)
_SETS = (set, abc.Set, abc.MutableSet)
_DICTS = (dict, abc.Mapping, abc.MutableMapping)
_ANY = (Any, object, inspect.Parameter.empty)


def shape_of(annotation: Any) -> Shape:
    """The shape of an annotation, or a Misfit that says which part of it cannot be stored and read back."""
    return _Compiler().shape(annotation, {})


class _Compiler:
    """Compiles one annotation; remembers the records it is in the middle of, since those may contain themselves."""

    def __init__(self) -> None:
        self.records: dict[Any, Record] = {}

    def shape(self, annotation: Any, variables: dict[Any, Any]) -> Shape:
        if annotation in _ANY:
            return ANYTHING
        if annotation is None:
            annotation = type(None)
        if isinstance(annotation, typing.TypeVar):
            return self._variable(annotation, variables)
        if isinstance(annotation, typing.NewType):
            return self.shape(annotation.__supertype__, variables)
        if isinstance(annotation, str | typing.ForwardRef):
            _refuse(
                f"the annotation {annotation!r} could not be resolved; import the name where the function is defined"
            )
        if (alias := getattr(annotation, "__value__", None)) is not None:  # type X = …
            return self._alias(annotation, alias, variables)
        origin = typing.get_origin(annotation)
        if origin is None:
            return self._class(annotation, (), variables)
        return self._generic(annotation, origin, typing.get_args(annotation), variables)

    def _variable(self, variable: typing.TypeVar, variables: dict[Any, Any]) -> Shape:
        if variable in variables:
            return self.shape(variables[variable], {})
        if variable.__bound__ is not None:
            return self.shape(variable.__bound__, variables)
        if variable.__constraints__:
            return self._union(variable.__constraints__, variables)
        return ANYTHING

    def _alias(self, annotation: Any, alias: Any, variables: dict[Any, Any]) -> Shape:
        arguments = typing.get_args(annotation)
        if arguments:
            alias = alias[arguments]
        return self.shape(alias, variables)

    def _generic(self, annotation: Any, origin: Any, arguments: tuple[Any, ...], variables: dict[Any, Any]) -> Shape:
        if origin is typing.Annotated:
            inner = self.shape(arguments[0], variables)
            rules = tuple(rule for rule in arguments[1:] if isinstance(rule, msgspec.Meta))
            return Constrained(inner, typing.Annotated[(arguments[0], *rules)]) if rules else inner
        if origin is typing.Union or origin is types.UnionType:
            return self._union(arguments, variables)
        if origin is typing.Literal:
            return _literal(annotation, arguments)
        if origin in {typing.Required, typing.NotRequired, typing.Final, typing.ClassVar} or _is_read_only(origin):
            return self.shape(arguments[0], variables)
        return self._class(origin, arguments, variables)

    def _union(self, arguments: tuple[Any, ...], variables: dict[Any, Any]) -> Shape:
        members: list[Shape] = []
        for argument in arguments:
            member = self.shape(argument, variables)
            if member is ANYTHING:
                return ANYTHING
            members.extend(member.members if isinstance(member, Union) else (member,))
        return Union(tuple(members), native=_msgspec_takes(arguments))

    def _class(self, cls: Any, arguments: tuple[Any, ...], variables: dict[Any, Any]) -> Shape:
        if not isinstance(cls, type):
            _refuse(f"{cls!r} is not a type whose values can be stored and read back")
        if cls in _LISTS:
            return Series(list, self._only(arguments, variables), (list, tuple) if cls is not list else (list,))
        if cls in _SETS:
            return Group(set, self._only(arguments, variables), (set, frozenset) if cls is not set else (set,))
        if cls is frozenset:
            return Group(frozenset, self._only(arguments, variables), (frozenset,))
        if cls in _DICTS:
            return self._table(arguments, variables)
        if cls is tuple:
            return self._tuple(arguments, variables)
        if (simple := scalar(cls)) is not None:
            return simple
        return self._record(cls, arguments, variables)

    def _only(self, arguments: tuple[Any, ...], variables: dict[Any, Any]) -> Shape:
        return self.shape(arguments[0], variables) if arguments else ANYTHING

    def _table(self, arguments: tuple[Any, ...], variables: dict[Any, Any]) -> Shape:
        if not arguments:
            return ANYTHING_DICT
        return Table(
            self.shape(arguments[0], variables), self.shape(arguments[1], variables), (dict, types.MappingProxyType)
        )

    def _tuple(self, arguments: tuple[Any, ...], variables: dict[Any, Any]) -> Shape:
        if not arguments:
            return Series(tuple, ANYTHING, (tuple,))
        if len(arguments) == 2 and arguments[1] is ...:
            return Series(tuple, self.shape(arguments[0], variables), (tuple,))
        items = tuple(self.shape(argument, variables) for argument in arguments if argument != ())
        return Row(tuple, items, name=f"tuple[{', '.join(item.name for item in items)}]")

    def _record(self, cls: type[Any], arguments: tuple[Any, ...], variables: dict[Any, Any]) -> Shape:
        arguments = tuple(variables.get(argument, argument) for argument in arguments)
        if "pydantic" in sys.modules and hasattr(cls, "model_validate_json") and hasattr(cls, "__pydantic_validator__"):
            return Model(cls[arguments] if arguments else cls)
        known = (cls, arguments)
        if known in self.records:
            return self.records[known]
        if issubclass(cls, tuple) and hasattr(cls, "_fields"):
            hints = _hints(cls, arguments)
            items = tuple(self.shape(hints.get(name, Any), {}) for name in cls._fields)
            return Row(cls, items, name=cls.__name__, optional=len(cls._field_defaults))
        if typing.is_typeddict(cls):
            return self._typed_dict(known, cls, arguments)
        parts = _parts(cls)
        if parts is None:
            _refuse(
                f"{class_name(cls)} is not a type whose values can be stored and read back; use a dataclass, a msgspec "
                f"Struct, a pydantic model or a plain value"
            )
        record = self.records[known] = Record(cls, cls.__name__, parts.build)
        hints = _hints(cls, arguments)
        record.complete(
            tuple(
                Field(name, key, self._field(cls, name, hints.get(name, Any)), required)
                for name, key, required in parts.fields
            )
        )
        return record

    def _typed_dict(self, known: Any, cls: Any, arguments: tuple[Any, ...]) -> Shape:
        record = self.records[known] = Keyed(dict, cls.__name__, dict)
        hints = _hints(cls, arguments)
        required = cls.__required_keys__
        record.complete(
            tuple(Field(name, name, self._field(cls, name, hint), name in required) for name, hint in hints.items())
        )
        return record

    def _field(self, cls: type[Any], name: str, hint: Any) -> Shape:
        try:
            return self.shape(hint, {})
        except Misfit as misfit:
            misfit.under(f"{cls.__name__}.{name}: ")
            raise


ANYTHING_DICT = Table(scalar(str), ANYTHING, (dict,))  # type: ignore[arg-type]


class _Parts(typing.NamedTuple):
    """What a class says about its fields: (name, key in JSON, required) of each, and how to build an instance."""

    fields: list[tuple[str, str, bool]]
    build: Any


def _parts(cls: type[Any]) -> _Parts | None:
    if issubclass(cls, msgspec.Struct):
        found = msgspec.structs.fields(cls)
        return _Parts([(field.name, field.encode_name, field.required) for field in found], lambda parts: cls(**parts))
    if dataclasses.is_dataclass(cls):
        return _of_fields(cls, dataclasses.fields(cls), dataclasses.MISSING)
    if (attributes := getattr(cls, "__attrs_attrs__", None)) is not None:
        return _of_fields(cls, attributes, None)
    return None


def _of_fields(cls: type[Any], fields: Any, missing: Any) -> _Parts:
    defaults: dict[str, Any] = {}
    for field in fields:
        factory = getattr(field, "default_factory", missing)
        if factory is not missing:
            defaults[field.name] = factory
        elif field.default is not missing:
            defaults[field.name] = lambda default=field.default: default
    return _Parts([(field.name, field.name, field.name not in defaults) for field in fields], restore(cls, defaults))


def _hints(cls: type[Any], arguments: tuple[Any, ...]) -> dict[str, Any]:
    """The annotations of all fields, type variables replaced by what the class and its bases are given for them."""
    hints: dict[str, Any] = {}
    bindings = _bindings(cls, arguments, {})
    for base in reversed(cls.__mro__):
        own = inspect.get_annotations(base)
        if not own or base is object:
            continue
        try:
            resolved = class_annotations(base)
        except NameError as error:
            _refuse(f"an annotation of {class_name(cls)} could not be resolved: {error}")
        for name in own:
            hints[name] = _substitute(resolved[name], bindings.get(base, {}))
    return hints


def _bindings(
    cls: type[Any], arguments: tuple[Any, ...], found: dict[type[Any], dict[Any, Any]]
) -> dict[type[Any], dict[Any, Any]]:
    parameters = getattr(cls, "__parameters__", ())
    mine = dict(zip(parameters, arguments, strict=False))
    found[cls] = mine
    for base in getattr(cls, "__orig_bases__", ()):
        origin = typing.get_origin(base)
        if isinstance(origin, type) and origin is not typing.Generic:
            _bindings(origin, tuple(_substitute(argument, mine) for argument in typing.get_args(base)), found)
    return found


def _substitute(annotation: Any, bindings: dict[Any, Any]) -> Any:
    if isinstance(annotation, typing.TypeVar):
        return bindings.get(annotation, annotation)
    parameters = getattr(annotation, "__parameters__", ())
    if not parameters or isinstance(annotation, type) or not bindings:
        return annotation
    return annotation[tuple(bindings.get(parameter, parameter) for parameter in parameters)]


def _literal(annotation: Any, values: tuple[Any, ...]) -> Shape:
    for value in values:
        if type(value) not in {str, int, bool, type(None)}:
            _refuse(f"{value!r} in {annotation!r} cannot be stored as JSON; annotate its type instead")
    return Choices(annotation, values)


def _msgspec_takes(arguments: tuple[Any, ...]) -> bool:
    try:
        msgspec.json.Decoder(typing.Union[arguments])  # noqa: UP007 - made of a tuple
    except (TypeError, NameError):
        return False
    return True


def _is_read_only(origin: Any) -> bool:
    return getattr(origin, "__name__", "") == "ReadOnly" or getattr(origin, "_name", "") == "ReadOnly"


def _refuse(problem: str) -> NoReturn:
    raise Misfit(problem)
