"""Time zones as sorted arrays: a binary search finds the offset at an instant."""

from __future__ import annotations

import io
from bisect import bisect_right
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING
from zoneinfo import TZPATH, ZoneInfo

from mainspring.recurrence.search.days import END_SECOND, FIRST_SECOND, NEVER

if TYPE_CHECKING:
    from mainspring.recurrence.zones.tzif import Transitions


class Zone:
    """The transitions of one zone between 2000 and 2100.

    `edges` has two instants for each transition: as far before it and after it as the clocks move. Between the edges of
    two transitions, local time is an instant plus a fixed offset, whatever the policy for gaps and folds. The policy
    matters only in the windows around a transition. `bisect_right(edges, t)` is even outside of these windows and odd
    inside, and `edge_offsets` has the offset of each even index.
    """

    __slots__ = ("data", "edge_offsets", "edges", "instants", "key", "local_edges", "local_epoch", "offsets", "tzinfo")

    def __init__(self, key: str, tzinfo: ZoneInfo, transitions: Transitions, data: bytes | None = None) -> None:
        self.key, self.tzinfo, self.data = key, tzinfo, data
        self.instants, self.offsets = _relevant(transitions)
        self.edges: list[int] = []
        self.edge_offsets = [self.offsets[0]]
        for at, before, after in zip(self.instants, self.offsets, self.offsets[1:], strict=False):
            moved = abs(after - before)
            if self.edges and at - moved < self.edges[-1]:
                raise ValueError("two of its transitions are closer together than the clocks move")
            self.edges += [at - moved, at + moved]
            self.edge_offsets += [after, after]
        self.edges.append(NEVER)
        self.local_edges = [edge + self.edge_offsets[index + index % 2] for index, edge in enumerate(self.edges)]
        """The same edges on the wall clock, which is unambiguous at each of them."""
        self.local_epoch = datetime(1970, 1, 1, tzinfo=tzinfo)
        """Subtracted from a datetime of this zone, this gives seconds on the wall clock."""

    def offset(self, instant: int) -> int:
        """Return the seconds east of UTC at an instant."""
        return self.offsets[bisect_right(self.instants, instant)]

    def instant(self, local: int) -> int:
        """Return the first instant at which local time is `local` or later."""
        index = bisect_right(self.instants, local - max(self.offsets))
        while index < len(self.instants) and self.instants[index] + self.offsets[index] <= local:
            index += 1
        found = local - self.offsets[index]
        return max(found, self.instants[index - 1]) if index else found

    @property
    def end(self) -> int:
        """The first instant whose local year is 2101."""
        return END_SECOND - self.offsets[-1]


def _relevant(transitions: Transitions) -> tuple[tuple[int, ...], tuple[int, ...]]:
    # One more day at both ends, so that every instant whose local year is 2000 to 2100 is inside.
    first = bisect_right(transitions.instants, FIRST_SECOND - 86_400)
    last = bisect_right(transitions.instants, END_SECOND + 86_400)
    return transitions.instants[first:last], transitions.offsets[first : last + 1]


@lru_cache(maxsize=1_024)
def load_zone(key: str) -> Zone:
    """Return the zone of an IANA name. Raises `ValueError` for an unknown name, with a similar known one."""
    from mainspring.recurrence.zones.tzif import parse_tzif  # noqa: PLC0415 - imported when a zone is first used

    data = _read_database(key)
    if data is None:
        raise ValueError(f"{key!r} is not a time zone{_suggestion(key)}")
    return Zone(key, ZoneInfo(key), parse_tzif(data))


@lru_cache(maxsize=256)
def zone_from_data(key: str, data: bytes) -> Zone:
    """Return a zone from the contents of its file, for specs with their own zone data. Raises `ValueError` if the file is wrong."""
    from mainspring.recurrence.zones.tzif import parse_tzif  # noqa: PLC0415 - few specs have their own zone data

    transitions = parse_tzif(data)
    try:
        tzinfo = ZoneInfo.from_file(io.BytesIO(data), key=key)
    except Exception as error:  # noqa: BLE001 - the standard library's parser may raise anything
        raise ValueError(f"the standard library cannot read it: {error}") from None
    return Zone(key, tzinfo, transitions, data)


def _read_database(key: str) -> bytes | None:
    parts = key.split("/")
    if not key.isascii() or not key.isprintable() or any(part in {"", ".", ".."} or "\\" in part for part in parts):
        return None
    for root in TZPATH:
        try:
            with open("/".join([root, *parts]), "rb") as file:  # noqa: PTH123 - pathlib is slow to import
                data = file.read()
        except OSError:
            continue
        if data.startswith(b"TZif"):
            return data
    return _read_package(parts)


def _read_package(parts: list[str]) -> bytes | None:
    from importlib.resources import files  # noqa: PLC0415 - only needed where the system has no zone database

    try:
        return files("tzdata").joinpath("zoneinfo", *parts).read_bytes()
    except (OSError, ModuleNotFoundError):
        return None


def _suggestion(key: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only needed for this message
    from zoneinfo import available_timezones  # noqa: PLC0415 - only needed for this message

    known = available_timezones()
    lowered = {name.lower(): name for name in known}
    if exact := lowered.get(key.lower()):
        return f"; write {exact!r}"
    by_city = {name.rsplit("/", 1)[-1].lower(): name for name in sorted(known)}
    near = get_close_matches(key.lower(), [*lowered, *by_city], n=1)
    if near:
        return f"; did you mean {lowered.get(near[0]) or by_city[near[0]]!r}?"
    return "; write an IANA name such as 'Europe/Paris'"
