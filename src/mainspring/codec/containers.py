"""Shapes of values whose parts have no names: lists, tuples, sets, mappings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from mainspring.codec.scalars import INTEGER, TEXT, Member
from mainspring.codec.type_codec import Misfit, Shape, at, is_array, is_object, short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

in_order = msgspec.json.Encoder(order="deterministic").encode


def _each(move: Callable[[Any], Any], values: Iterable[Any]) -> list[Any]:
    return [at(f"[{index}]", move, value) for index, value in enumerate(values)]


def _all_plain(shape: Shape, values: Iterable[Any]) -> bool:
    if shape.exact:
        return shape.exact.issuperset(map(type, values)) or all(map(shape.plain, values))
    return all(map(shape.plain, values))


class Series(Shape):
    """A list, or a tuple of any length. `accepted` are the classes that a caller may pass."""

    def __init__(self, runtime: type[Any], item: Shape, accepted: tuple[type[Any], ...]) -> None:
        super().__init__(f"{runtime.__name__}[{item.name}]", runtime, (list,))
        self.item = item
        self.accepted = accepted

    @property
    def parts(self) -> tuple[Shape, ...]:
        return (self.item,)

    def plain(self, value: Any) -> bool:
        return type(value) is self.runtime and _all_plain(self.item, value)

    def lower(self, value: Any) -> Any:
        if not isinstance(value, self.accepted):
            raise self.wrong(value)
        return _each(self.item.lower, cast("Iterable[Any]", value))

    def lift(self, raw: Any) -> Any:
        if not is_array(raw):
            raise self.stored_wrong(raw)
        return self.runtime(_each(self.item.lift, raw))


class Group(Series):
    """A set or frozenset, stored sorted, so that equal sets have equal texts."""

    def plain(self, value: Any) -> bool:
        return type(value) is self.runtime and len(value) < 2 and all(map(self.item.plain, value))

    def lower(self, value: Any) -> Any:
        return sorted(super().lower(value), key=in_order)

    def lift(self, raw: Any) -> Any:
        try:
            return super().lift(raw)
        except TypeError as error:
            raise Misfit(f"{short(raw)} is stored where a {self.name} belongs: {error}") from None


class Row(Shape):
    """A tuple with a shape per position, or a NamedTuple: an array. The last `optional` positions may be missing."""

    def __init__(self, runtime: type[Any], name: str, items: tuple[Shape, ...], optional: int = 0) -> None:
        super().__init__(name, runtime, (list,))
        self.items = items
        self.optional = optional

    @property
    def parts(self) -> tuple[Shape, ...]:
        return self.items

    def plain(self, value: Any) -> bool:
        if type(value) is not self.runtime or len(value) != len(self.items):
            return False
        return all(item.plain(part) for item, part in zip(self.items, value, strict=True))

    def lower(self, value: Any) -> Any:
        if type(value) is not self.runtime:
            raise self.wrong(value)
        if len(value) != len(self.items):
            raise Misfit(f"{short(value)} has {len(value)} items, but {self.name} has {len(self.items)}")
        return [at(f"[{i}]", item.lower, part) for i, (item, part) in enumerate(zip(self.items, value, strict=True))]

    def lift(self, raw: Any) -> Any:
        if not is_array(raw) or not len(self.items) - self.optional <= len(raw) <= len(self.items):
            raise self.stored_wrong(raw)
        parts = [at(f"[{i}]", item.lift, part) for i, (item, part) in enumerate(zip(self.items, raw, strict=False))]
        return tuple(parts) if self.runtime is tuple else self.runtime(*parts)


class Table(Shape):
    """A mapping. Keys of text, whole numbers or enums make an object. Other keys make a list of pairs."""

    def __init__(self, key: Shape, item: Shape, accepted: tuple[type[Any], ...]) -> None:
        self.textual = key is TEXT or key is INTEGER or (isinstance(key, Member) and key.native)
        super().__init__(f"dict[{key.name}, {item.name}]", dict, (dict if self.textual else list,))
        self.native = self.textual
        self.key = key
        self.item = item
        self.accepted = accepted

    @property
    def parts(self) -> tuple[Shape, ...]:
        return (self.key, self.item)

    def plain(self, value: Any) -> bool:
        return is_object(value) and _all_plain(self.key, value) and _all_plain(self.item, value.values())

    def lower(self, value: Any) -> Any:
        if not isinstance(value, self.accepted):
            raise self.wrong(value)
        pairs = [
            (self.key.lower(key), at(f"[{short(key)}]", self.item.lower, item))
            for key, item in cast("dict[Any, Any]", value).items()
        ]
        return dict(pairs) if self.textual else pairs

    def lift(self, raw: Any) -> Any:
        if type(raw) not in self.kinds:
            raise self.stored_wrong(raw)
        pairs = raw.items() if self.textual else raw
        read = self._key_of_text if self.textual and self.key is not TEXT else self.key.lift
        try:
            return {read(key): at(f"[{short(key)}]", self.item.lift, item) for key, item in pairs}
        except (TypeError, ValueError):  # not pairs, a key that is not a number, a key that cannot be hashed
            raise self.stored_wrong(raw) from None

    def _key_of_text(self, text: str) -> Any:
        """Decode a key of a JSON object, which is always text."""
        return self.key.lift(int(text) if int in self.key.kinds else text)
