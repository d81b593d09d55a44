"""The interface of shapes: how the values of one annotation are encoded as JSON.

A shape has two paths. The slow one, `lower` and `lift`, is the specification: it checks everything, reports where a value does not
fit, and supports what msgspec does not (a union of two dataclasses, a `ZoneInfo`, keys that are tuples). The fast one is msgspec
itself. It is used when every part of the annotation is `native` and the value is `plain`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")

TAG = "$type"
"""The key that names the type of a JSON object, where the annotation does not determine it."""

VALUE = "value"
"""The key beside the tag for a value without named parts."""


class Misfit(Exception):
    """A value, or stored data, does not fit its annotation. Collects the path to the value while it propagates."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = ""

    def __str__(self) -> str:
        return f"at {self.path.lstrip('.')}: {self.problem}" if self.path else self.problem


class Shape:
    """How the values of one annotation are encoded as JSON and decoded."""

    native = True
    """msgspec decodes the values, and encodes those that are plain."""

    open = False
    """Tagged values may occur although msgspec supports the annotation, so a text with a tag takes the slow path."""

    custom = False
    """Decoding runs code of the user, which may refuse the value."""

    inline = False
    """Encoded as an object of its own, which can hold a tag."""

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
        """Whether msgspec alone encodes this value correctly. False is not an error: the slow path decides."""
        return type(value) in self.exact

    def lower(self, value: Any) -> Any:
        """Return a value that msgspec encodes correctly, as one of `kinds`. Raises `Misfit` if the value does not fit."""
        raise NotImplementedError

    def lift(self, raw: Any) -> Any:
        """Return the value of JSON data. Raises `Misfit` if the data does not fit."""
        raise NotImplementedError

    def wrong(self, value: Any) -> Misfit:
        return Misfit(f"{short(value)} is {a(class_of(value))}, not {a(self.name)}")

    def stored_wrong(self, raw: Any) -> Misfit:
        return Misfit(f"{short(raw)} is stored where {a(self.name)} belongs")


class Deferred(Shape):
    """A placeholder inside a recursive shape that is still being compiled."""

    target: Shape

    def plain(self, value: Any) -> bool:
        return self.target.plain(value)

    def lower(self, value: Any) -> Any:
        return self.target.lower(value)

    def lift(self, raw: Any) -> Any:
        return self.target.lift(raw)


def all_shapes(shape: Shape) -> list[Shape]:
    """Return a shape and all shapes that it is made of."""
    found: dict[int, Shape] = {}
    waiting = [shape]
    while waiting:
        current = waiting.pop()
        if id(current) not in found:
            found[id(current)] = current
            waiting.extend(current.parts)
    return list(found.values())


def at(step: str, move: Callable[[Any], Any], part: Any) -> Any:
    """Lower or lift one part. Adds `step` to the path of a misfit."""
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


def is_tuple(value: object) -> TypeGuard[tuple[Any, ...]]:
    return type(value) is tuple


def class_name(cls: type[Any]) -> str:
    """Return the name of a class for messages."""
    return cls.__qualname__ if cls.__module__ in {"builtins", "__main__"} else f"{cls.__module__}.{cls.__qualname__}"


def class_of(value: object) -> str:
    return class_name(type(value))


def contain_exit(fn: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call code of the user that looks at a value. What would end more than the call, an exit or a cancellation, becomes an error of it.

    A KeyboardInterrupt comes from the user at the terminal.
    """
    try:
        return fn(*args, **kwargs)
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as exit_:
        raise RuntimeError(f"{getattr(fn, '__qualname__', class_of(fn))} raised {class_of(exit_)}") from exit_


def short(value: object, limit: int = 60) -> str:
    """Return the `repr` of a value for messages, shortened to `limit`."""
    try:
        text = contain_exit(repr, value)
    except Exception:  # noqa: BLE001 - a broken __repr__ must not hide the problem that is being reported
        text = f"<{class_of(value)}>"
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def a(noun: str) -> str:
    """Return the noun with its article."""
    if noun == "None" or " | " in noun:
        return noun
    return f"an {noun}" if noun[0] in "aeiouAEIOU" and not noun.startswith(("UUID", "uuid")) else f"a {noun}"
