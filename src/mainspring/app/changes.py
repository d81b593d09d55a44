"""What `app.schedules.update` names, as the columns that it changes."""

from __future__ import annotations

import json
from typing import Any

from mainspring.app.declared import call_columns
from mainspring.app.functions import as_call
from mainspring.codec.attributes import attributes_json
from mainspring.errors import InvalidInput
from mainspring.recurrence import Spec
from mainspring.schedules.actions import Action
from mainspring.schedules.definition import canonical_json, check_note, spec_json
from mainspring.schedules.policy import Policy, check_count


def columns(schedule: str, named: dict[str, Any]) -> dict[str, Any]:
    """The columns with their new values. Whatever is wrong with them is an error now."""
    values: dict[str, Any] = {}
    if "call" in named:
        given = call_columns(as_call(named["call"]))
        action = Action(
            given["action_id"] or schedule,
            given["kind"],
            given["timeout"],
            given["run_attributes"],
            given["version"],
            **{name: given[name] for name in ("queue", "priority", "partition", "key", "key_mode", "retry")},
        )
        values |= {"workflow": given["workflow"], "input": given["input"], "action": action.to_json()}
    if "spec" in named:
        if not isinstance(named["spec"], Spec):
            raise InvalidInput(f"a schedule takes a Spec, such as Spec(cron=[…]), not {named['spec']!r}")
        text = spec_json(named["spec"])
        values |= {"spec": text, "canonical": canonical_json(text)}
    if "policy" in named:
        if not isinstance(named["policy"], Policy):
            raise InvalidInput(f"a schedule takes a Policy, such as Policy(overlap=…), not {named['policy']!r}")
        values["policy"] = json.dumps(named["policy"].to_dict())
    if "attributes" in named:
        values["attributes"] = attributes_json(named["attributes"], "attributes")
    if "note" in named:
        values["note"] = check_note(named["note"])
    if "remaining" in named:
        values["remaining"] = check_count("remaining", named["remaining"])
    return values
