"""Nothing, in the place of the dictionaries that most runs never put anything into.

There may be ten thousand runs in memory, and an empty dictionary is 64 bytes. They all share this one until they need one of their own.
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
    """The dictionary to put something into."""
    return {} if found is UNUSED else found
