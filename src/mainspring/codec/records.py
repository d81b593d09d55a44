"""Values with named parts: dataclasses, msgspec Structs, attrs classes, TypedDicts, pydantic models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from mainspring.codec.shape import Misfit, class_name, short, type_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.codec.shape import Shape


class Field(NamedTuple):
    """One named part."""

    name: str
    key: str
    shape: Shape
    required: bool


class Record:
    """An object with named parts. A subclass is refused: read back as its base it would be something else."""

    native = True
    open = False
    fields: tuple[Field, ...] = ()

    def __init__(self, runtime: type[Any], name: str, build: Callable[[dict[str, Any]], Any]) -> None:
        self.runtime = runtime
        self.name = name
        self.build = build

    def complete(self, fields: tuple[Field, ...]) -> None:
        """Learn the parts. They come later than the record because they may contain it."""
        self.fields = fields
        self.native = all(field.shape.native for field in fields)
        self.open = any(field.shape.open for field in fields)
        self._checks = tuple((field.name, field.shape.plain) for field in fields)

    def plain(self, value: Any) -> bool:
        return type(value) is self.runtime and all(is_plain(getattr(value, name)) for name, is_plain in self._checks)

    def lower(self, value: Any) -> Any:
        if type(value) is not self.runtime:
            raise self._wrong(value)
        return {field.key: _part(field, field.shape.lower, getattr(value, field.name)) for field in self.fields}

    def lift(self, raw: Any) -> Any:
        if type(raw) is not dict:
            raise Misfit(f"{short(raw)} is stored where a {self.name} belongs")
        parts: dict[str, Any] = {}
        for field in self.fields:
            if field.key in raw:
                parts[field.name] = _part(field, field.shape.lift, raw[field.key])
            elif field.required:
                raise Misfit(
                    f"{self.name} has a field {field.name!r} without a default that is not stored in {short(raw)}"
                )
        try:
            return self.build(parts)
        except (TypeError, ValueError) as error:
            raise Misfit(f"{self.name} refuses what is stored: {error}") from None

    def _wrong(self, value: Any) -> Misfit:
        if isinstance(value, self.runtime):
            return Misfit(
                f"{short(value)} is a {type_name(value)}, a subclass of the annotated {self.name}, and would come back as a "
                f"{self.name}; annotate what is really passed, for example {self.name} | {type(value).__name__}"
            )
        return Misfit(f"{short(value)} is a {type_name(value)}, not a {self.name}")


def _part(field: Field, move: Callable[[Any], Any], part: Any) -> Any:
    try:
        return move(part)
    except Misfit as misfit:
        misfit.under(f".{field.name}")
        raise
    except RecursionError:
        raise Misfit("it is nested too deeply, or contains itself") from None


class Keyed(Record):
    """A TypedDict: a dict with named parts, some of which may be absent."""

    def plain(self, value: Any) -> bool:
        if type(value) is not dict:
            return False
        known = 0
        for name, is_plain in self._checks:
            if name in value:
                known += 1
                if not is_plain(value[name]):
                    return False
        return known == len(value)

    def lower(self, value: Any) -> Any:
        if not isinstance(value, dict):
            raise self._wrong(value)
        names = {field.name for field in self.fields}
        if unknown := [key for key in value if key not in names]:  # pyright: ignore[reportUnknownVariableType]
            raise Misfit(f"{self.name} has no key {short(unknown[0])}; it would be lost")
        if missing := [field.name for field in self.fields if field.required and field.name not in value]:
            raise Misfit(f"the required key {missing[0]!r} of {self.name} is missing")
        present = (field for field in self.fields if field.name in value)
        return {field.key: _part(field, field.shape.lower, value[field.name]) for field in present}


class Model:
    """A pydantic model: written and read by itself."""

    native = False
    open = False

    def __init__(self, runtime: type[Any]) -> None:
        self.runtime = runtime
        self.name = runtime.__name__

    def plain(self, value: Any) -> bool:  # noqa: ARG002, PLR6301 - the slow lane writes it
        return False

    def lower(self, value: Any) -> Any:
        if type(value) is not self.runtime:
            raise Misfit(f"{short(value)} is a {type_name(value)}, not a {class_name(self.runtime)}")
        try:
            data = value.model_dump(mode="json", by_alias=True)
        except Exception as error:  # noqa: BLE001 - whatever a user's serializer raises
            raise Misfit(f"pydantic cannot write {short(value)}: {error}") from None
        _only_finite(data)
        return data

    def lift(self, raw: Any) -> Any:
        try:
            return self.runtime.model_validate_json(msgspec.json.encode(raw))
        except ValueError as error:
            raise Misfit(f"{short(raw)} is stored where a {self.name} belongs: {error}") from None


def _only_finite(data: Any) -> None:
    if type(data) is float:
        if data - data != 0:
            raise Misfit(f"{data} has no form in JSON; store None or a str in its place")
    elif type(data) is dict:
        for key, item in data.items():  # pyright: ignore[reportUnknownVariableType]
            _part(Field(str(key), "", None, required=True), _only_finite, item)  # type: ignore[arg-type]
    elif type(data) is list:
        for item in data:  # pyright: ignore[reportUnknownVariableType]
            _only_finite(item)


def restore(cls: type[Any], defaults: dict[str, Callable[[], Any]]) -> Callable[[dict[str, Any]], Any]:
    """Builds a dataclass or attrs instance from its fields as msgspec does: `__init__` is not called, `__post_init__` is."""
    finish = getattr(cls, "__post_init__", getattr(cls, "__attrs_post_init__", None))

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
