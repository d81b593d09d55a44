"""Objects whose methods are workflows, by the names under which stored calls refer to them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mainspring.engine.registry import Bound
from mainspring.errors import InvalidInput

if TYPE_CHECKING:
    from mainspring.engine.registry import Function, Registry


class Instances:
    """The named objects of one app: `app.instance("name", obj)`."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._by_name: dict[str, Any] = {}

    def add(self, name: str, obj: Any) -> None:
        there = self._by_name.setdefault(name, obj)
        if there is not obj:
            raise InvalidInput(f"the instance name {name!r} is taken by {there!r}")

    def name_of(self, function: Function, receiver: Any) -> str:
        """The name under which a stored call refers to the instance or class that a method is called on."""
        if function.bound is Bound.CLASS:
            return _class_name(receiver)
        for name, instance in self._by_name.items():
            if instance is receiver:
                return name
        raise InvalidInput(
            f"{function.name!r} is a workflow and a method, so its instance must be findable after a restart: "
            'name it with app.instance("name", obj)'
        )

    def receiver(self, function: Function, name: Any) -> Any:
        """The instance or class that a stored call was made on."""
        if function.bound is Bound.CLASS:
            return _find_class(name)
        if name not in self._by_name:
            raise InvalidInput(
                f"{function.name!r} needs the instance {name!r}, which is not named here with app.instance(…)"
            )
        return self._by_name[name]

    def methods(self) -> dict[str, list[str]]:
        """By function that needs an instance: the names of the instances. Names belong to the app, not to a class."""
        names = sorted(self._by_name)
        return {each.name: names for each in self._registry if each.bound is Bound.INSTANCE}


def _class_name(cls: type) -> str:
    name = f"{cls.__module__}:{cls.__qualname__}"
    try:
        found = _find_class(name)
    except (ImportError, AttributeError):
        found = None
    if found is not cls:
        raise InvalidInput(
            f"{name} cannot be imported, so a run of its methods could not be continued; define it in a module"
        )
    return name


def _find_class(name: str) -> Any:
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found
