"""Queries of scheduled functions, and bulk cancellation."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime  # noqa: TC003  (a run that asks for one records it, and reads it back by its annotations)
from typing import TYPE_CHECKING, Any, Protocol

from mainspring.errors import InvalidInput, NotFound
from mainspring.model.clock import to_datetime
from mainspring.model.given import check_name
from mainspring.model.states import NOT_BEGUN, State
from mainspring.operations.actions import Actions, Answer
from mainspring.operations.filters import one_of, page_size, texts, time, time_cursor
from mainspring.operations.records import Page
from mainspring.operations.runs.actions import RunActions
from mainspring.operations.runs.bulk import Found, act_on
from mainspring.store.sealing.payloads import shown_input
from mainspring.store.verbs.scheduled_functions import FunctionFilter

if TYPE_CHECKING:
    from mainspring.model.clock import Clock
    from mainspring.operations.filters import Texts, Time
    from mainspring.store.protocol import Store
    from mainspring.store.verbs.scheduled_functions import FunctionRow, Functions

STATES = {
    "pending": NOT_BEGUN,
    "in_progress": (State.RUNNING, State.WAITING),
    "success": (State.SUCCEEDED,),
    "failed": (State.FAILED,),
    "canceled": (State.CANCELLING, State.CANCELLED),
}
"""The states of a scheduled function, as shown in the API and the view, with the states of its run."""

_BATCH = 1_000
FUNCTION_ACTIONS = Actions("scheduled_functions")


def _cancelled(names: str, count: int) -> Answer:
    functions = f"{count:,} pending function{'' if count == 1 else 's'}{f' of {names}' if names else ''}"
    return Answer(f"{functions} cancelled", {"cancelled": count})


@dataclass(frozen=True, slots=True)
class ScheduledFunction:
    """A function that was scheduled with `run_after` or `run_at`."""

    id: str
    created: datetime
    name: str
    args: list[Any]
    """One object: the arguments by name."""
    scheduled_time: datetime
    """The requested time."""
    completed_time: datetime | None
    state: str
    """`pending`, `in_progress`, `success`, `failed` or `canceled`."""
    error: str | None
    """The error message, if the function failed."""


@dataclass(frozen=True, slots=True)
class FunctionPage(Page[ScheduledFunction]):
    """A page of scheduled functions. Pass `next` as `after` to get the following page. None: this is the last page."""

    functions: list[ScheduledFunction]
    next: str | None

    @property
    def _items(self) -> list[ScheduledFunction]:
        return self.functions


class HasFunctions(Protocol):
    """A store, or its part inside a user's transaction."""

    @property
    def functions(self) -> Functions: ...


class FunctionViews:
    """The queries. All of them block."""

    def __init__(self, store: HasFunctions, clock: Clock) -> None:
        self._functions = store.functions
        self._clock = clock

    def get(self, function_id: str) -> ScheduledFunction:
        """Return one scheduled function. Raises `NotFound`."""
        row = self._functions.get(check_name("the id of a scheduled function", function_id))
        if row is None:
            raise NotFound(f"scheduled function {function_id!r} not found")
        return _info(row)

    def list(
        self,
        *,
        name: Texts = None,
        state: Texts = (),
        due_before: Time = None,
        due_after: Time = None,
        after: str | None = None,
        limit: int = 50,
    ) -> FunctionPage:
        """Return a page of scheduled functions, first due first."""
        size = page_size(limit)
        names = one_of("state", state, tuple(STATES))
        states = tuple(each for kind in names for each in STATES[kind])
        wanted = FunctionFilter(
            texts("name", name),
            states,
            time("due_after", due_after),
            time("due_before", due_before),
            after=time_cursor(after),
            limit=size + 1,
        )
        rows = self._functions.page(wanted)
        return FunctionPage([_info(row) for row in rows[:size]], _cursor(rows[size - 1]) if len(rows) > size else None)


class ScheduledFunctions(FunctionViews):
    """The queries and actions of a whole store."""

    def __init__(self, store: Store, clock: Clock) -> None:
        super().__init__(store, clock)
        self._store = store

    @FUNCTION_ACTIONS(_cancelled)
    def cancel_all(
        self,
        *,
        name: Texts = None,
        before: Time = None,
        after: Time = None,
        reason: str | None = None,
    ) -> int:
        """Cancel all pending functions, of a name or due in a span of time, in batches. Return how many."""
        runs = RunActions(self._store, self._clock)
        cancelled = act_on(
            lambda place: self.pending(name=name, before=before, after=after, place=place),
            lambda ids: runs.cancel(ids, reason),
        )
        return len(cancelled)

    def pending(
        self, *, name: Texts = None, before: Time = None, after: Time = None, place: str | None = None
    ) -> Found:
        """Return the next batch of pending functions of a name or of a span of time, first due first."""
        names = texts("name", name)
        if name is not None and not names:
            raise InvalidInput("name=[] names no function; leave it out for all of them")
        wanted = FunctionFilter(
            names,
            STATES["pending"],
            due_after=time("after", after),
            due_before=time("before", before),
            after=time_cursor(place),
            limit=_BATCH,
        )
        rows = self._functions.page(wanted)
        return Found([row.id for row in rows], _cursor(rows[-1]) if len(rows) == _BATCH else None)


def _cursor(row: FunctionRow) -> str:
    return f"{row.scheduled_time}:{row.uid}"


def _info(row: FunctionRow) -> ScheduledFunction:
    kind = next(name for name, states in STATES.items() if row.state in states)
    error = None
    if kind == "failed":
        error = json.loads(row.error)["message"] if row.error is not None else row.reason
    return ScheduledFunction(
        id=row.id,
        created=to_datetime(row.created),
        name=row.workflow,
        args=[shown_input(row.input)],
        scheduled_time=to_datetime(row.scheduled_time),
        completed_time=None if row.completed is None else to_datetime(row.completed),
        state=kind,
        error=error,
    )
