"""Records for display from rows of the store: times become datetimes, JSON becomes values."""

from __future__ import annotations

import functools
import json
from abc import abstractmethod
from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast, get_args, get_origin, get_type_hints

from mainspring.model.clock import to_datetime
from mainspring.model.states import State
from mainspring.store.sealing.payloads import shown as as_shown
from mainspring.store.sealing.payloads import shown_input

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mainspring.model.runs import Run
    from mainspring.store.verbs.lists import ListedRun


T = TypeVar("T")


class Appearance(NamedTuple):
    """The state of a run for display, and the reason for it."""

    state: State
    """`cancelling` for a run that was asked to stop and has compensations to execute. Its row has another state."""
    reason: str | None
    stranded: str | None
    """Why no worker can continue the run, if it is stranded."""


def appearance(run: Run | ListedRun) -> Appearance:
    stopping = run.undo_reason is not None and not run.state.ended
    return Appearance(
        State.CANCELLING if stopping else run.state,
        run.undo_reason or None if stopping else run.reason,
        json.loads(run.blocked)["reason"] if run.blocked and run.state is State.QUEUED else None,
    )


def moment(micros: int | None) -> datetime | None:
    """Convert a time of a row."""
    return None if micros is None else to_datetime(micros)


def shown(kind: type[T], row: object, **given: Any) -> T:
    """Make a record for display from a row: fields of the same name, unless they are given.

    A field of type `datetime` is a time, and one of type `Any`, `dict` or `list` is JSON in the row.
    """
    values = {name: read(getattr(row, name)) for name, read in _readers(cast("Any", kind)).items() if name not in given}
    return kind(**values, **given)


@functools.cache
def _readers(kind: Any) -> dict[str, Callable[[Any], Any]]:
    """Return the functions that convert the columns of a row to the fields of a record."""
    hints = get_type_hints(kind)
    return {each.name: _reader(each.name, hints[each.name]) for each in fields(kind)}


def _reader(name: str, hint: Any) -> Callable[[Any], Any]:
    kinds = (hint, *get_args(hint))
    if datetime in kinds:
        return moment
    if name == "input":
        return shown_input
    if any(kind is Any or get_origin(kind) in {dict, list} for kind in kinds):
        return _value
    return lambda value: value


def _value(text: str | None) -> Any:
    return None if text is None else as_shown(text)


class Page(Generic[T]):
    """Base of pages, which behave like the list that they hold: iterate, count and index."""

    __slots__ = ()

    @property
    @abstractmethod
    def _items(self) -> Sequence[T]: ...

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, number: int) -> T:
        return self._items[number]
