"""How long ended runs are kept, and deleting them on request."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Protocol

from msgspec import field

from mainspring.errors import InvalidInput
from mainspring.model.clock import SECOND
from mainspring.recurrence.durations import parse_duration
from mainspring.store.verbs.prune import Keep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from mainspring.model.clock import Clock
    from mainspring.store.external.other_database import Elsewhere
    from mainspring.store.protocol import Store

_AT_ONCE = 500
_SILENT = 60 * SECOND
"""A worker that was not seen for so long is taken for dead."""


class RetentionSettings(Protocol):
    """What settings say about it, in seconds."""

    @property
    def retention(self) -> float | None: ...
    @property
    def function_retention(self) -> float | None: ...
    @property
    def keep_last(self) -> int | None: ...


def keep_of(settings: RetentionSettings, names: Mapping[str, int | None], last_names: Mapping[str, int | None]) -> Keep:
    """What settings, and functions by name, in microseconds, say about how long, and how many, ended runs are kept."""
    return Keep(
        _micros(settings.retention), _micros(settings.function_retention), names, settings.keep_last, last_names
    )


def _micros(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * SECOND)


def chosen(
    keep: Keep, *, runs: str | None, functions: str | None, last: int | None = None, names: Sequence[str] = ()
) -> Keep:
    """The same, except for what the caller asks for now, as durations and a number; with names, only runs of those."""
    if (runs, functions, last) != (None, None, None):
        keep = Keep(
            keep.runs if runs is None else _micros(parse_duration(runs).total_seconds()),
            keep.functions if functions is None else _micros(parse_duration(functions).total_seconds()),
            last=last,
        )
    if not names:
        return keep
    if runs is None and last is None:
        raise InvalidInput("say with --older-than how old, or with --keep-last how many, runs of that name are to be")
    return Keep(names={} if runs is None else dict.fromkeys(names, keep.runs), last_names=dict.fromkeys(names, last))


class _KeepByName(Keep, frozen=True):
    """What workers have declared about their functions. A run of any other function is kept."""

    plain: Mapping[str, int | None] = field(default_factory=dict[str, "int | None"])
    scheduled: Mapping[str, int | None] = field(default_factory=dict[str, "int | None"])

    def of(self, name: str, *, function: bool) -> int | None:
        return (self.scheduled if function else self.plain).get(name)


def kept(keep: Keep, name: str) -> dict[str, int | None]:
    """How long runs of a function are kept, for the description of it that a worker stores."""
    return {"runs": keep.of(name, function=False), "scheduled": keep.of(name, function=True)}


def _kept(described: Mapping[str, str]) -> Keep:
    found: dict[str, dict[str, int | None]] = {
        name: json.loads(text).get("kept") or {} for name, text in described.items()
    }
    return _KeepByName(
        plain={name: each.get("runs") for name, each in found.items()},
        scheduled={name: each.get("scheduled") for name, each in found.items()},
    )


class Pruning:
    """Deleting on request what workers delete by themselves."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def expired(self, keep: Keep) -> dict[str, int]:
        """How many runs of each name were kept long enough. Changes nothing."""
        return self._store.retention.expired(keep, self._clock.now())

    def empty(self) -> dict[str, int]:
        """Delete all runs, schedules, queues and versions, with all they recorded: how many rows there were, by table.

        What operators did stays recorded. `Conflict`, and nothing is deleted, while workers live.
        """
        now = self._clock.now()
        return self._store.management.empty(now - _SILENT, now)

    def behind(self) -> float:
        """For how many seconds the oldest run that should be gone has been kept too long, as the workers' settings have it."""
        return self._store.retention.due(_kept(self._store.watching.functions()), self._clock.now()).behind / SECOND

    def sweep(self, places: Iterable[Elsewhere]) -> int:
        """Clear away what transactions in other databases have left there and no run will ask for any more; how many rows."""
        return sum(place.sweep(self._store.transactions) for place in places)

    def prune(self, keep: Keep, on_batch: Callable[[int], None] = lambda _: None) -> int:
        """Forget them, a few at a time, so that no worker has to wait; how many."""
        due = self._store.retention.due(keep, self._clock.now())
        count = 0
        while done := self._store.retention.prune(due, _AT_ONCE):
            count += done
            on_batch(count)
        return count
