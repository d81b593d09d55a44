"""Rows that cannot be read: changed by a person, by a defect, or by a broken disk. One of them stops nothing else.

It is set aside: left out of lists, claims and plans, named in the log once, and found by `mainspring doctor`.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from mainspring.errors import InvalidInput, MainspringError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

T = TypeVar("T")
Row = TypeVar("Row")

log = logging.getLogger("mainspring.store")

FAULTS = (ValueError, TypeError, KeyError, IndexError, AttributeError, msgspec.MsgspecError, InvalidInput)
"""What reading a row raises that is not as it should be. A database that cannot be used raises something else."""
_MOST_REPORTED = 10_000
_reported: set[tuple[str, str]] = set()
_telling = threading.Lock()


def tell(table: str, key: str, error: BaseException) -> None:
    """Name a row in the log, once."""
    with _telling:
        if (table, key) in _reported or len(_reported) >= _MOST_REPORTED:
            return
        _reported.add((table, key))
    log.error(
        "the row %r of table %s cannot be read and is set aside, everything else goes on: %s; `mainspring doctor` says what helps",
        key,
        table,
        describe(error),
    )


def describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def _first(row: Any) -> Any:
    return row[0]


def readable(table: str, rows: Iterable[Row], make: Callable[[Row], T], key: Callable[[Row], Any] = _first) -> list[T]:
    """What is made of rows, without those that cannot be read. `key` names a row: its first column by default."""
    found: list[T] = []
    for row in rows:
        try:
            found.append(make(row))
        except FAULTS as error:
            tell(table, str(key(row)), error)
    return found


def read(table: str, key: str, make: Callable[[], T]) -> T:
    """What is made of one row that a caller asks for; an error in words if it cannot be read."""
    try:
        return make()
    except MainspringError:
        raise
    except FAULTS as error:
        raise StoreError(
            f"the row {key!r} of table {table} cannot be read: {describe(error)}; `mainspring doctor` says what helps"
        ) from error


def tick_key(row: Sequence[Any]) -> str:
    """How a tick is called: its schedule, nominal time and request are its first columns."""
    return "/".join(str(part) for part in row[:3])


def readable_page(
    table: str,
    fetch: Callable[[str | None], Sequence[Sequence[Any]]],
    make: Callable[[Sequence[Any]], T],
    limit: int,
    *,
    key: int,
    uid: int,
) -> list[T]:
    """A page of runs. As long as it would be if all rows were readable: a caller that finds it shorter takes it for the last one.

    `fetch` reads a page of rows older than the run with that uid, or the page itself; `key` and `uid` are columns.
    """
    rows = fetch(None)
    found = readable(table, rows, make, lambda row: row[key])
    while len(rows) >= limit > len(found):
        rows = fetch(rows[-1][uid])
        found += readable(table, rows, make, lambda row: row[key])
    return found[:limit]
