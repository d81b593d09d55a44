"""Form fields, made from the JSON schema of a function's arguments or of a topic's values."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, cast

_SHORT = 60


@dataclass(frozen=True, slots=True)
class Field:
    """One form field. `name` holds the target, the way its text is parsed, and the part of the value."""

    name: str
    label: str
    look: str
    """`text`, `number`, `choice` or `json`."""
    value: str
    required: bool
    choices: list[tuple[str, str]]
    """The choices: the value as JSON, and its label."""
    hint: str


def fields_of(schema: dict[str, Any] | None, target: str, given: Any = None) -> list[Field]:
    """Return the fields for a value: one for each property of an object, a single one for any other value."""
    if schema and schema.get("type") == "object" and "properties" in schema:
        needed = schema.get("required", ())
        there = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
        return [
            _field(target, name, each, there.get(name, each.get("default")), required=name in needed)
            for name, each in schema["properties"].items()
        ]
    return [_field(target, "", schema or {}, given, required=True)]


def _field(target: str, name: str, schema: dict[str, Any], value: Any, *, required: bool) -> Field:
    plain, nullable = _without_null(schema)
    kind = plain.get("type")
    choices = [(json.dumps(each), str(each)) for each in plain.get("enum", ())]
    if kind == "boolean":
        choices = [("true", "yes"), ("false", "no")]
    if choices:
        look, shown = "choice", "" if value is None else json.dumps(value)
    elif kind == "string" and (value is None or isinstance(value, str)):
        look, shown = "text", value or ""
    elif kind in {"integer", "number"} and (value is None or isinstance(value, int | float)):
        look, shown = "number", "" if value is None else json.dumps(value)
    else:
        look = "json"
        shown = "" if value is None and not required else json.dumps(value, ensure_ascii=False, indent=2)
    empty = "?" if required and nullable else ""
    read = "text" if look == "text" else "json"
    label = name or ("the value, as JSON" if look == "json" else "the value")
    must = required and not nullable
    return Field(f"{target}:{read}{empty}:{name}", label, look, shown, must, choices, _hint(plain, look))


def _without_null(schema: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return the schema of a value without null, and whether the value may be null."""
    parts = schema.get("anyOf")
    if not parts:
        return schema, schema.get("type") == "null"
    others = [each for each in parts if each.get("type") != "null"]
    return (others[0] if len(others) == 1 else {}), len(others) < len(parts)


def _hint(schema: dict[str, Any], look: str) -> str:
    if look != "json":
        return str(schema.get("format", ""))
    if schema.get("properties"):
        return ("an object with " + ", ".join(schema["properties"]))[:_SHORT]
    return {"array": "a list", "object": "an object"}.get(schema.get("type", ""), "JSON")
