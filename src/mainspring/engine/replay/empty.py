"""A shared empty dictionary, for attributes of runs that mostly stay empty.

There may be ten thousand runs in memory, and an empty dictionary takes 64 bytes. A run gets its own when it stores something.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class _Unused(dict[Any, Any]):
    def __setitem__(self, key: object, value: object) -> NoReturn:
        raise TypeError("this dictionary is shared: ask `own` for one first")


UNUSED: Final[dict[Any, Any]] = _Unused()


def own(found: dict[K, V]) -> dict[K, V]:
    """Return a dictionary to write to: the one found, or a new one instead of the shared one."""
    return {} if found is UNUSED else found
