"""Values of several possible types: unions, and values that nothing is said about."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from mainspring.codec.containers import Group, Series, Table
from mainspring.codec.records import Keyed, Record
from mainspring.codec.scalars import Choices, Scalar, scalar
from mainspring.codec.shape import TAG, VALUE, Misfit, short, type_name

if TYPE_CHECKING:
    from mainspring.codec.shape import Shape

_BARE = frozenset({type(None), bool, int, float, str})
"""What JSON itself tells apart, so that no tag is needed."""


class Union:
    """One of several types. What JSON tells apart is written as it is, everything else with the name of its type:
    `{"$type": "Card", "number": "…"}` for what has named parts, `{"$type": "datetime", "value": "…"}` for the rest.
    """

    def __init__(self, members: tuple[Shape, ...], *, native: bool) -> None:
        self.members = members
        self.accepted_natively = native
        self.runtime: type[Any] = object
        self.name = " | ".join(member.name for member in members)
        self.tagged = {member.name: member for member in members if not _is_bare(member)}
        self.bare = tuple(member for member in members if _is_bare(member))
        if len(self.tagged) + len(self.bare) < len(members):
            raise Misfit(f"two types of {self.name} have the same name; rename one")

    @property
    def native(self) -> bool:
        return self.accepted_natively and all(member.native for member in self.members)

    @property
    def open(self) -> bool:
        return any(member.open for member in self.members)

    def plain(self, value: Any) -> bool:
        return any(member.plain(value) for member in self.members)

    def lower(self, value: Any) -> Any:
        member, raw = self._choose(value)
        if self.native or member in self.bare:
            return raw
        if isinstance(member, Record) and not isinstance(member, Keyed):
            return {TAG: member.name, **raw}
        return {TAG: member.name, VALUE: raw}

    def _choose(self, value: Any) -> tuple[Shape, Any]:
        """The member that this value is an instance of; of several that could be, the first that takes it."""
        problem: Misfit | None = None
        for member in sorted(self.members, key=lambda member: type(value) is not member.runtime):
            try:
                return member, member.lower(value)
            except Misfit as misfit:
                if type(value) is member.runtime and problem is None:
                    problem = misfit
        raise problem or Misfit(f"{short(value)} is a {type_name(value)}, none of {self.name}")

    def lift(self, raw: Any) -> Any:
        if type(raw) is dict and TAG in raw and not self.native:
            member = self.tagged.get(raw[TAG])
            if member is None:
                raise Misfit(f"{raw[TAG]!r} is stored where one of {self.name} belongs")
            return member.lift(raw if isinstance(member, Record) and not isinstance(member, Keyed) else raw[VALUE])
        members = self.members if self.native else self.bare
        for member in members:
            try:
                return member.lift(raw)
            except Misfit:
                continue
        raise Misfit(f"{short(raw)} is stored where one of {self.name} belongs")


def _is_bare(shape: Shape) -> bool:
    return isinstance(shape, Choices) or (isinstance(shape, Scalar) and shape.runtime in _BARE)


class Anything:
    """A value that no annotation describes. JSON stays as it is; what the standard library has beyond it carries a tag. A
    user's own class is refused: nothing here may say which code to load.
    """

    name = "Any"
    native = True
    open = True
    runtime: type[Any] = object

    def __init__(self) -> None:
        scalars = (bytes, Decimal, UUID, datetime, date, time, timedelta, Path)
        self.kinds: dict[str, Any] = {cls.__name__: scalar(cls) for cls in scalars}
        self.kinds["tuple"] = Series(tuple, self, (tuple,))
        self.kinds["set"] = Group(set, self, (set,))
        self.kinds["frozenset"] = Group(frozenset, self, (frozenset,))
        self.kinds["dict"] = Table(self, self, (dict,))
        self.list = Series(list, self, (list,))
        self.bare = {cls: scalar(cls) for cls in _BARE}

    def plain(self, value: Any) -> bool:
        cls = type(value)
        if cls is str or cls is int or value is None or cls is bool:
            return True
        if cls is float:
            return isfinite(value)
        if cls is list:
            return all(map(self.plain, value))
        if cls is dict:
            return all(type(key) is str for key in value) and TAG not in value and all(map(self.plain, value.values()))
        return False

    def lower(self, value: Any) -> Any:
        for cls in type(value).__mro__:
            if (bare := self.bare.get(cls)) is not None:
                return bare.lower(value)
            if cls is list:
                return self.list.lower(value)
            if cls is dict and all(isinstance(key, str) for key in value) and TAG not in value:
                return {str(key): _place(key, self.lower, item) for key, item in value.items()}
            if (
                (kind := self.kinds.get(cls.__name__)) is not None
                and kind.runtime is cls
                and not hasattr(value, "_fields")
            ):
                return {TAG: kind.name if cls.__name__ not in self.kinds else cls.__name__, VALUE: kind.lower(value)}
        raise Misfit(
            f"{short(value)} is a {type_name(value)}, and no annotation says so; annotate it with its type so that it can be "
            f"read back"
        )

    def lift(self, raw: Any) -> Any:
        if type(raw) is list:
            return self.list.lift(raw)
        if type(raw) is not dict:
            return raw
        if TAG not in raw:
            return {key: _place(key, self.lift, item) for key, item in raw.items()}
        kind = self.kinds.get(raw[TAG])
        if kind is None or VALUE not in raw:
            raise Misfit(f"{short(raw)} is stored with a type that is not known here")
        return kind.lift(raw[VALUE])


def _place(key: str, move: Any, part: Any) -> Any:
    try:
        return move(part)
    except Misfit as misfit:
        misfit.under(f"[{key!r}]")
        raise


ANYTHING = Anything()
