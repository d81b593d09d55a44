"""Look up classes by name, for exceptions and their attributes."""

from __future__ import annotations

import importlib
import sys
from enum import Enum
from typing import Any

from mainspring.codec.fields import declared, is_named_tuple
from mainspring.codec.records import is_model


def path_of(cls: type[Any]) -> str:
    """Return the path of a class, as `module:QualName`."""
    return f"{cls.__module__}:{cls.__qualname__}"


def find_exception(path: str) -> type[BaseException] | None:
    """Return the exception class of a path, or None.

    A class that can be imported comes first. Otherwise it is one that is defined in this process, for example inside a function: it is
    found as long as it exists, and the last definition wins.
    """
    found = _imported(path)
    if isinstance(found, type) and issubclass(found, BaseException):
        return found
    return _find_defined(path)


def find_value_class(path: str) -> type[Any] | None:
    """Return the class of a path if it only holds values, or None."""
    found = _imported(path)
    return found if isinstance(found, type) and holds_values(found) else None


def holds_values(cls: type[Any]) -> bool:
    """Whether a class is an enum, a dataclass, a Struct, an attrs class, a NamedTuple or a pydantic model."""
    if issubclass(cls, BaseException):
        return False
    return issubclass(cls, Enum) or is_named_tuple(cls) or declared(cls) is not None or is_model(cls)


def _imported(path: str) -> object:
    """Return the object at a path, importing its module if necessary.

    An exception of a library that was only imported inside a step must be the same class in the process that replays the step.
    """
    module, _, qualname = path.partition(":")
    try:
        found: object = sys.modules.get(module) or importlib.import_module(module)
        for part in qualname.split("."):
            found = getattr(found, part)
    except Exception:  # noqa: BLE001 - a module may raise anything when it is imported
        return None
    return found


def _find_defined(path: str) -> type[BaseException] | None:
    module, _, qualname = path.partition(":")
    found: type[BaseException] | None = None
    waiting: list[type[BaseException]] = [BaseException]
    seen: set[type[BaseException]] = set()
    while waiting:
        cls = waiting.pop(0)
        if cls in seen:
            continue
        seen.add(cls)
        if cls.__qualname__ == qualname and cls.__module__ == module:
            found = cls
        waiting.extend(cls.__subclasses__())
    return found
