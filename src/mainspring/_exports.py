"""Public names of packages: they say that they are from the package, and may be loaded when they are first used."""

from __future__ import annotations

import contextlib
import inspect
from importlib import import_module
from typing import TYPE_CHECKING, Any, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def exported(package: dict[str, Any], homes: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """The `__getattr__` of a package, given its globals and, by module, the names that it exports.

    What is exported says that it is from the package: where in it something is defined is promised to no one.
    """
    title: str = package["__name__"]
    where = {name: module for module, names in homes.items() for name in names}

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name not in where:
            raise AttributeError(f"module {title!r} has no attribute {name!r}")
        found = getattr(import_module(f"{title}.{where[name]}"), name)
        say_from(title, found)
        package[name] = found
        return found

    return __getattr__


def say_from(title: str, *things: Any) -> None:
    """Make classes and functions say that they are from a package."""
    for found in things:
        if (inspect.isclass(found) or inspect.isfunction(found)) and found.__module__ != title:
            _move(title, found)


def _move(title: str, found: Any) -> None:
    if inspect.isclass(found) and (written := inspect.get_annotations(found)):
        # Annotations are text, and are read in the module that a class says it is from.
        with contextlib.suppress(NameError):  # some are for type checkers only
            hints = get_type_hints(found, include_extras=True)
            found.__annotations__ = {name: hints[name] for name in written}
    found.__module__ = title
