"""The shape of pydantic models.

Pydantic encodes and decodes them. It may write what does not come back: a secret as asterisks, an instance of a subclass as its base class, a date
in a field of type Any as text. Such a value is refused. Left out on purpose, and therefore not compared, are private attributes and
fields with `exclude=True`.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from math import isfinite
from typing import Any, cast

import msgspec

from mainspring.codec.type_codec import Misfit, Shape, at, contain_exit, is_array, is_object, is_tuple, short


class Model(Shape):
    """A pydantic model, encoded and decoded by pydantic."""

    custom = True

    def __init__(self, runtime: type[Any]) -> None:
        root = getattr(runtime, "__pydantic_root_model__", False)
        super().__init__(
            runtime.__name__, runtime, (dict, list, str, int, float, bool, type(None)) if root else (dict,)
        )
        self.exact = frozenset({runtime})

    def lower(self, value: Any) -> Any:
        if type(value) is not self.runtime:
            raise self.wrong(value)
        return dump(value)

    def lift(self, raw: Any) -> Any:
        try:
            return self.runtime.model_validate_json(msgspec.json.encode(raw))
        except ValueError as error:
            raise Misfit(f"{short(raw)} is stored where a {self.name} belongs: {error}") from None


def is_model(cls: type[Any]) -> bool:
    """Whether a class is a pydantic model, without importing pydantic."""
    return hasattr(cls, "__pydantic_validator__") and hasattr(cls, "model_validate_json")


def dump(model: Any) -> Any:
    """Return the JSON data of a pydantic model, by the names that it validates."""
    try:
        data = contain_exit(model.model_dump, mode="json", by_alias=True)
    except Exception as error:  # noqa: BLE001 - a user's serializer may raise anything
        raise Misfit(f"pydantic cannot write {short(model)}: {error}") from None
    _refuse_nan(data)
    _refuse_changed(model, data)
    return data


def _refuse_nan(data: Any) -> None:
    if isinstance(data, float) and not isfinite(data):
        raise Misfit(f"{data} has no form in JSON; use None or a str in its place")
    if is_object(data):
        for key, part in data.items():
            at(f".{key}", _refuse_nan, part)
    elif is_array(data):
        for index, part in enumerate(data):
            at(f"[{index}]", _refuse_nan, part)


def _refuse_changed(model: Any, data: Any) -> None:
    """Raise `Misfit` if what is stored would be read back as another value."""
    cls: Any = _class(model)
    try:
        made: Any = cls.model_validate_json(msgspec.json.encode(data))
    except ValueError:
        return  # reading it back reports that
    _compare(model, made)


def _compare(given: Any, made: Any) -> None:
    cls = _class(given)
    if _class(made) is not cls or not (is_model(cls) or cls in {list, tuple, dict}):
        if not _is_equal(given, made):
            raise Misfit(
                f"{short(given)} would come back from pydantic as {short(made)}; annotate the field with the type of "
                "its value, or give it a serializer that keeps the value"
            )
        return
    before, after = _parts(given), _parts(made)
    if before.keys() != after.keys():
        raise Misfit(f"{short(given)} would come back from pydantic as {short(made)}")
    for step, part in before.items():
        at(step, partial(_compare, part), after[step])


def _parts(value: Any) -> dict[str, Any]:
    """Return the parts of a model or container, by the step that leads to each."""
    if is_object(value):
        return {f"[{key!r}]": part for key, part in value.items()}
    if is_array(value) or is_tuple(value):
        return {f"[{index}]": part for index, part in enumerate(value)}
    fields: dict[str, Any] = cast("Any", _class(value)).model_fields
    kept = [name for name, field in fields.items() if not field.exclude and getattr(field, "exclude_if", None) is None]
    extra: dict[str, Any] = value.__pydantic_extra__ or {}
    return {f".{name}": value.__dict__.get(name) for name in kept} | {f".{name}": part for name, part in extra.items()}


def _class(value: object) -> type[Any]:
    return type(value)


def _is_equal(given: Any, made: Any) -> bool:
    if isinstance(given, datetime) and isinstance(made, datetime) and given.tzinfo and made.tzinfo:
        return given.timestamp() == made.timestamp()  # a repeated time never equals one of another zone
    try:
        equal = contain_exit(lambda: bool(given == made))
    except Exception:  # noqa: BLE001 - an array, for example, compares part by part
        return True
    return equal or (_class(given) is _class(made) and not _compares_values(_class(given)))


def _compares_values(cls: type[Any]) -> bool:
    """Whether instances of a class are equal by what they are, and not only to themselves."""
    return any("__eq__" in vars(base) for base in cls.__mro__[:-1])
