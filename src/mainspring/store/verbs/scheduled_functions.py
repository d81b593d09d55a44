"""Queries for scheduled functions, which are runs with a requested time. The same statements in every store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from mainspring.model.states import State
from mainspring.store.sql.dialect import Where, distinct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.store.transaction import Read

_NAMES = f"{distinct('workflow', 'scheduled_time IS NOT NULL')} SELECT name FROM names WHERE name IS NOT NULL"
_OVER = "(CASE WHEN completed IS NULL THEN 0 ELSE 1 END)"
"""The same text as the expression of the index, which the planner requires."""
_AT_ONCE = 100
"""The most names in one statement. SQLite allows five hundred."""


class FunctionRow(Struct, frozen=True):
    """A scheduled function as stored."""

    id: str
    uid: str
    created: int
    workflow: str
    input: str
    scheduled_time: int
    completed: int | None
    state: State
    error: str | None
    reason: str | None


class FunctionFilter(Struct, frozen=True):
    """Which functions to list, first due first. `after` is time and uid of the last one of the previous page."""

    names: Sequence[str] = ()
    states: Sequence[str] = ()
    due_after: int | None = None
    due_before: int | None = None
    after: tuple[int, str] | None = None
    limit: int = 50


class Functions:
    """The scheduled functions of a store."""

    def __init__(self, read: Read) -> None:
        self._read_rows = read

    def get(self, function_id: str) -> FunctionRow | None:
        found = self._read("id = :id", {"id": function_id})
        return found[0] if found else None

    def page(self, wanted: FunctionFilter) -> list[FunctionRow]:
        """A page of functions. The index has them by name, unfinished and ended ones apart, so each part is queried by itself.

        A function that ends between two queries is found twice. Its later state counts.
        """
        found: dict[str, FunctionRow] = {}
        names = list(dict.fromkeys(wanted.names)) or [name for (name,) in self._read_rows(_NAMES)]
        for over, states in ((0, [State.SCHEDULED, State.QUEUED, State.RUNNING, State.WAITING, State.CANCELLING]),
                             (1, [State.SUCCEEDED, State.FAILED, State.CANCELLED])):  # fmt: skip
            mine = [state for state in states if not wanted.states or state in wanted.states]
            for first in range(0, len(names), _AT_ONCE) if mine else ():
                some = names[first : first + _AT_ONCE]
                found |= {row.uid: row for row in self._half(wanted, some, mine, over)}
        return sorted(found.values(), key=lambda row: (row.scheduled_time, row.uid))[: wanted.limit]

    def _half(self, wanted: FunctionFilter, names: Sequence[str], states: list[State], over: int) -> list[FunctionRow]:
        where = Where(f"scheduled_time IS NOT NULL AND {_OVER} = {over}", limit=wanted.limit)
        where.one_of("state", states)
        where.add("scheduled_time >= :due_after", due_after=wanted.due_after)
        where.add("scheduled_time < :due_before", due_before=wanted.due_before)
        time, uid = wanted.after or (None, None)
        where.add("(scheduled_time, uid) > (:after_time, :after_uid)", after_time=time, after_uid=uid)
        values = where.values | {f"name{number}": name for number, name in enumerate(names)}
        first = " UNION ALL ".join(
            f"""SELECT * FROM (SELECT id, scheduled_time, uid FROM runs {where} AND workflow = :name{number}
      ORDER BY scheduled_time, uid LIMIT :limit) x{number}"""
            for number in range(len(names))
        )
        ids = f"SELECT id FROM ({first}) AS first ORDER BY scheduled_time, uid LIMIT :limit"
        return self._read(f"id IN ({ids})", values)

    def _read(self, where: str, values: dict[str, Any]) -> list[FunctionRow]:
        text = (
            f"SELECT {', '.join(FunctionRow.__struct_fields__)} FROM runs WHERE scheduled_time IS NOT NULL AND {where}"
        )
        return [_row(row) for row in self._read_rows(text, **values)]


def _row(row: Sequence[Any]) -> FunctionRow:
    found = FunctionRow(*row)
    return replace(found, state=State(found.state))
