"""Values made of equal parts: lists, tuples, sets, mappings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from mainspring.codec.scalars import Identifier, Integer, Member, Text
from mainspring.codec.shape import Misfit, short, type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mainspring.codec.shape import Shape


def _each(parts: Iterable[Any], shape: Shape, move: Callable[[Any], Any]) -> list[Any]:
    """Every part lowered or lifted; a misfit learns its index."""
    moved: list[Any] = []
    try:
        for part in parts:
            moved.append(move(part))  # noqa: PERF401 - the length tells where it stopped
    except Misfit as misfit:
        misfit.under(f"[{len(moved)}]")
        raise
    except RecursionError:
        raise Misfit(f"a {shape.name} is nested too deeply, or contains itself") from None
    return moved


class Series:
    """A list, or a tuple of any length."""

    def __init__(self, runtime: type[Any], item: Shape, accepted: tuple[type[Any], ...]) -> None:
        self.runtime = runtime
        self.item = item
        self.accepted = accepted
        self.name = f"{runtime.__name__}[{item.name}]"

    @property
    def native(self) -> bool:
        return self.item.native

    @property
    def open(self) -> bool:
        return self.item.open

    def plain(self, value: Any) -> bool:
        return type(value) is self.runtime and all(map(self.item.plain, value))

    def lower(self, value: Any) -> Any:
        if not isinstance(value, self.accepted):
            raise Misfit(f"{short(value)} is a {type_name(value)}, not a {self.name}")
        return _each(value, self.item, self.item.lower)

    def lift(self, raw: Any) -> Any:
        if type(raw) is not list:
            raise Misfit(f"{short(raw)} is stored where a {self.name} belongs")
        return self.runtime(_each(raw, self.item, self.item.lift))


class Group(Series):
    """A set or frozenset, stored sorted so that equal sets are equal texts."""

    def plain(self, value: Any) -> bool:
        return type(value) is self.runtime and len(value) < 2 and all(map(self.item.plain, value))

    def lower(self, value: Any) -> Any:
        return sorted(super().lower(value), key=_text)

    def lift(self, raw: Any) -> Any:
        try:
            return super().lift(raw)
        except TypeError as error:
            raise Misfit(f"{short(raw)} is stored where a {self.name} belongs: {error}") from None


_text = msgspec.json.Encoder(order="deterministic").encode


class Row:
    """A tuple with a shape for each place, or a NamedTuple: an array, so that a person sees what Python sees."""

    def __init__(self, runtime: type[Any], items: tuple[Shape, ...], *, name: str, optional: int = 0) -> None:
        self.runtime = runtime
        self.items = items
        self.optional = optional
        self.name = name

    @property
    def native(self) -> bool:
        return all(item.native for item in self.items)

    @property
    def open(self) -> bool:
        return any(item.open for item in self.items)

    def plain(self, value: Any) -> bool:
        if type(value) is not self.runtime or len(value) != len(self.items):
            return False
        return all(item.plain(part) for item, part in zip(self.items, value, strict=True))

    def lower(self, value: Any) -> Any:
        if type(value) is not self.runtime:
            raise Misfit(f"{short(value)} is a {type_name(value)}, not a {self.name}")
        if len(value) != len(self.items):
            raise Misfit(f"{short(value)} has {len(value)} items, but {self.name} has {len(self.items)}")
        return [
            _place(index, item.lower, part) for index, (item, part) in enumerate(zip(self.items, value, strict=True))
        ]

    def lift(self, raw: Any) -> Any:
        if type(raw) is not list or not len(self.items) - self.optional <= len(raw) <= len(self.items):
            raise Misfit(f"{short(raw)} is stored where a {self.name} belongs")
        parts = [
            _place(index, item.lift, part) for index, (item, part) in enumerate(zip(self.items, raw, strict=False))
        ]
        return tuple(parts) if self.runtime is tuple else self.runtime(*parts)


def _place(index: int | str, move: Callable[[Any], Any], part: Any) -> Any:
    try:
        return move(part)
    except Misfit as misfit:
        misfit.under(f"[{index!r}]")
        raise


class Table:
    """A mapping. Keys that JSON can have as text make an object; others make a list of pairs."""

    def __init__(self, key: Shape, item: Shape, accepted: tuple[type[Any], ...]) -> None:
        self.runtime = dict
        self.key = key
        self.item = item
        self.accepted = accepted
        self.name = f"dict[{key.name}, {item.name}]"
        self.textual = isinstance(key, (Text, Integer, Identifier)) or (isinstance(key, Member) and key.native)

    @property
    def native(self) -> bool:
        return self.textual and self.item.native

    @property
    def open(self) -> bool:
        return self.item.open

    def plain(self, value: Any) -> bool:
        return type(value) is dict and all(map(self.key.plain, value)) and all(map(self.item.plain, value.values()))

    def lower(self, value: Any) -> Any:
        if not isinstance(value, self.accepted):
            raise Misfit(f"{short(value)} is a {type_name(value)}, not a {self.name}")
        keys = _each(value, self.key, self.key.lower)
        items = [_place(key, self.item.lower, value[key]) for key in value]
        if self.textual:
            return dict(zip(keys, items, strict=True))
        return [list(pair) for pair in zip(keys, items, strict=True)]

    def lift(self, raw: Any) -> Any:
        if self.textual:
            if type(raw) is not dict:
                raise Misfit(f"{short(raw)} is stored where a {self.name} belongs")
            return {self._key(key): _place(key, self.item.lift, item) for key, item in raw.items()}
        if type(raw) is not list or not all(type(pair) is list and len(pair) == 2 for pair in raw):
            raise Misfit(f"{short(raw)} is stored where a {self.name} belongs")
        return {self.key.lift(key): _place(short(key), self.item.lift, item) for key, item in raw}

    def _key(self, text: str) -> Any:
        """A key of a JSON object is always text, whatever it stands for."""
        if type(self.key) is Text:
            return text
        number = isinstance(self.key, Integer) or (isinstance(self.key, Member) and issubclass(self.key.runtime, int))
        try:
            return self.key.lift(int(text) if number else text)
        except ValueError:
            raise Misfit(f"{short(text)} is stored where a key of {self.name} belongs") from None
