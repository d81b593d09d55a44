"""Resolve annotations to types, also those that are written as text.

`from __future__ import annotations` leaves only text, and a nested function may use names that are in no module. The local names
of the enclosing function are visible while it runs, as it does when a decorator is applied.
"""

from __future__ import annotations

import sys
from inspect import get_annotations
from typing import TYPE_CHECKING, Annotated, Any, ForwardRef, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_LOCAL = ".<locals>."


class Unresolved:
    """A placeholder for an annotation with an unknown name, such as one that is imported for type checkers only."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"unresolved {self.text!r}"


def unresolved(hint: Any) -> str | None:
    """Return the text of an annotation that could not be resolved; None for every other one."""
    return next((extra.text for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, Unresolved)), None)


def annotations_of(fn: Callable[..., Any]) -> dict[str, Any]:
    """Return every annotation of a function, each resolved by itself, so one unknown name does not affect the others.

    An annotation with an unknown name becomes `Any`, marked as `Unresolved`.
    """
    names = {**enclosing_names(fn.__qualname__, fn.__globals__), **_closure(fn)}
    return {name: _resolved(written, fn.__globals__, names) for name, written in get_annotations(fn).items()}


def return_annotation(fn: Callable[..., Any]) -> Any:
    """Return the annotation of the result of a function, resolved as by `annotations_of`. Any, if there is none."""
    written = get_annotations(fn).get("return", Any)
    if isinstance(written, type):
        return written
    return _resolved(written, fn.__globals__, {**enclosing_names(fn.__qualname__, fn.__globals__), **_closure(fn)})


def class_annotations(cls: type[Any]) -> dict[str, Any]:
    """Return every annotation of a class and its bases. Raises `NameError` for an unknown name."""
    module = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}
    names = enclosing_names(cls.__qualname__, module)
    return get_type_hints(cls, localns={**names, **vars(cls)} if names else None, include_extras=True)


def _resolved(written: Any, module: dict[str, Any], names: dict[str, Any]) -> Any:
    holder = type("holder", (), {"__annotations__": {"it": written}})
    try:
        return get_type_hints(holder, module, names, include_extras=True)["it"]
    except (NameError, AttributeError, SyntaxError):
        return Annotated[Any, Unresolved(written.__forward_arg__ if isinstance(written, ForwardRef) else str(written))]


def _closure(fn: Callable[..., Any]) -> dict[str, Any]:
    names: dict[str, Any] = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return names


def enclosing_names(qualname: str, module: dict[str, Any]) -> dict[str, Any]:
    """Return the local names of the function that encloses a definition, if that function is still running."""
    if _LOCAL not in qualname:
        return {}
    outer = qualname.rpartition(_LOCAL)[0]
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - the only access to a caller
    while frame is not None:
        if frame.f_globals is module and frame.f_code.co_qualname == outer:
            return {**enclosing_names(outer, module), **frame.f_locals}
        frame = frame.f_back
    return {}
