"""The checked definition of a schedule, its row, and the last declaration by code or a crontab, which is stored beside it.

A worker that starts compares its declaration with the last one, not with the definition in force: an operator's change stays until the
declaration itself changes. Declarations are compared by their meaning, because a later version of the library may write the same
differently.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mainspring.errors import Fault, InvalidInput, InvalidSpec
from mainspring.model.clock import to_datetime
from mainspring.model.given import attributes_json
from mainspring.model.ids import LONGEST_SCHEDULE_ID, check_run_id, is_storable
from mainspring.model.schedules import Schedule
from mainspring.schedules.actions import Action, action_of
from mainspring.schedules.due_ticks import Times, spec_of
from mainspring.schedules.policy import Policy, policy_of
from mainspring.store.sealing.payloads import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mainspring.recurrence.spec import Spec


LONGEST_NOTE = 1_000
_PLAIN = Action("")


@dataclass(frozen=True, slots=True)
class Definition:
    """The spec, action and policy of a schedule. The runs of an action without an id have the schedule's own."""

    id: str
    workflow: str
    input: str
    spec: Spec
    policy: Policy = field(default_factory=Policy)
    action: Action = _PLAIN
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    note: str | None = None

    def columns(self) -> dict[str, Any]:
        """Return the columns of the definition."""
        return {
            **spec_columns(self.spec),
            "workflow": self.workflow,
            "action": self.action.named(self.id).to_json(),
            "input": self.input,
            "policy": json.dumps(self.policy.to_dict()),
            "attributes": attributes_json(self.attributes, "attributes"),
            "note": self.note,
        }

    def row(self, now: int, *, paused: bool = False, made_by: str | None = None, over: bool = False) -> Schedule:
        """Return the row of a new schedule. Times before now are not started. `over`: it may have no future time."""
        times = Times(self.spec, self.id)
        upcoming = times.next(now)
        if upcoming is None and not self.spec.is_empty and not paused and not over:
            raise InvalidSpec(
                f"schedule {self.id!r}",
                [
                    Fault(
                        f"its spec ({self.spec.describe()}) has no time after {to_datetime(now):%Y-%m-%dT%H:%M:%SZ}",
                        hint="create it paused if that is meant",
                    )
                ],
            )
        return Schedule(
            id=self.id,
            **self.columns(),
            created=now,
            updated=now,
            cursor=now,
            due=None if upcoming is None or paused or self.policy.limit == 0 else times.act(upcoming),
            upcoming=upcoming,
            paused=paused,
            remaining=self.policy.limit,
            made_by=made_by,
        )


def check_schedule_id(value: object, what: str = "schedule id") -> str:
    """Return the id if a schedule may have it. It becomes part of the ids of runs. Raises `InvalidInput`."""
    try:
        checked = check_run_id(value)
    except InvalidInput as error:
        raise InvalidInput(
            str(error).replace("run id", what).replace("; leave `id` out to have one made", "")
        ) from None
    if len(checked) > LONGEST_SCHEDULE_ID:
        raise InvalidInput(
            f"the {what} {checked[:20]!r}… has {len(checked)} characters; the limit is {LONGEST_SCHEDULE_ID}"
        )
    return checked


def check_note(note: object) -> str | None:
    """Return the note if it may be stored. Raises `InvalidInput`."""
    if note is None:
        return None
    if not isinstance(note, str) or not is_storable(note):
        raise InvalidInput(f"a note is a text, not {note!r}")
    if len(note) > LONGEST_NOTE:
        raise InvalidInput(f"the note has {len(note)} characters; the limit is {LONGEST_NOTE}")
    return note


def spec_json(spec: Spec) -> str:
    return json.dumps(spec.to_dict())


def spec_columns(spec: Spec) -> dict[str, Any]:
    """Return the columns of a spec: as it was given, and in the form in which equal times are equal."""
    text = spec_json(spec)
    return {"spec": text, "canonical": canonical_json(text)}


@lru_cache(maxsize=4096)
def canonical_json(spec: str) -> str:
    return json.dumps(spec_of(spec).canonical().to_dict())


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
