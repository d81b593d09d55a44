"""Whether two calls have the same input, compared across processes without storing the input."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from mainspring.codec.models import dump, is_model
from mainspring.codec.type_codec import contain_exit

if TYPE_CHECKING:
    from collections.abc import Callable


INCOMPLETE = "?"
"""The end of a fingerprint that leaves out a value."""


def fingerprint(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, ad_hoc: bool = False) -> str:
    """Return a hash of the arguments of a call. An argument that is no plain value, such as a connection, does not count.

    Then the hash ends with `INCOMPLETE`. `ad_hoc`: the function is made for this call, so the values that it has of its own count, too: those of a
    partial, a method or a closure.
    """
    found = hashlib.sha256()
    complete = True
    while isinstance(fn, functools.partial):
        args, kwargs, fn = (*fn.args, *args), {**fn.keywords, **kwargs}, fn.func
    values = _arguments(fn, args, kwargs) | (_captured(fn) if ad_hoc else {})
    for name, value in values.items():
        try:
            text = contain_exit(_write, value)
        except Exception:  # noqa: BLE001  (of a class of the user's, or a value that JSON does not have)
            text, complete = b"", False
        found.update(f"{name}:{len(text)}:".encode() + text)
    return found.hexdigest() + ("" if complete else INCOMPLETE)


def _arguments(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    try:
        given = inspect.signature(fn).bind(*args, **kwargs)
    except (TypeError, ValueError):  # a function of C, or arguments that it refuses
        return {str(number): each for number, each in enumerate(args)} | kwargs
    given.apply_defaults()
    return given.arguments


def _captured(fn: Callable[..., Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if inspect.ismethod(fn):
        found["__self__"], fn = fn.__self__, fn.__func__
    if inspect.isfunction(fn) and fn.__closure__:
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__, strict=True):
            with contextlib.suppress(ValueError):  # a variable that has no value yet
                value = cell.cell_contents
                # What may have changed since, such as a list that the function appends to, tells nothing about the call.
                found[f"captured {name}"] = value if isinstance(value, _FIXED) else _NO_VALUE
    return found


def _hook(value: object) -> Any:
    if isinstance(value, (PurePath, ZoneInfo, int)):
        return str(value)
    if is_model(type(value)):
        return dump(value)
    raise NotImplementedError


_FIXED = (str, bytes, int, float, Decimal, UUID, date, time, timedelta, type(None))
_NO_VALUE = object()
_write = msgspec.json.Encoder(enc_hook=_hook, order="sorted").encode
