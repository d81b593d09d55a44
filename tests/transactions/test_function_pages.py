"""Pages of scheduled functions, while these go on."""

from __future__ import annotations

from typing import Any

from mainspring.model.states import State
from mainspring.store.functions import FunctionFilter, Functions


def test_a_function_that_ends_while_it_is_listed_is_listed_once() -> None:
    def rows(statement: str, _: dict[str, Any]) -> list[tuple[Any, ...]]:
        over = "completed IS NOT NULL" in statement
        state = State.SUCCEEDED if over else State.QUEUED
        return [("a", "uid", 1, "note", "{}", 1, 2 if over else None, str(state), None, None)]

    (found,) = Functions(rows).page(FunctionFilter())
    assert found.state is State.SUCCEEDED
