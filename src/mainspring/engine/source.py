"""The text from which a function's fingerprint is computed: its source, or its compiled code where the source cannot be read.

Programs without source (`.pyc` files only, a frozen program, `python -c`, a prompt, `exec`) have the same fingerprint in every
process that runs them with the same Python: the text contains no addresses, set orders or file paths.
"""

from __future__ import annotations

import inspect
import textwrap
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_NO_FILE = {"<string>", "<stdin>"}
"""File names that all code from `exec`, `-c` and standard input shares. Python 3.13 would return the program's text for them."""


class Source(NamedTuple):
    """The source text of a function. `asks_for_patches`: the function calls `run.patched`."""

    text: str
    asks_for_patches: bool


def source_of(fn: Callable[..., Any]) -> Source:
    """Return the source of a function if it can be read, else its compiled code as text."""
    code = getattr(inspect.unwrap(fn), "__code__", None)
    text = None if isinstance(code, CodeType) and code.co_filename in _NO_FILE else _readable(fn)
    if text is not None:
        return Source(text, ".patched(" in text)
    if not isinstance(code, CodeType):  # a function of an extension module has only a name
        return Source(f"{fn.__module__}.{fn.__qualname__}", asks_for_patches=False)
    return Source(_constant(code), any("patched" in each.co_names for each in _with_nested(code)))


def _readable(fn: Callable[..., Any]) -> str | None:
    try:
        return textwrap.dedent(inspect.getsource(fn))
    except (OSError, TypeError):
        return None


def _with_nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_nested(constant)


def _constant(value: Any) -> str:
    """Return a constant of compiled code as text: equal constants give equal texts in every process."""
    kind: type[object] = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is CodeType:
        return f"code({', '.join(_parts(value))})"
    if kind is tuple:
        return f"({', '.join(map(_constant, value))})"
    if kind is frozenset:
        return f"set({', '.join(sorted(map(_constant, value)))})"
    if kind is slice:
        return f"slice{_constant((value.start, value.stop, value.step))}"
    return f"{kind.__name__} {value!r}"


def _parts(code: CodeType) -> Iterator[str]:
    """Yield the parts of a code object that determine its behaviour, without file and line."""
    yield code.co_name
    yield from map(str, (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags))
    yield code.co_code.hex()
    yield code.co_exceptiontable.hex()
    for names in (code.co_names, code.co_varnames, code.co_cellvars, code.co_freevars, code.co_consts):
        yield _constant(names)
