"""Parse zone files (TZif, RFC 8536) to the instants at which a zone's offset changes."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import NamedTuple

from mainspring.recurrence.search.days import YEARS
from mainspring.recurrence.zones.posix import PosixRule, parse_posix_rule

_HEADER = struct.Struct(">4sc15x6I")
_LARGEST = 1 << 20
"""The maximum size of a zone file. Real ones have a few kilobytes."""


class Transitions(NamedTuple):
    """The changes of an offset: `offsets[i]` holds before `instants[i]`, `offsets[i + 1]` from it on."""

    instants: tuple[int, ...]
    offsets: tuple[int, ...]


class _Block(NamedTuple):
    version: int
    instants: tuple[int, ...]
    kinds: bytes
    types: list[tuple[int, int]]
    """Offset, and whether it is daylight saving time."""
    end: int


def parse_tzif(data: bytes) -> Transitions:
    """Return the transitions of a zone file up to 2101, including those of its closing rule. Raises `ValueError` for a wrong file."""
    if len(data) > _LARGEST:
        raise ValueError(f"{len(data)} bytes are no zone file")
    block = _read_block(data, 0, wide=False)
    rule: PosixRule | None = None
    if block.version >= 2:
        block = _read_block(data, block.end, wide=True)
        footer = data[block.end :]
        if not footer.startswith(b"\n") or b"\n" not in footer[1:]:
            raise ValueError("the rule at its end is missing")
        text = footer[1 : footer.index(b"\n", 1)]
        rule = parse_posix_rule(text.decode("ascii", "replace")) if text else None
    return _merge(block, rule)


def _read_block(data: bytes, start: int, *, wide: bool) -> _Block:
    try:
        magic, version, utc_count, std_count, leap_count, time_count, type_count, char_count = _HEADER.unpack_from(
            data, start
        )
    except struct.error:
        raise ValueError("it is cut off") from None
    if magic != b"TZif":
        raise ValueError("it does not begin with 'TZif'")
    width = 8 if wide else 4
    at = start + _HEADER.size
    end = at + time_count * (width + 1) + type_count * 6 + char_count + leap_count * (width + 4) + std_count + utc_count
    if end > len(data):
        raise ValueError("it is cut off")
    if type_count == 0 or char_count == 0:
        raise ValueError("it names no type of local time")
    instants = struct.unpack_from(f">{time_count}{'q' if wide else 'i'}", data, at)
    at += time_count * width
    kinds = data[at : at + time_count]
    at += time_count
    types = [struct.unpack_from(">ib", data, at + 6 * index) for index in range(type_count)]
    if kinds and max(kinds) >= type_count:
        raise ValueError("a transition leads to a type that it does not name")
    if any(later <= earlier for earlier, later in pairwise(instants)):
        raise ValueError("its transitions are not in order")
    if any(abs(offset) >= 86_400 for offset, _ in types):
        raise ValueError("an offset of a day or more is no offset")
    number = int(version) if version.isdigit() else 1
    return _Block(number, instants, kinds, [(offset, daylight) for offset, daylight in types], end)


def _merge(block: _Block, rule: PosixRule | None) -> Transitions:
    # Before the first transition the first type of standard time holds, as in the standard library.
    before = next((offset for offset, daylight in block.types if not daylight), block.types[0][0])
    changes = [(instant, block.types[kind][0]) for instant, kind in zip(block.instants, block.kinds, strict=True)]
    last = changes[-1][0] if changes else None
    if rule is not None:
        if not changes:
            before = rule.standard
        changes.extend((at, to) for at, to in rule.transitions(range(YEARS)) if last is None or at > last)
    instants: list[int] = []
    offsets = [before]
    for instant, offset in changes:
        if offset != offsets[-1]:
            instants.append(instant)
            offsets.append(offset)
    return Transitions(tuple(instants), tuple(offsets))
