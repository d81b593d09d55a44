"""Encode values without tags, for a reader that knows their types: each class is written as its annotation would be."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

from mainspring.codec.annotations import shape_of
from mainspring.codec.containers import in_order
from mainspring.codec.type_codec import Misfit, Shape, at, is_mapping, short


class Untagged(Shape):
    """Encodes JSON without tags: a tuple is an array, a datetime is text. Cannot decode."""

    def __init__(self) -> None:
        super().__init__("Any", object, ())

    def lower(self, value: Any) -> Any:
        if is_mapping(value):
            return {_key(key): at(f"[{short(key)}]", self.lower, part) for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [at(f"[{index}]", self.lower, part) for index, part in enumerate(cast("list[Any]", value))]
        if isinstance(value, (set, frozenset)):
            return sorted(map(self.lower, cast("set[Any]", value)), key=in_order)
        try:
            shape = _shape(value)
        except Misfit as misfit:
            raise Misfit(f"{short(value)} cannot be written: {misfit.problem}") from None
        return shape.lower(value)


def _key(key: Any) -> str:
    lowered = _shape(key).lower(key)
    if type(lowered) is not str and type(lowered) is not int:
        raise Misfit(f"the key {short(key)} has no form in JSON; use text")
    return str(lowered)


def _shape(value: object) -> Shape:
    cls: Any = type(value)
    return _shape_of_class(cls)


@lru_cache(maxsize=512)
def _shape_of_class(cls: type[Any]) -> Shape:
    return shape_of(cls)


UNTAGGED = Untagged()
