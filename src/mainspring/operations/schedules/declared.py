"""Schedules that an app's code declares, brought into the database when a worker starts."""

from __future__ import annotations

import json
import logging
from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from mainspring.operations.paging import schedules_of
from mainspring.operations.schedules.declaring import Declaring
from mainspring.schedules.actions import action_of
from mainspring.schedules.control import Control
from mainspring.schedules.declaration import declared_json, differing, same_declaration
from mainspring.schedules.due_ticks import times_of
from mainspring.schedules.policy import policy_of
from mainspring.store.bad_rows import FAULTS, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainspring.model.clock import Clock
    from mainspring.model.ids import IdMaker
    from mainspring.model.schedules import Hook, Schedule
    from mainspring.schedules.definition import Definition
    from mainspring.store.protocol import Store

log = logging.getLogger("mainspring.operations")


def is_readable(row: Schedule) -> bool:
    """Whether plans can be made for a schedule; one that cannot be read must not keep a worker from everything else."""
    try:
        check(row)
    except FAULTS as error:
        tell("schedules", row.id, error)
        return False
    return True


def check(row: Schedule) -> None:
    """Read all that a plan needs of a schedule. Raises what is wrong with it."""
    times_of(row.spec, row.id)
    policy_of(row.policy)
    action_of(row.action)
    list(map(int, json.loads(row.skips)))
    for text in (row.input, row.attributes):
        dict(json.loads(text))


class Declared:
    """What one version of an app declares, against what the database has.

    In a rolling deploy old and new processes start in any order. A version rewrites what another one declared only if it was
    first seen later than that, or if no live worker has that other version any more: the deploy was taken back. What an operator
    changed since stays as long as the declaration is the same.
    """

    def __init__(self, store: Store, clock: Clock, ids: IdMaker, *, app: str, version: str) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._declaring = Declaring(store, clock, ids)
        self._app = app
        self._version = version
        self._first_seen: dict[str, int] = {}
        self._alive: set[str] = set()
        """The versions of live workers."""
        self._warned: set[str] = set()

    def apply(self, definitions: Sequence[Definition], *, alone: bool) -> None:
        """Make the database say what the code says. `alone`: no other worker was active until now."""
        there = self._there()
        for definition in definitions:
            row = there.get(definition.id) or self._create(definition)
            if row is not None:
                self._act(row, partial(self._declare, definition, alone=alone))
        self._stop_others(definitions, there)

    def review(self, definitions: Sequence[Definition]) -> None:
        """Declare once more what is there: the version that rewrote it may have no worker any more, as when a deploy is taken back.

        What an operator has deleted stays deleted until a worker starts.
        """
        there = self._there()
        for definition in definitions:
            if (row := there.get(definition.id)) is not None and row.version != self._version:
                self._act(row, partial(self._declare, definition, alone=False))
        self._stop_others(definitions, there)

    def apply_hooks(self, hooks: Sequence[Hook]) -> None:
        """Store the functions that receive alerts, unless a later version that is at work has."""
        there = [hook for hook in self._store.schedules.hooks() if hook.app == self._app]
        if not there and not hooks:
            return
        seen = self._store.schedules.first_seen([self._version, *(hook.version for hook in there)])
        alive = {worker.version for worker in self._store.workers()}
        mine = seen.get(self._version, 0)
        newer = {hook.version for hook in there if hook.version in alive and seen.get(hook.version, 0) > mine}
        if newer:
            return
        kept = [structs.replace(hook, app=self._app, version=self._version) for hook in hooks]
        self._store.schedules.keep_hooks(self._app, kept, [hook.version for hook in there])

    def _there(self) -> dict[str, Schedule]:
        rows = schedules_of(self._store.schedules, self._app)
        there = {row.id: row for row in rows if row.version is not None}
        self._look(list(there.values()))
        return there

    def _look(self, rows: list[Schedule]) -> None:
        """Find out whose workers live, and which version is the newer one."""
        others = {row.version for row in rows if row.version is not None} - {self._version}
        if others:
            self._first_seen = self._store.schedules.first_seen([self._version, *others])
            self._alive = {worker.version for worker in self._store.workers()}

    def _rewrites(self, row: Schedule) -> bool:
        other = row.version
        if other is None or other == self._version or other not in self._alive:
            return True
        return self._first_seen.get(self._version, 0) > self._first_seen.get(other, 0)

    def _act(self, row: Schedule, act: Callable[[Schedule], None]) -> None:
        """Act on a schedule that can be read, by the rules that hold for it as it is by then."""

        def acted(latest: Schedule) -> None:
            if latest is not row:
                self._look([latest])
            if is_readable(latest) and self._rewrites(latest):
                act(latest)

        self._declaring.latest(row, acted)

    def _stop_others(self, definitions: Sequence[Definition], there: dict[str, Schedule]) -> None:
        """Stop what this version does not declare."""
        declared = {definition.id for definition in definitions}
        for row in there.values():
            if row.id not in declared:
                self._act(row, self._stop)

    def _stop(self, row: Schedule) -> None:
        if row.stopped is None:
            reason = f"version {self._version} of the code does not declare it any more"
            log.warning("schedule %s is stopped: %s", row.id, reason)
            self._declaring.update(row.id, {"stopped": reason, "version": self._version}, seen=row)

    def _create(self, definition: Definition) -> Schedule | None:
        """Store a schedule that is new. One that was there under its id is to be made what the code says."""
        new = definition.row(self._clock.now(), over=True)
        new.app, new.version = self._app, self._version
        new.declared = declared_json(definition.columns())
        if new.upcoming is None and not definition.spec.is_empty:
            log.warning("schedule %s (%s) has no time any more", new.id, definition.spec.describe())
        if not self._store.schedules.create([new]):
            return None
        row = self._store.schedules.get(definition.id)  # made at run time, or by another process a moment ago
        if row is not None and row.app is None:
            log.warning("schedule %s was made at run time; from now on the code defines it", row.id)
        if row is not None:
            self._look([row])
        return row

    def _declare(self, definition: Definition, row: Schedule, *, alone: bool) -> None:
        if definition.policy.when_active and alone:
            self._declaring.change(definition.id, Control(self._clock.now(), self._ids.new).start_at_present())
        values: dict[str, object] = {"app": self._app, "version": self._version, "stopped": None}
        columns = definition.columns()
        same = same_declaration(row.declared, declared_json(columns))
        if not same or any(getattr(row, name) != value for name, value in values.items()):
            if row.stopped is not None:
                log.warning("schedule %s is declared again, and goes on", row.id)
            self._declaring.declare(row, columns, values, f"version {self._version}")
        if same and row.id not in self._warned and (changed := differing(row)):
            self._warned.add(row.id)
            log.warning(
                "schedule %s differs from the code, in %s: an operator changed it; `mainspring schedules reset %s` goes back",
                row.id,
                ", ".join(changed),
                row.id,
            )
