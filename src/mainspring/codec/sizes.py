"""How large a value is, as its user counts: in bytes of its JSON, in which text and `bytes` count as what they are.

Quotes, escapes and base64 are the library's own doing: seven megabytes of `bytes` are seven megabytes.
"""

from __future__ import annotations

import msgspec

from mainspring.codec.type_codec import is_array, is_mapping
from mainspring.codec.untyped import LOOSE
from mainspring.errors import TooLarge

_LONGEST_CHARACTER = 4
"""Bytes of a character in UTF-8, at most."""


def check_size(text: str, value: object, limit: int, what: str) -> str:
    """The text, unless the value that it stands for is larger than so many bytes."""
    if len(text) * _LONGEST_CHARACTER > limit and len(text.encode()) > limit:
        size = size_of(text, value)
        if size > limit:
            raise TooLarge(f"{what}: {size:,} bytes; the limit is {limit:,} (setting value_bytes)")
    return text


def size_of(text: str, value: object) -> int:
    """The size in bytes of a value that is stored as `text`."""
    try:
        added = _added(LOOSE.lower(value))
    except Exception:  # noqa: BLE001  (its annotation alone knows how it is written)
        added = 0
    return len(text.encode()) - added


def _added(lowered: object) -> int:
    """By how much the JSON of text and bytes in a value is longer than they are."""
    if isinstance(lowered, (bytes, bytearray)):
        return (len(lowered) + 2) // 3 * 4 + 2 - len(lowered)
    if isinstance(lowered, str):
        return len(msgspec.json.encode(lowered)) - len(lowered.encode())
    if is_mapping(lowered):
        return sum(map(_added, lowered.values()))
    if is_array(lowered):
        return sum(map(_added, lowered))
    return 0
