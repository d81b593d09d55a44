"""Pages of scheduled functions, while these go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.model.states import State
from mainspring.store.verbs.scheduled_functions import FunctionFilter, Functions

if TYPE_CHECKING:
    from mainspring.store.sql.dialect import Sql


def test_a_function_that_ends_while_it_is_listed_is_listed_once() -> None:
    def read(sql: Sql, **_: Any) -> list[tuple[Any, ...]]:
        over = "END) = 1" in str(sql)
        state = State.SUCCEEDED if over else State.QUEUED
        return [("a", "uid", 1, "note", "{}", 1, 2 if over else None, str(state), None, None)]

    (found,) = Functions(read).page(FunctionFilter(names=["note"]))
    assert found.state is State.SUCCEEDED
