"""What one annotation looks like as JSON: the contract that every kind of type fulfils.

A shape has two lanes. The slow one, `lower` and `lift`, is the specification: it checks everything, says where a value does
not fit, and carries what msgspec cannot (a union of two dataclasses, a `ZoneInfo`, keys that are tuples). The fast one is
msgspec itself. It may be taken when the annotation is `native` and the value is `plain`: then both lanes write the same text.
"""

from __future__ import annotations

from typing import Any, Protocol

TAG = "$type"
"""The key that says which type a JSON object stands for, wherever the annotation leaves that open."""

VALUE = "value"


class Misfit(Exception):  # noqa: N818 - a signal inside the codec, turned into NotSerializable with its place
    """A value, or a stored one, does not fit its annotation. Collects the path to it on the way out."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = ""

    def under(self, step: str) -> None:
        self.path = step + self.path


class Shape(Protocol):
    """How values of one annotation become JSON and come back."""

    name: str
    """The type in words; also its tag where a union needs one."""

    native: bool
    """msgspec reads what `lower` writes for plain values, with no help."""

    open: bool
    """Tagged values may occur although the annotation is native, so a text with a tag takes the slow lane."""

    runtime: type[Any]
    """The class whose direct instances belong here."""

    def plain(self, value: Any) -> bool:
        """Whether msgspec alone writes this value correctly. No is not an error: the slow lane decides."""
        ...

    def lower(self, value: Any) -> Any:
        """What to write: a value that msgspec writes correctly. Raise Misfit when the value is something else."""
        ...

    def lift(self, raw: Any) -> Any:
        """The value again, from plain JSON data. Raise Misfit when the data is something else."""
        ...


def type_name(value: object) -> str:
    """The class of a value as a person would write it."""
    return class_name(type(value))


def class_name(cls: type[Any]) -> str:
    return cls.__qualname__ if cls.__module__ in {"builtins", "__main__"} else f"{cls.__module__}.{cls.__qualname__}"


def short(value: object, limit: int = 60) -> str:
    """A value in a message, never long."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a broken __repr__ must not hide the problem that is being reported
        text = f"<{type_name(value)}>"
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
