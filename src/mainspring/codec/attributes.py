"""Attributes: named values for filtering runs and schedules. They are plain JSON, so that a database can compare them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from mainspring.errors import InvalidInput, NotSerializable


def attributes_json(given: object, what: str) -> str:
    """Return attributes as JSON text. `what` names them in errors. Raises `InvalidInput` or `NotSerializable`."""
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{what} is a dict with names as keys, not {given!r}")
    named: dict[Any, Any] = dict(given)  # pyright: ignore[reportUnknownArgumentType]
    if not all(isinstance(name, str) for name in named):
        raise InvalidInput(f"{what} is a dict with names as keys, not {given!r}")
    try:
        text = msgspec.json.encode(named).decode()
        stored = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotSerializable(f"{what} cannot be stored as JSON: {error}") from None
    if stored != named or "\\u0000" in text:
        raise NotSerializable(f"{what} are plain JSON values (strings, numbers, booleans, lists, dicts), not {given!r}")
    return text
