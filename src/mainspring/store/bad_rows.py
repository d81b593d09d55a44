"""Rows that cannot be decoded: changed by an operator, by a defect, or by a broken disk. One such row stops nothing else.

The row is left out of lists, claims and plans, logged once, and found by `mainspring doctor`.
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

FAULTS = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    RecursionError,
    msgspec.MsgspecError,
    InvalidInput,
)
"""Exceptions that decoding a bad row raises. A database that cannot be reached raises others."""
_MOST_REPORTED = 10_000
_reported: set[tuple[str, str]] = set()
_reporting = threading.Lock()


def log_bad_row(table: str, key: str, error: BaseException) -> None:
    """Log a bad row, once."""
    with _reporting:
        if (table, key) in _reported or len(_reported) >= _MOST_REPORTED:
            return
        _reported.add((table, key))
    log.error(
        "the row %r of table %s cannot be read and is skipped, everything else continues: %s; `mainspring doctor` says what helps",
        key,
        table,
        describe(error),
    )


def describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def _first(row: Any) -> Any:
    return row[0]


def readable(table: str, rows: Iterable[Row], make: Callable[[Row], T], key: Callable[[Row], Any] = _first) -> list[T]:
    """Decode rows and leave out the bad ones. `key` returns the name of a row: its first column by default."""
    found: list[T] = []
    for row in rows:
        try:
            found.append(make(row))
        except FAULTS as error:
            log_bad_row(table, str(key(row)), error)
    return found


def read(table: str, key: str, make: Callable[[], T]) -> T:
    """Decode one row that a caller asks for. Raise `StoreError` if it cannot be decoded."""
    try:
        return make()
    except MainspringError:
        raise
    except FAULTS as error:
        raise StoreError(
            f"the row {key!r} of table {table} cannot be read: {describe(error)}; `mainspring doctor` says what helps"
        ) from error


def tick_key(row: Sequence[Any]) -> str:
    """The name of a tick for the log: schedule, nominal time and request, which are its first columns."""
    return "/".join(str(part) for part in row[:3])


def readable_page(
    fetch: Callable[[str | None], Sequence[Sequence[Any]]],
    make: Callable[[Sequence[Any]], T],
    limit: int,
    *,
    key: int,
    uid: int,
) -> list[T]:
    """A full page of runs in spite of bad rows: a caller takes a short page for the last one.

    `fetch` reads the page, or the next rows older than the run with that uid. `key` and `uid` are numbers of columns.
    """
    rows = fetch(None)
    found = readable("runs", rows, make, lambda row: row[key])
    while len(rows) >= limit > len(found):
        rows = fetch(rows[-1][uid])
        found += readable("runs", rows, make, lambda row: row[key])
    return found[:limit]
