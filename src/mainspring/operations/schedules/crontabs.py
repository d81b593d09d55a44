"""Crontab entries as schedules of the workers that list them.

Each worker stores in its own row which entries it lists, so that the list disappears with the worker. An entry that several workers list
with different patterns fires for all of them. One that no live worker lists is not planned (see `plan.py`), and is stopped after a while.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from mainspring.model.queues import Limits, Queue
from mainspring.model.schedules import CRONTAB, UNLISTED, is_crontab_entry
from mainspring.operations.schedules.declared import Declaring
from mainspring.operations.schedules.views import schedules_of
from mainspring.recurrence import Cron, Spec
from mainspring.schedules.definition import declared_columns, declared_json, spec_columns
from mainspring.store.bad_rows import FAULTS, log_bad_row, readable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mainspring.model.clock import Clock
    from mainspring.model.ids import IdMaker
    from mainspring.model.runs import Worker
    from mainspring.model.schedules import Schedule
    from mainspring.schedules.definition import Definition
    from mainspring.store.protocol import Store

log = logging.getLogger("mainspring.operations")

_PATIENCE = 60.0
_WHO = "crontab"
"""The name in the audit log when a crontab overrides an operator's change."""


def listing(definitions: Sequence[Definition]) -> str:
    """Return the list of entries for a worker's row: the pattern of each entry."""
    return json.dumps({each.id: each.spec.to_dict()["cron"] for each in definitions})


class Crontabs:
    """Stores entries as schedules, and stops those that no worker lists any more."""

    def __init__(self, store: Store, clock: Clock, ids: IdMaker) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._declaring = Declaring(store, clock, ids)
        self._unlisted: dict[str, float] = {}

    def prepare(self, definitions: Sequence[Definition]) -> None:
        """Update the entries that no live worker lists, before this process lists them.

        A line that is in no file any more decides about no time, not even about those that were missed.
        """
        listed = self._listed()
        for definition in definitions:
            row = self._store.schedules.get(definition.id)
            if row is not None and is_crontab_entry(row) and definition.id not in listed:
                columns = replace(definition, spec=_union(definition.id, [], definition.spec)).columns()
                self._declaring.latest(row, partial(self._declare, columns))

    def _declare(self, columns: dict[str, Any], row: Schedule) -> None:
        self._declaring.declare(row, columns, {}, _WHO)

    def bring(self, definitions: Sequence[Definition]) -> None:
        """Create or update the schedules of the entries that this process lists. Its worker's row already has them."""
        listed = self._listed()
        for definition in definitions:
            queue = definition.action.queue
            if queue is not None and self._store.queues.get(queue) is None:
                self._store.queues.set(Queue(queue, Limits(concurrency=1), created=self._clock.now()))
            self._bring(replace(definition, spec=_union(definition.id, listed.get(definition.id, []), definition.spec)))

    def _bring(self, definition: Definition) -> None:
        row = self._store.schedules.get(definition.id)
        if row is None:
            new = definition.row(self._clock.now())
            new.app, new.declared = CRONTAB, declared_json(definition.columns())
            if not self._store.schedules.create([new]):
                return
            row = self._store.schedules.get(definition.id)
        if row is None:
            return
        if row.app != CRONTAB:
            log.warning("schedule %s was not a crontab entry; from now on the crontab defines it", row.id)
        values: dict[str, Any] = {"app": CRONTAB, "version": None, "stopped": None}
        self._declaring.latest(row, lambda row: self._declaring.declare(row, definition.columns(), values, _WHO))

    def review(self) -> None:
        """Stop entries that no live worker has listed for a minute, and update the others to what live workers list.

        Workers that start, stop and read their files at the same time may have stored an older list.
        """
        listed: Mapping[str, list[Any]] | None = None
        for row in filter(is_crontab_entry, schedules_of(self._store.schedules, CRONTAB)):
            if listed is None:  # without entries, there is no query
                listed = self._listed()
            if row.id in listed:
                self._unlisted.pop(row.id, None)
                self._declaring.latest(row, partial(self._agree, listed[row.id]))
            elif row.stopped is None:
                since = self._unlisted.setdefault(row.id, self._clock.monotonic())
                if self._clock.monotonic() - since >= _PATIENCE:
                    log.warning("crontab entry %s is stopped: %s", row.id, UNLISTED)
                    self._declaring.update(row.id, {"stopped": UNLISTED})

    def _agree(self, patterns: list[Any], row: Schedule) -> None:
        try:
            columns = declared_columns(row.declared or declared_json(asdict(row)))
            there = json.loads(columns["spec"])["cron"]
        except FAULTS as error:
            log_bad_row("schedules", row.id, error)
            return
        other = sorted(there, key=json.dumps) != sorted(patterns, key=json.dumps)
        if other:
            columns |= spec_columns(_spec(sorted(patterns, key=json.dumps)))
        if other or row.stopped == UNLISTED or _is_idle(row):
            stopped = None if row.stopped == UNLISTED else row.stopped
            self._declaring.declare(row, columns, {"stopped": stopped}, _WHO)

    def _listed(self) -> Mapping[str, list[Any]]:
        """Return the patterns of each entry that a live worker lists."""
        found: dict[str, list[Any]] = {}
        for worker in self._store.workers():
            for entry, patterns in _entries(worker):
                mine = found.setdefault(entry, [])
                mine += [pattern for pattern in patterns if pattern not in mine]
        return found


def _is_idle(row: Schedule) -> bool:
    """Whether an entry was last planned while no worker listed it, and nothing else keeps it from being due."""
    return row.due is None and row.upcoming is not None and not row.paused and row.remaining != 0


def _entries(worker: Worker) -> list[tuple[str, list[Any]]]:
    """Return the entries that a worker lists."""
    return [
        each
        for listed in readable(
            "workers", [worker], lambda worker: json.loads(worker.crontab).items(), lambda _: worker.id
        )
        for each in listed
    ]


def _union(entry: str, patterns: list[Any], own: Spec) -> Spec:
    """Return the times of all patterns that workers list for an entry."""
    mine = own.to_dict()["cron"]
    every = sorted([*patterns, *(each for each in mine if each not in patterns)], key=json.dumps)
    if len(every) > 1:
        shown = ", ".join(map(_shown, every))
        log.warning(
            "crontab entry %s has several patterns (%s): it fires for each; give entries ids of their own", entry, shown
        )
    return _spec(every)


def _shown(pattern: Any) -> str:
    return pattern if isinstance(pattern, str) else str(pattern["cron"])


def _spec(patterns: list[Any]) -> Spec:
    crons = [each if isinstance(each, str) else Cron(each["cron"], dialect=each["dialect"]) for each in patterns]
    return Spec(cron=crons)
