"""Compile an annotation to its shape."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections import abc
from inspect import Parameter
from typing import Any, NoReturn, cast

import msgspec

from mainspring.codec.containers import Group, Row, Series, Table
from mainspring.codec.fields import declared, fill, hints_of, is_named_tuple
from mainspring.codec.models import Model, is_model
from mainspring.codec.records import Field, Keyed, Record
from mainspring.codec.resolve import Unresolved
from mainspring.codec.scalars import Choices, Constrained, scalar
from mainspring.codec.type_codec import Deferred, Misfit, Shape, class_name
from mainspring.codec.unions import ANYTHING, Anything, Bare, Union

_ANY = (Any, object, Parameter.empty)
_SERIES: dict[type[Any], tuple[type[Any], tuple[type[Any], ...]]] = {
    list: (list, (list,)),
    tuple: (tuple, (tuple,)),
    set: (set, (set,)),
    frozenset: (frozenset, (frozenset,)),
    **dict.fromkeys((abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable), (list, (list, tuple))),
    **dict.fromkeys((abc.Set, abc.MutableSet), (set, (set, frozenset))),
}
"""For each annotation: the class of decoded values, and the classes that a caller may pass."""

_DICTS = (dict, abc.Mapping, abc.MutableMapping)
_WRAPPERS = ("Required", "NotRequired", "ReadOnly", "Final", "ClassVar")


def shape_of(annotation: object) -> Shape:
    """Return the shape of an annotation. Raises `Misfit` if its values cannot be stored and decoded again."""
    return _Compiler().shape(annotation)


class _Compiler:
    """Compiles one annotation. Keeps the types that are being compiled, since a type may contain itself."""

    def __init__(self) -> None:
        self.begun: dict[object, Deferred] = {}

    def shape(self, annotation: Any) -> Shape:
        if any(annotation is anything for anything in _ANY):
            return ANYTHING
        if isinstance(annotation, typing.TypeVar):
            return self._of_variable(annotation)
        if isinstance(annotation, typing.NewType):
            return self.shape(annotation.__supertype__)
        if isinstance(annotation, (str, typing.ForwardRef)):
            name = annotation if isinstance(annotation, str) else annotation.__forward_arg__
            _refuse(f"the name {name!r} in an annotation is not known; import it, or define it first")
        origin = typing.get_origin(annotation)
        if (alias := getattr(origin or annotation, "__value__", None)) is not None:
            return self._of_alias(annotation, alias)
        if origin is None:
            return self._of_class(type(None) if annotation is None else annotation, ())
        return self._of_generic(origin, typing.get_args(annotation))

    def _of_variable(self, variable: typing.TypeVar) -> Shape:
        if variable.__bound__ is not None:
            return self.shape(variable.__bound__)
        return self._of_union(variable.__constraints__) if variable.__constraints__ else ANYTHING

    def _of_alias(self, annotation: Any, alias: Any) -> Shape:
        """Return the shape of `type Name = …`, which may contain itself."""
        origin = typing.get_origin(annotation)
        given = dict(zip(origin.__type_params__, typing.get_args(annotation), strict=False)) if origin else {}
        return self._of_recursive(annotation, str(annotation), ANYTHING.kinds, lambda: self.shape(fill(alias, given)))

    def _of_recursive(
        self, known: object, name: str, kinds: abc.Iterable[type[Any]], make: abc.Callable[[], Shape], cls: Any = object
    ) -> Shape:
        if known in self.begun:
            return self.begun[known]
        deferred = self.begun[known] = Deferred(name, cls, kinds)
        try:
            deferred.target = make()
        finally:
            del self.begun[known]
        return deferred.target

    def _of_generic(self, origin: Any, arguments: tuple[Any, ...]) -> Shape:
        if origin is typing.Annotated:
            return self._of_annotated(arguments[0], arguments[1:])
        if origin is typing.Union or origin is types.UnionType:
            return self._of_union(arguments)
        if origin is typing.Literal:
            return _of_literal(arguments)
        if getattr(origin, "_name", None) in _WRAPPERS:
            return self.shape(arguments[0])
        return self._of_class(origin, arguments)

    def _of_annotated(self, annotation: Any, extras: tuple[Any, ...]) -> Shape:
        for extra in extras:
            if isinstance(extra, Unresolved):
                return Anything(
                    f"its annotation {extra.text!r} has a name that is not known when the program runs; import it"
                )
        inner = self.shape(annotation)
        rules = tuple(extra for extra in extras if isinstance(extra, msgspec.Meta))
        return Constrained(inner, typing.Annotated[(annotation, *rules)]) if rules else inner

    def _of_union(self, arguments: tuple[Any, ...]) -> Shape:
        members: dict[str, Shape] = {}
        for argument in arguments:
            shape = self.shape(argument)
            if isinstance(shape, Anything):
                return shape
            for member in shape.members if isinstance(shape, Union) else (shape,):
                if members.setdefault(member.name, member).runtime is not member.runtime:
                    _refuse(
                        f"two types of a union are called {member.name}, so nothing tells their values apart; rename one"
                    )
        return Union(tuple(members.values()))

    def _of_class(self, cls: Any, arguments: tuple[Any, ...]) -> Shape:
        if not isinstance(cls, type):
            _refuse(f"{cls!r} is not a type whose values can be stored and read back")
        if cls is cast("Any", abc.Callable):
            _refuse("a function cannot be stored and read back")
        container = self._of_container(cast("type[Any]", cls), arguments)
        return container or scalar(cls) or self._of_parts(cast("type[Any]", cls), arguments)

    def _of_container(self, cls: type[Any], arguments: tuple[Any, ...]) -> Shape | None:
        if cls in _DICTS:
            accepted: tuple[type[Any], ...] = (dict,) if cls is dict else (dict, types.MappingProxyType)
            if not arguments:
                return Bare(dict, ANYTHING)
            key, item = map(self.shape, arguments)
            return Table(key, item, accepted)
        if cls is tuple and arguments[1:] != (...,) and arguments:
            items = tuple(map(self.shape, arguments)) if arguments != ((),) else ()
            return Row(tuple, f"tuple[{', '.join(item.name for item in items)}]", items)
        if cls not in _SERIES:
            return None
        runtime, given = _SERIES[cls]
        item = self.shape(arguments[0]) if arguments else ANYTHING
        return (Group if runtime in {set, frozenset} else Series)(runtime, item, given)

    def _of_parts(self, cls: type[Any], arguments: tuple[Any, ...]) -> Shape:
        if is_model(cls):
            return Model(cast("Any", cls)[arguments] if arguments else cls)
        name = f"{cls.__name__}[{', '.join(map(_name, arguments))}]" if arguments else cls.__name__
        if is_named_tuple(cls):
            return self._of_recursive(
                (cls, arguments), name, (list,), lambda: self._named_tuple(cls, arguments, name), cls
            )
        if typing.is_typeddict(cls):
            return self._of_recursive(
                (cls, arguments), name, (dict,), lambda: self._typed_dict(cls, arguments, name), dict
            )
        return self._of_recursive((cls, arguments), name, (dict,), lambda: self._record(cls, arguments, name), cls)

    def _record(self, cls: type[Any], arguments: tuple[Any, ...], name: str) -> Shape:
        declaration = declared(cls)
        if declaration is None:
            _refuse(
                f"{class_name(cls)} is not a type whose values can be stored and read back; use a dataclass, a msgspec Struct, "
                f"a pydantic model or plain data"
            )
        hints = self._hints(cls, arguments)
        if any(isinstance(hint, dataclasses.InitVar) for hint in hints.values()):
            _refuse(f"{class_name(cls)} has an InitVar, which an instance does not keep; make it a field")
        fields = [
            Field(n, key, self._field(cls, n, hints.get(n, Any)), required) for n, key, required in declaration.fields
        ]
        return Record(cls, name, tuple(fields), declaration.build, declaration.label)

    def _typed_dict(self, cls: Any, arguments: tuple[Any, ...], name: str) -> Shape:
        hints = self._hints(cls, arguments)
        return Keyed(
            name, tuple(Field(n, n, self._field(cls, n, hint), _is_required(cls, n, hint)) for n, hint in hints.items())
        )

    def _named_tuple(self, cls: Any, arguments: tuple[Any, ...], name: str) -> Shape:
        hints = self._hints(cls, arguments)
        items = tuple(self._field(cls, field, hints.get(field, Any)) for field in cls._fields)
        return Row(cls, name, items, len(cls._field_defaults))

    def _hints(self, cls: type[Any], arguments: tuple[Any, ...]) -> dict[str, Any]:
        try:
            return hints_of(cls, arguments)
        except NameError as error:
            _refuse(f"an annotation of {class_name(cls)} cannot be resolved: {error}; import it, or define it first")

    def _field(self, cls: type[Any], name: str, hint: Any) -> Shape:
        try:
            return self.shape(hint)
        except Misfit as misfit:
            misfit.problem = f"{cls.__name__}.{name}: {misfit.problem}"
            raise


def _is_required(cls: Any, name: str, hint: Any) -> bool:
    """Whether a TypedDict must have a key. `__required_keys__` does not see annotations that are written as text."""
    if typing.get_origin(hint) in {typing.Required, typing.NotRequired}:
        return typing.get_origin(hint) is typing.Required
    return name in cls.__required_keys__


def _of_literal(values: tuple[Any, ...]) -> Shape:
    for value in values:
        if type(value) not in {str, int, bool, type(None)}:
            _refuse(f"{value!r} in a Literal has no form in JSON; annotate its type")
    return Choices(values)


def _name(argument: Any) -> str:
    return argument.__name__ if isinstance(argument, type) else str(argument)


def _refuse(problem: str) -> NoReturn:
    raise Misfit(problem)
