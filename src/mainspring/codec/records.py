"""Shapes of values with named parts: dataclasses, msgspec Structs, attrs classes, TypedDicts."""

from __future__ import annotations

from enum import Enum
from operator import attrgetter, contains
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from mainspring.codec.fields import declared, is_named_tuple
from mainspring.codec.models import is_model
from mainspring.codec.type_codec import TAG, Misfit, Shape, at, class_of, is_mapping, is_object, short

if TYPE_CHECKING:
    from collections.abc import Callable


class Field(NamedTuple):
    """One named part: its name in Python and its key in JSON."""

    name: str
    key: str
    shape: Shape
    required: bool


class Record(Shape):
    """An object with named parts. A subclass is refused, because it would be decoded as its base class."""

    def __init__(
        self,
        runtime: type[Any],
        name: str,
        fields: tuple[Field, ...],
        build: Callable[[dict[str, Any]], Any],
        label: tuple[str, Any] | None = None,
    ) -> None:
        super().__init__(name, runtime, (dict,))
        self.fields = fields
        self.build = build
        self.label = label
        self.custom = hasattr(runtime, "__post_init__") or hasattr(runtime, "__attrs_post_init__")
        self.inline = all(field.key != TAG for field in fields)
        exact = [field for field in fields if field.shape.exact]
        self._exact = [field.shape.exact for field in exact]
        self._get_exact = _getter([field.name for field in exact])
        self._others = [(field.name, field.shape.plain) for field in fields if not field.shape.exact]

    @property
    def parts(self) -> tuple[Shape, ...]:
        return tuple(field.shape for field in self.fields)

    def plain(self, value: Any) -> bool:
        if type(value) is not self.runtime or not all(map(contains, self._exact, map(type, self._get_exact(value)))):
            return False
        for name, plain in self._others:  # noqa: SIM110 - a generator is slower than the loop
            if not plain(getattr(value, name)):
                return False
        return True

    def lower(self, value: Any) -> Any:
        if type(value) is not self.runtime:
            raise self._not_one(value)
        written = {
            field.key: at(f".{field.name}", field.shape.lower, _read(value, field.name)) for field in self.fields
        }
        return {self.label[0]: self.label[1], **written} if self.label else written

    def lift(self, raw: Any) -> Any:
        if not is_object(raw):
            raise self.stored_wrong(raw)
        if self.label and raw.get(self.label[0], self.label[1]) != self.label[1]:
            raise self.stored_wrong(raw)
        parts: dict[str, Any] = {}
        for field in self.fields:
            if field.key in raw:
                parts[field.name] = at(f".{field.name}", field.shape.lift, raw[field.key])
            elif field.required:
                raise Misfit(f"{short(raw)} is stored, which lacks the field {field.name!r} of {self.name}")
        try:
            return self.build(parts)
        except (TypeError, ValueError) as error:
            raise Misfit(f"{self.name} refuses {short(raw)}: {error}") from None

    def _not_one(self, value: Any) -> Misfit:
        if not isinstance(value, self.runtime):
            return self.wrong(value)
        return Misfit(
            f"{short(value)} is a {class_of(value)}, which is a subclass of the annotated {self.name} and would come "
            f"back as a {self.name}; annotate what is passed, as in {self.name} | {type(value).__name__}"
        )


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if not names:
        return lambda _value: ()
    if len(names) == 1:
        only = attrgetter(names[0])
        return lambda value: (only(value),)
    return cast("Callable[[Any], tuple[Any, ...]]", attrgetter(*names))


def _read(value: Any, name: str) -> Any:
    try:
        return getattr(value, name)
    except AttributeError:
        raise Misfit(f"the field {name!r} of {short(value)} was never set") from None


class Keyed(Shape):
    """A TypedDict: a dict with named parts, some of them optional."""

    def __init__(self, name: str, fields: tuple[Field, ...]) -> None:
        super().__init__(name, dict, (dict,))
        self.fields = {field.name: field for field in fields}
        self.required = frozenset(field.name for field in fields if field.required)
        self._exact = {field.name: field.shape.exact for field in fields}
        self._plain = {field.name: field.shape.plain for field in fields}

    @property
    def parts(self) -> tuple[Shape, ...]:
        return tuple(field.shape for field in self.fields.values())

    def plain(self, value: Any) -> bool:
        if not is_object(value) or not self.required <= value.keys():
            return False
        for key, part in value.items():
            if type(part) not in self._exact[key] and not self._plain[key](part):  # KeyError: for the slow path
                return False
        return True

    def lower(self, value: Any) -> Any:
        if not is_mapping(value):
            raise self.wrong(value)
        for key in value:
            if key not in self.fields:
                raise Misfit(f"{self.name} has no key {short(key)}")
        self._check_required(value)
        return {key: at(f".{key}", self.fields[key].shape.lower, part) for key, part in value.items()}

    def lift(self, raw: Any) -> Any:
        if not is_object(raw):
            raise self.stored_wrong(raw)
        self._check_required(raw)
        known = (key for key in raw if key in self.fields)
        return {key: at(f".{key}", self.fields[key].shape.lift, raw[key]) for key in known}

    def _check_required(self, given: dict[Any, Any]) -> None:
        for key in self.fields:
            if key in self.required and key not in given:
                raise Misfit(f"{self.name} needs {key!r}, which is missing")


def holds_values(cls: type[Any]) -> bool:
    """Whether a class is an enum, a dataclass, a Struct, an attrs class, a NamedTuple or a pydantic model."""
    if issubclass(cls, BaseException):
        return False
    return issubclass(cls, Enum) or is_named_tuple(cls) or declared(cls) is not None or is_model(cls)
