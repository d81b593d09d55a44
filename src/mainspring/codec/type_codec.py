"""What one annotation looks like as JSON: the contract that every kind of type fulfils.

A shape has two paths. The slow one, `lower` and `lift`, is the specification: it checks everything, says where a value does
not fit, and carries what msgspec cannot (a union of two dataclasses, a `ZoneInfo`, keys that are tuples). The fast one is
msgspec itself. It may be taken when all of the annotation is `native` and the value is `plain`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

TAG = "$type"
"""The key that says which type a JSON object stands for, wherever the annotation leaves that open."""

VALUE = "value"
"""The key beside the tag for a value that has no named parts of its own."""


class Misfit(Exception):
    """A value, or a stored one, does not fit its annotation. Collects the path to it on the way out."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = ""

    def __str__(self) -> str:
        return f"at {self.path.lstrip('.')}: {self.problem}" if self.path else self.problem


class Shape:
    """How the values of one annotation become JSON and come back."""

    native = True
    """msgspec itself reads it, and writes it when plain."""

    open = False
    """Tagged values may occur although msgspec takes the annotation, so a text with a tag is for the slow path."""

    custom = False
    """Reading one runs code of the user, which may refuse it."""

    inline = False
    """Written as an object of its own, which has room for a tag."""

    exact: frozenset[type[Any]] = frozenset()
    """Classes whose direct instances are plain, whatever they contain."""

    def __init__(self, name: str, runtime: type[Any], kinds: Iterable[type[Any]]) -> None:
        self.name = name
        self.runtime = runtime
        self.kinds = frozenset(kinds)

    @property
    def parts(self) -> tuple[Shape, ...]:
        """The shapes that this one is made of."""
        return ()

    def plain(self, value: Any) -> bool:
        """Whether msgspec alone writes this value correctly. No is not an error: the slow path decides."""
        return type(value) in self.exact

    def lower(self, value: Any) -> Any:
        """A value that msgspec writes correctly, of one of `kinds` once written. Raises Misfit for a value that is no such."""
        raise NotImplementedError

    def lift(self, raw: Any) -> Any:
        """The value again, from JSON data. Raises Misfit for data that is no such value."""
        raise NotImplementedError

    def wrong(self, value: Any) -> Misfit:
        return Misfit(f"{short(value)} is {a(class_of(value))}, not {a(self.name)}")

    def stored_wrong(self, raw: Any) -> Misfit:
        return Misfit(f"{short(raw)} is stored where {a(self.name)} belongs")


class Deferred(Shape):
    """Stands for a shape that is still being made, inside itself."""

    target: Shape

    def plain(self, value: Any) -> bool:
        return self.target.plain(value)

    def lower(self, value: Any) -> Any:
        return self.target.lower(value)

    def lift(self, raw: Any) -> Any:
        return self.target.lift(raw)


def reach(shape: Shape) -> list[Shape]:
    """A shape and all that it is made of."""
    found: dict[int, Shape] = {}
    waiting = [shape]
    while waiting:
        current = waiting.pop()
        if id(current) not in found:
            found[id(current)] = current
            waiting.extend(current.parts)
    return list(found.values())


def at(step: str, move: Callable[[Any], Any], part: Any) -> Any:
    """One part lowered or lifted; a misfit learns where it was."""
    try:
        return move(part)
    except Misfit as misfit:
        misfit.path = step + misfit.path
        raise


def is_object(raw: object) -> TypeGuard[dict[str, Any]]:
    return type(raw) is dict


def is_mapping(value: object) -> TypeGuard[dict[Any, Any]]:
    return isinstance(value, dict)


def is_array(raw: object) -> TypeGuard[list[Any]]:
    return type(raw) is list


def class_name(cls: type[Any]) -> str:
    """A class as a person would write it."""
    return cls.__qualname__ if cls.__module__ in {"builtins", "__main__"} else f"{cls.__module__}.{cls.__qualname__}"


def class_of(value: object) -> str:
    return class_name(type(value))


def short(value: object, limit: int = 60) -> str:
    """A value in a message, never long."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a broken __repr__ must not hide the problem that is being reported
        text = f"<{class_of(value)}>"
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def a(noun: str) -> str:
    """The noun with its article."""
    if noun == "None" or " | " in noun:
        return noun
    return f"an {noun}" if noun[0] in "aeiouAEIOU" and not noun.startswith(("UUID", "uuid")) else f"a {noun}"
