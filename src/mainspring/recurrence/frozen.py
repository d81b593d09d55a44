"""Values that cannot be changed once they are made."""

from __future__ import annotations


class Frozen:
    """A base for values: attributes are set once, through `_fill`, and are read-only after that."""

    __slots__ = ()

    def _fill(self, **attributes: object) -> None:
        for name, value in attributes.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be changed; make another {type(self).__name__}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be deleted")
