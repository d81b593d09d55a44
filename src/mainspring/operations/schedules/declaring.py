"""Store one declared schedule, from code or from a crontab."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mainspring.operations.audit import Audit, Intent
from mainspring.schedules.control import Control, Outdated
from mainspring.schedules.declaration import declared_json, overridden, same_declaration

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.model.clock import Clock
    from mainspring.model.ids import IdMaker
    from mainspring.model.schedules import Schedule
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
