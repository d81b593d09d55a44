"""How long ended runs are kept, and deleting them on request."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Protocol

from msgspec import field

from mainspring.errors import InvalidInput
from mainspring.model.clock import SECOND, to_datetime
from mainspring.recurrence.durations import micros
from mainspring.store.verbs.prune import Keep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from mainspring.model.clock import Clock
    from mainspring.model.payloads import Offloaded
    from mainspring.store.external.other_database import OtherDatabase
    from mainspring.store.protocol import Store

_AT_ONCE = 500
UNNAMED = 86_400 * SECOND
"""A value outside of the database may be unnamed for so long: its transaction has yet to commit."""
_SILENT = 60 * SECOND
"""A worker without a heartbeat for so long counts as dead."""


class RetentionSettings(Protocol):
    """The settings of retention, in seconds and runs."""

    @property
    def retention(self) -> float | None: ...
    @property
    def function_retention(self) -> float | None: ...
    @property
    def keep_last(self) -> int | None: ...


def keep_of(settings: RetentionSettings, names: Mapping[str, int | None], last_names: Mapping[str, int | None]) -> Keep:
    """Return the retention from the settings, and from functions by name, in microseconds and runs."""
    return Keep(
        _micros(settings.retention), _micros(settings.function_retention), names, settings.keep_last, last_names
    )


def _micros(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * SECOND)


def chosen(
    keep: Keep, *, runs: str | None, functions: str | None, last: int | None = None, names: Sequence[str] = ()
) -> Keep:
    """Return the retention with the durations and the number of the caller. With names: only of runs of these functions."""
    if (runs, functions, last) != (None, None, None):
        keep = Keep(
            keep.runs if runs is None else micros(runs),
            keep.functions if functions is None else micros(functions),
            last=last,
        )
    if not names:
        return keep
    if runs is None and last is None:
        raise InvalidInput("with names, give --older-than, such as --older-than 30d, or --keep-last")
    return Keep(names={} if runs is None else dict.fromkeys(names, keep.runs), last_names=dict.fromkeys(names, last))


class _KeepByName(Keep, frozen=True):
    """The retention that workers have stored about their functions. Runs of other functions are kept."""

    plain: Mapping[str, int | None] = field(default_factory=dict[str, "int | None"])
    scheduled: Mapping[str, int | None] = field(default_factory=dict[str, "int | None"])

    def of(self, name: str, *, function: bool) -> int | None:
        return (self.scheduled if function else self.plain).get(name)


def kept(keep: Keep, name: str) -> dict[str, int | None]:
    """Return the retention of a function, for the description that a worker stores."""
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
    """Delete ended runs on request, as workers do by themselves."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def expired(self, keep: Keep) -> dict[str, int]:
        """Return how many runs of each name were kept long enough. Changes nothing."""
        return self._store.retention.expired(keep, self._clock.now())

    def empty(self) -> dict[str, int]:
        """Delete all runs, schedules, queues and versions. Return the number of deleted rows by table.

        The audit log stays. Raises `Conflict`, and deletes nothing, while workers live.
        """
        now = self._clock.now()
        return self._store.management.empty(now - _SILENT, now)

    def behind(self) -> float:
        """Return the seconds for which the oldest run has been kept too long, by the settings of the workers."""
        return (
            self._store.retention.due(_kept(self._store.declared_functions.list()), self._clock.now()).behind / SECOND
        )

    def sweep(self, other_databases: Iterable[OtherDatabase]) -> int:
        """Delete the outcomes of transactions in other databases that no run needs any more. Return the number of rows."""
        return sum(other.sweep(self._store.transactions) for other in other_databases)

    def sweep_values(self, offloaded: Offloaded) -> int:
        """Delete what a codec has stored outside of the database and no stored value names any more; how many."""
        offloaded.claim(self._store.transactions.store_id())
        # Listed first: what is stored later, and named by a commit after the look at the database, is not among them.
        orphans = offloaded.stored_before(to_datetime(self._clock.now() - UNNAMED))
        if orphans:
            for text in self._store.retention.texts_with(offloaded.marker):
                orphans.difference_update(offloaded.named_in(text))
        for name in orphans:
            offloaded.delete(name)
        return len(orphans)

    def prune(self, keep: Keep, on_batch: Callable[[int], None] = lambda _: None) -> int:
        """Delete expired runs in small batches, so that no worker has to wait. Return the number of runs."""
        due = self._store.retention.due(keep, self._clock.now())
        count = 0
        while done := self._store.retention.prune(due, _AT_ONCE):
            count += done
            on_batch(count)
        return count
