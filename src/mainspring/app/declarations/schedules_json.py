"""Schedules described as JSON, in a file or from a form: the function's name, the spec and the policy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import structs

from mainspring.app.functions.options import Options
from mainspring.codec import encode_call
from mainspring.errors import InvalidInput
from mainspring.model.given import attributes_json
from mainspring.recurrence import Spec
from mainspring.schedules.actions import Action
from mainspring.schedules.definition import Definition, check_note, check_schedule_id, spec_columns
from mainspring.schedules.policy import Policy

_KEYS = ("id", "workflow", "args", "input", "options", "spec", "policy", "note", "attributes")
_OPTIONS = ("id", "timeout", "attributes", "version", "queue", "priority", "partition")
_KEPT = ("kind", "key", "key_mode", "retry", "cron", "times")
"""Fields of an action that only code can set. An update from JSON leaves them as they are."""


def definition_of(given: object) -> Definition:
    """Return the definition of a schedule that a JSON object describes. An error names the key that is wrong.

    `id`, `workflow` and `spec` are needed. Arguments are `input`, an object by parameter name, or `args`, a list.
    """
    found = _object(given, "a schedule", _KEYS)
    name = str(found.get("id", ""))
    missing = [key for key in ("id", "workflow", "spec") if key not in found]
    if missing:
        raise InvalidInput(f"schedule {name!r}: {', '.join(missing)} must be given")
    try:
        action = _action(found)
        return Definition(
            check_schedule_id(found["id"]),
            _workflow(found["workflow"]),
            _input(found),
            Spec.from_dict(found["spec"]),
            Policy.from_dict(_object(found.get("policy", {}), "policy")),
            action,
            attributes=dict(_object(found.get("attributes", {}), "attributes")),
            note=check_note(found.get("note")),
        )
    except InvalidInput as error:
        raise InvalidInput(f"schedule {name!r}: {error}") from None


def definitions_of(given: object) -> list[Definition]:
    """Return the schedules that a JSON document describes: a list, or an object with a list under `schedules`.

    Raises one `InvalidInput` with what is wrong in all of them.
    """
    if isinstance(given, Mapping):
        given = _object(cast("object", given), "the document", ("schedules",)).get("schedules")
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise InvalidInput("a set of schedules is a list of objects, or an object with such a list under `schedules`")
    definitions: list[Definition] = []
    faults: list[str] = []
    for each in cast("Sequence[object]", given):
        try:
            definitions.append(definition_of(each))
        except InvalidInput as error:
            faults.append(str(error))
    if faults:
        raise InvalidInput("; ".join(faults))
    return definitions


def changes_of(given: Mapping[str, Any], present: Mapping[str, Any], schedule: str) -> dict[str, Any]:
    """Return the columns that a JSON object with some of the keys changes. `present` describes the schedule as it is."""
    found = _object(given, "an update", _KEYS)
    values: dict[str, Any] = {}
    if "workflow" in found:
        values["workflow"] = _workflow(found["workflow"])
    if "args" in found or "input" in found:
        values["input"] = _input(found)
    if "options" in found:
        action = present["action"]
        kept = {key: action[key] for key in _OPTIONS}
        made = _action({"options": {**kept, **_object(found["options"], "options", _OPTIONS)}}).named(schedule)
        values["action"] = structs.replace(made, **{key: action[key] for key in _KEPT}).to_json()
    if "spec" in found:
        values |= spec_columns(Spec.from_dict(found["spec"]))
    if "policy" in found:
        policy = {**present["policy"], **_object(found["policy"], "policy")}
        values["policy"] = json.dumps(Policy.from_dict(policy).to_dict())
    if "note" in found:
        values["note"] = check_note(found["note"])
    if "attributes" in found:
        values["attributes"] = attributes_json(found["attributes"], "attributes")
    return values


def _object(given: object, what: str, known: Sequence[str] | None = None) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{what} is a JSON object, not {given!r}")
    found = cast("Mapping[str, Any]", given)
    unknown = [str(key) for key in found if known is not None and key not in known]
    if unknown:
        raise InvalidInput(f"{what}: there is no {', '.join(unknown)}; there are {', '.join(known or ())}")
    return found


def _workflow(given: object) -> str:
    if not isinstance(given, str) or not given.strip():
        raise InvalidInput(f"workflow is the name of a function, not {given!r}")
    return given


def _input(found: Mapping[str, Any]) -> str:
    if "input" in found and "args" in found:
        raise InvalidInput("give `input`, an object of arguments by name, or `args`, a list, not both")
    args: list[Any] = found.get("args", [])
    if not isinstance(args, list):  # pyright: ignore[reportUnnecessaryIsInstance]  (JSON may hold anything)
        raise InvalidInput(f"args is a list, not {args!r}")
    named = _object(found.get("input", {}), "input")
    return encode_call(tuple(args), dict(named))


def _action(found: Mapping[str, Any]) -> Action:
    named = _object(found.get("options", {}), "options", _OPTIONS)
    options = Options().with_(cast("Any", {key: value for key, value in named.items() if value not in (None, "")}))
    return Action(
        options.id or "",
        timeout=options.timeout,
        attributes=json.loads(options.attributes or "{}"),
        version=options.version,
        queue=options.queue,
        priority=options.priority,
        partition=options.partition,
    )
