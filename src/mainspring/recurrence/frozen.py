"""Immutable values."""

from __future__ import annotations

import functools
import inspect
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from mainspring.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Callable


class Frozen:
    """Base class of immutable values: attributes are set once, through `_fill`."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        if "__init__" in vars(cls):
            cls.__init__ = _explained(cls, cls.__init__)  # type: ignore[method-assign]

    def _fill(self, **attributes: object) -> None:
        for name, value in attributes.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be changed; make another {type(self).__name__}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be deleted")


def _explained(cls: type[Any], init: Callable[..., None]) -> Callable[..., None]:
    """Wrap a constructor, so that wrong arguments raise `InvalidSpec` with the known names."""

    @functools.wraps(init)
    def explained(self: Any, *args: Any, **named: Any) -> None:
        try:
            init(self, *args, **named)
        except TypeError:
            try:
                inspect.signature(init).bind(self, *args, **named)
            except TypeError as misuse:
                raise InvalidSpec(_explanation(cls, init, args, named, misuse), ()) from None
            raise

    return explained


def _explanation(
    cls: type[Any], init: Callable[..., None], args: tuple[Any, ...], named: dict[str, Any], misuse: TypeError
) -> str:
    parameters = list(inspect.signature(init).parameters.values())[1:]
    known = [each.name for each in parameters]
    for name in named:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            return f"{cls.__name__} has no {name!r}; {hint}"
    if args and parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        return f"the parts of a {cls.__name__} are given by name: {cls.__name__}({known[0]}={args[0]!r})"
    return f"{cls.__name__}({', '.join(known)}): {misuse}"
