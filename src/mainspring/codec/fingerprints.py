"""Whether two calls have the same input, compared across processes without storing the input."""

from __future__ import annotations

import hashlib
import inspect
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import msgspec

from mainspring.codec.models import dump, is_model

if TYPE_CHECKING:
    from collections.abc import Callable


def fingerprint(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return a hash of the arguments of a call. An argument that is no plain value, such as a connection, does not count."""
    try:
        given = inspect.signature(fn).bind(*args, **kwargs)
    except (TypeError, ValueError):  # a function of C, or arguments that it refuses
        named: dict[str, Any] = {str(number): each for number, each in enumerate(args)} | kwargs
    else:
        given.apply_defaults()
        named = given.arguments
    found = hashlib.sha256()
    for name, value in named.items():
        text = _text(value)
        found.update(f"{name}:{len(text)}:".encode() + text)
    return found.hexdigest()


def _text(value: Any) -> bytes:
    try:
        return _write(value)
    except Exception:  # noqa: BLE001  (of a class of the user's, or a value that JSON does not have)
        return b""


def _hook(value: object) -> Any:
    if isinstance(value, (PurePath, ZoneInfo, int)):
        return str(value)
    if is_model(type(value)):
        return dump(value)
    raise NotImplementedError


_write = msgspec.json.Encoder(enc_hook=_hook, order="sorted").encode
