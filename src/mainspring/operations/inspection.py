"""Find inconsistencies in a database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.errors import StoreError
from mainspring.operations.schedules.declared import check
from mainspring.operations.schedules.views import AT_ONCE
from mainspring.store.bad_rows import FAULTS, describe
from mainspring.store.schedules import ScheduleFilter
from mainspring.store.verbs.defects import Defect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainspring.store.protocol import Store

LARGE = 2**30
"""Bytes. Above this size `inspect` does not read every row by default."""


def is_large(store: Store) -> bool:
    return store.size() > LARGE


def inspect(store: Store, now: int, *, thorough: bool | None) -> list[Defect]:
    """Return the inconsistencies of a database."""
    found = store.inspect(now, thorough=not is_large(store) if thorough is None else thorough)
    try:
        return [*found, *_schedules(store)]
    except StoreError as error:
        return [*found, Defect("unreadable", f"table schedules: {error}", "mainspring db check")]


def _schedules(store: Store) -> Iterator[Defect]:
    """Yield schedules that cannot be planned."""
    after: str | None = None
    while page := store.schedules.page(ScheduleFilter(after=after, limit=AT_ONCE)):
        for row in page:
            try:
                check(row)
            except FAULTS as error:
                hint = f"repair its spec, policy, action, input or skips in that row, or delete the row; then declare {row.id} anew"
                yield Defect("unreadable", f"table schedules, row {row.id}: {describe(error)}", hint)
        after = page[-1].id
