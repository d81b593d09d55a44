"""Store the schedules that an app's code declares, when a worker starts."""

from __future__ import annotations

import json
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs

from mainspring.operations.audit import Audit, Intent
from mainspring.operations.schedules.views import schedules_of
from mainspring.schedules.actions import action_of
from mainspring.schedules.control import Control, Outdated
from mainspring.schedules.definition import declared_json, differing, overridden, same_declaration
from mainspring.schedules.due_ticks import times_of
from mainspring.schedules.policy import policy_of
from mainspring.store.bad_rows import FAULTS, log_bad_row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainspring.model.clock import Clock
    from mainspring.model.ids import IdMaker
    from mainspring.model.schedules import Hook, Schedule
    from mainspring.schedules.definition import Definition
    from mainspring.store.protocol import Store
    from mainspring.store.schedules import Decide, Plan

_SHOWN = ("spec", "policy", "note")
"""The columns of an operator's change that the audit log keeps when it is overridden. Inputs and attributes may be confidential."""


class Declaring:
    """Updates schedules to their declaration. An operator's change stays until the declaration changes."""

    def __init__(self, store: Store, clock: Clock, ids: IdMaker) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids

    def latest(self, row: Schedule | None, act: Callable[[Schedule], None]) -> None:
        """Act on the latest state of a schedule: retry if it was changed since it was read."""
        while row is not None:
            try:
                return act(row)
            except Outdated:
                row = self._store.schedules.get(row.id)
        return None

    def declare(self, row: Schedule, columns: dict[str, Any], values: dict[str, Any], who: str) -> None:
        """Update an existing schedule to `columns`, and also set `values`. Raises `Outdated`.

        If that overrides an operator's change, it is recorded in the audit log in the name of `who`.
        """
        decide = Control(self._clock.now(), self._ids.new).declare(row, columns, values)
        lost = [] if same_declaration(row.declared, declared_json(columns)) else overridden(row, columns)
        if not lost:
            self.change(row.id, decide)
            return
        before = {name: _value(name, getattr(row, name)) for name in lost if name in _SHOWN}
        reason = "the declaration has changed, which overrides an operator's change"
        intent = Intent(who, "schedules.declare", [row.id], reason, {"overridden": lost, "before": before})
        audit = Audit(self._store, self._clock, self._ids)
        audit.carry_out(intent, lambda: self.change(row.id, decide), lambda plan: plan is not None and plan.redefined)

    def update(self, schedule: str, values: dict[str, Any], seen: Schedule | None = None) -> None:
        """Set columns of a schedule. Raises `Outdated` if it has changed since it was `seen`."""
        self.change(schedule, Control(self._clock.now(), self._ids.new).update(values, None, seen=seen))

    def change(self, schedule: str, decide: Decide) -> Plan | None:
        while (plan := self._store.schedules.change(schedule, decide, self._clock.now())) and plan.unfinished:
            pass
        return plan


def _value(name: str, value: Any) -> Any:
    return json.loads(value) if name != "note" else value


log = logging.getLogger("mainspring.operations")


def is_readable(row: Schedule) -> bool:
    """Whether a schedule can be planned. One that cannot be decoded is logged, and must not keep the worker from starting."""
    try:
        check(row)
    except FAULTS as error:
        log_bad_row("schedules", row.id, error)
        return False
    return True


def check(row: Schedule) -> None:
    """Decode all parts of a schedule that a plan needs. Raises an error for a wrong part."""
    times_of(row.spec, row.id)
    policy_of(row.policy)
    action_of(row.action)
    list(map(int, json.loads(row.skips)))
    for text in (row.input, row.attributes):
        dict(json.loads(text))


class Declared:
    """Compares the declarations of one version of an app with the database.

    In a rolling deploy old and new processes start in any order. A version overwrites the declaration of another one
    only if it was first seen later, or if no live worker has the other version any more: then the deploy was rolled
    back. An operator's change stays as long as the declaration is the same.
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
        """Store the declarations of the code. `alone`: no other worker was active before."""
        there = self._there()
        for definition in definitions:
            row = there.get(definition.id) or self._create(definition)
            if row is not None:
                self._act(row, partial(self._declare, definition, alone=alone))
        self._stop_others(definitions, there)

    def review(self, definitions: Sequence[Definition]) -> None:
        """Declare existing schedules again, because the version that overwrote them may have no live worker any more after a rollback.

        A schedule that an operator deleted stays deleted until a worker starts.
        """
        there = self._there()
        for definition in definitions:
            if (row := there.get(definition.id)) is not None and row.version != self._version:
                self._act(row, partial(self._declare, definition, alone=False))
        self._stop_others(definitions, there)

    def apply_hooks(self, hooks: Sequence[Hook]) -> None:
        """Store the functions that receive alerts, unless a later version with live workers has stored its own."""
        there = [hook for hook in self._store.schedules.hooks() if hook.app == self._app]
        if not there and not hooks:
            return
        seen = self._store.versions.first_seen()
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
        """Look up the versions of live workers, and when each version was first seen."""
        others = {row.version for row in rows if row.version is not None} - {self._version}
        if others:
            self._first_seen = self._store.versions.first_seen()
            self._alive = {worker.version for worker in self._store.workers()}

    def _rewrites(self, row: Schedule) -> bool:
        other = row.version
        if other is None or other == self._version or other not in self._alive:
            return True
        return self._first_seen.get(self._version, 0) > self._first_seen.get(other, 0)

    def _act(self, row: Schedule, act: Callable[[Schedule], None]) -> None:
        """Act on a schedule that can be decoded, by its latest state."""

        def acted(latest: Schedule) -> None:
            if latest is not row:
                self._look([latest])
            if is_readable(latest) and self._rewrites(latest):
                act(latest)

        self._declaring.latest(row, acted)

    def _stop_others(self, definitions: Sequence[Definition], there: dict[str, Schedule]) -> None:
        """Stop schedules that this version does not declare."""
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
        """Create a schedule. Return an existing one of the same id, which must be updated to the declaration."""
        new = definition.row(self._clock.now(), over=True)
        new.app, new.version = self._app, self._version
        new.declared = declared_json(definition.columns())
        if new.upcoming is None and not definition.spec.is_empty:
            log.warning("schedule %s (%s) has no future times", new.id, definition.spec.describe())
        if not self._store.schedules.create([new]):
            return None
        row = self._store.schedules.get(definition.id)  # created at run time, or just now by another process
        if row is not None and row.app is None:
            log.warning("schedule %s was made at run time; from now on the code defines it", row.id)
        if row is not None:
            self._look([row])
        return row

    def _declare(self, definition: Definition, row: Schedule, *, alone: bool) -> None:
        columns = definition.columns()
        same = same_declaration(row.declared, declared_json(columns))
        policy = (
            policy_of(row.policy) if same else definition.policy
        )  # what an operator changed since it was declared stays
        if policy.when_active and alone:
            self._declaring.change(definition.id, Control(self._clock.now(), self._ids.new).start_at_present())
        values: dict[str, object] = {"app": self._app, "version": self._version, "stopped": None}
        if not same or any(getattr(row, name) != value for name, value in values.items()):
            if row.stopped is not None:
                log.warning("schedule %s is declared again, and continues", row.id)
            self._declaring.declare(row, columns, values, f"version {self._version}")
        if same and row.id not in self._warned and (changed := differing(row)):
            self._warned.add(row.id)
            log.warning(
                "schedule %s differs from the code, in %s: an operator changed it; `mainspring schedules reset %s` undoes that",
                row.id,
                ", ".join(changed),
                row.id,
            )
