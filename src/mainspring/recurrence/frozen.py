"""Immutable values."""

from __future__ import annotations

from mainspring.errors import InvalidSpec
from mainspring.model.given import explained


class Frozen:
    """Base class of immutable values: attributes are set once, through `_fill`."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        if "__init__" in vars(cls):
            explained(lambda message: InvalidSpec(message, ()))(cls)

    def _fill(self, **attributes: object) -> None:
        for name, value in attributes.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be changed; make another {type(self).__name__}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be deleted")
