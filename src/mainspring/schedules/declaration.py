"""The last declaration by code or a crontab, stored beside the definition in force.

A worker that starts compares its declaration with the last one, not with the definition: an operator's change stays until the
declaration itself changes. Declarations are compared by their meaning, because a later version of the library may write the same
differently.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mainspring.schedules.actions import action_of
from mainspring.schedules.definition import canonical_json
from mainspring.schedules.due_ticks import spec_of
from mainspring.schedules.policy import policy_of
from mainspring.store.sealing.payloads import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mainspring.model.schedules import Schedule

_NAMES = ("spec", "workflow", "input", "action", "policy", "attributes", "note")
_READ: dict[str, Callable[[str], Any]] = {
    "spec": spec_of,
    "input": shown,  # equal values are encrypted differently
    "action": action_of,
    "policy": policy_of,
    "attributes": json.loads,
}


def declared_json(columns: Mapping[str, Any]) -> str:
    """Return the columns of a definition as the JSON of a declaration."""
    return json.dumps({name: columns[name] for name in _NAMES})


def declared_columns(declared: str) -> dict[str, Any]:
    """Return the columns of the definition that was declared last."""
    columns: dict[str, Any] = json.loads(declared)
    return {**columns, "canonical": canonical_json(columns["spec"])}


def same_declaration(one: str | None, other: str) -> bool:
    """Whether two declarations mean the same. None is no declaration."""
    return one is not None and not _differing(json.loads(one), json.loads(other))


def differing(schedule: Schedule) -> list[str]:
    """Return the columns in which a schedule differs from its last declaration, because an operator changed them."""
    return [] if schedule.declared is None else _differing(_columns(schedule), json.loads(schedule.declared))


def overridden(schedule: Schedule, columns: Mapping[str, Any]) -> list[str]:
    """Return the columns that an operator has changed and that a new declaration overrides."""
    changed = _differing(_columns(schedule), columns)
    return [name for name in differing(schedule) if name in changed]


def _columns(schedule: Schedule) -> dict[str, Any]:
    return {name: getattr(schedule, name) for name in _NAMES}


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    def read(name: str, value: Any) -> Any:
        return _READ[name](value) if name in _READ else value

    return [name for name in _NAMES if one[name] != other[name] and read(name, one[name]) != read(name, other[name])]
