"""Shapes of values with several possible types: unions, and values without an annotation."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from math import isfinite
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from mainspring.codec.containers import Group, Series, Table
from mainspring.codec.records import holds_values
from mainspring.codec.scalars import Choices, Constrained, Scalar, scalar
from mainspring.codec.type_codec import TAG, VALUE, Misfit, Shape, a, at, class_of, is_array, is_object, short

_BARE = (type(None), bool, int, float, str)
_HARMLESS = frozenset({type(None), bool, int, str})


class Union(Shape):
    """One of several types. Members that JSON distinguishes are encoded as they are.

    Otherwise all but None, bool, int, float and str carry the name of their type: `{"$type": "Card", "number": "…"}` if they have
    named parts, `{"$type": "datetime", "value": "…"}` if not.
    """

    def __init__(self, members: tuple[Shape, ...]) -> None:
        self.natural = _distinguishable(members)
        self.members = members
        self.tagged = {} if self.natural else {member.name: member for member in members if not _is_bare(member)}
        self.untagged = [member for member in members if member.name not in self.tagged]
        kinds = [kind for member in self.untagged for kind in member.kinds]
        super().__init__(
            " | ".join(member.name for member in members), object, [*kinds, dict] if self.tagged else kinds
        )
        if len(self.tagged) + len(self.untagged) < len(members):
            raise Misfit(
                f"two types in {self.name} have the same name, so nothing tells their values apart; rename one"
            )
        self.native = self.natural
        quick = frozenset[type[Any]]().union(*(member.exact for member in members))
        self.exact = quick if all(member.exact for member in members) else frozenset()
        self._quick = quick
        self._likely: dict[object, list[Shape]] = {
            m.runtime: [other for other in members if other.runtime is m.runtime] for m in members
        }
        self._others = [member.plain for member in members if not member.exact]

    @property
    def parts(self) -> tuple[Shape, ...]:
        return self.members

    def plain(self, value: Any) -> bool:
        return type(value) in self._quick or any(plain(value) for plain in self._others)

    def lower(self, value: Any) -> Any:
        member, written = self._choose(value)
        if member.name not in self.tagged:
            return written
        return {TAG: member.name, **written} if member.inline else {TAG: member.name, VALUE: written}

    def _choose(self, value: Any) -> tuple[Shape, Any]:
        """Return the member that the value is an instance of, and the lowered value. The first match wins."""
        problem: Misfit | None = None
        for member in (*self._likely.get(_classes(value)[0], ()), *self.members):
            try:
                return member, member.lower(value)
            except Misfit as misfit:
                if isinstance(value, member.runtime) and member.runtime is not object:
                    problem = problem or misfit
        raise problem or Misfit(f"{short(value)} is {a(class_of(value))}, none of {self.name}")

    def lift(self, raw: Any) -> Any:
        if self.tagged and is_object(raw):
            member = self.tagged.get(raw.get(TAG, ""))
            if member is None or not (member.inline or VALUE in raw):
                raise self.stored_wrong(raw)
            return member.lift(raw if member.inline else raw[VALUE])
        fitting = [member for member in self.untagged if type(raw) in member.kinds]
        if len(fitting) > 1:
            fitting.sort(key=lambda member: type(raw) is not member.runtime)
        for member in fitting:
            try:
                return member.lift(raw)
            except Misfit:
                if len(fitting) == 1:
                    raise
        raise self.stored_wrong(raw)


def _is_bare(shape: Shape) -> bool:
    while isinstance(shape, Constrained):
        shape = shape.inner
    return isinstance(shape, Choices) or (isinstance(shape, Scalar) and shape.runtime in _BARE)


def _distinguishable(members: tuple[Shape, ...]) -> bool:
    """Whether JSON shows which member a value belongs to: by null, true, number, text, array, object, or the tag of a Struct."""
    for index, one in enumerate(members):
        for other in members[:index]:
            if one.kinds & other.kinds and not (_is_bare(one) and _is_bare(other)) and not _labelled(one, other):
                return False
    return True


def _labelled(one: Shape, other: Shape) -> bool:
    mine, yours = getattr(one, "label", None), getattr(other, "label", None)
    return bool(mine and yours and mine[0] == yours[0] and mine[1] != yours[1])


class Anything(Shape):
    """A value without an annotation. JSON stays as it is, and the supported types of the standard library carry a tag.

    A user's own class is refused, since stored data must not decide which code is loaded.
    """

    open = True

    def __init__(self, advice: str | None = None) -> None:
        super().__init__("Any", object, (*_BARE, list, dict))
        self.advice = advice
        self.bare = {cls: cast("Shape", scalar(cls)) for cls in _BARE}
        kinds = (bytes, bytearray, Decimal, UUID, datetime, date, time, timedelta, Path)
        self.tagged: dict[type[Any], Shape] = {cls: cast("Shape", scalar(cls)) for cls in kinds}
        self.tagged[tuple] = Series(tuple, self, (tuple,))
        self.tagged[set] = Group(set, self, (set,))
        self.tagged[frozenset] = Group(frozenset, self, (frozenset,))
        self.tagged[dict] = Table(self, self, (dict,))
        self.names = {cls.__name__: shape for cls, shape in self.tagged.items()}
        self.list = Series(list, self, (list,))

    def plain(self, value: Any) -> bool:
        cls: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
        if cls in _HARMLESS:
            return True
        if cls is float:
            return isfinite(value)
        if cls is list:
            return _HARMLESS.issuperset(map(type, value)) or all(map(self.plain, value))
        if cls is not dict or TAG in value or not self._text_keys(value):
            return False
        return _HARMLESS.issuperset(map(type, value.values())) or all(map(self.plain, value.values()))

    def lower(self, value: Any) -> Any:
        for cls in _classes(value):
            if cls in self.bare:
                return self.bare[cls].lower(value)
            if cls is list:
                return self.list.lower(value)
            if cls is dict and TAG not in value and self._text_keys(value):
                return {key: at(f"[{short(key)}]", self.lower, part) for key, part in value.items()}
            if cls in self.tagged and not hasattr(value, "_fields"):
                return {TAG: cls.__name__, VALUE: self.tagged[cls].lower(value)}
        raise Misfit(f"{short(value)} is {a(class_of(value))}{self._problem(value)}")

    def _problem(self, value: Any) -> str:
        if isinstance(value, Awaitable):
            return " that was not awaited; write `await`"
        cls: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
        if self.advice or holds_values(cls):
            return f", and no annotation says so; {self.advice or 'annotate it with its type, so that it can be read back'}"
        return (
            ", which cannot be stored and read back; use a dataclass, a msgspec Struct, a pydantic model or plain data"
        )

    def lift(self, raw: Any) -> Any:
        if is_array(raw):
            return self.list.lift(raw)
        if not is_object(raw):
            return raw
        if TAG not in raw:
            return {key: at(f"[{short(key)}]", self.lift, part) for key, part in raw.items()}
        shape = self.names.get(raw[TAG])
        if shape is None or VALUE not in raw:
            raise Misfit(f"{short(raw)} is stored with a type that is not known here")
        return shape.lift(raw[VALUE])

    @staticmethod
    def _text_keys(value: dict[Any, Any]) -> bool:
        return set(map(type, value)) <= {str}


def _classes(value: object) -> tuple[type[Any], ...]:
    return type(value).__mro__


class Bare(Shape):
    """A container class without arguments: any instance of it."""

    def __init__(self, runtime: type[Any], anything: Anything) -> None:
        super().__init__(runtime.__name__, runtime, (dict,))
        self.anything = anything

    @property
    def parts(self) -> tuple[Shape, ...]:
        return (self.anything,)

    def plain(self, value: Any) -> bool:
        return type(value) is self.runtime and self.anything.plain(value)

    def lower(self, value: Any) -> Any:
        if not isinstance(value, self.runtime):
            raise self.wrong(value)
        return self.anything.lower(value)

    def lift(self, raw: Any) -> Any:
        value = self.anything.lift(raw)
        if not isinstance(value, self.runtime):
            raise self.stored_wrong(raw)
        return value


ANYTHING = Anything()
