"""The JSON schema of an annotation. Forms are made from schemas, and values that people type are checked against them.

Only the constraints of the schema are checked here. The code that receives the value makes the final check.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, cast

import msgspec

MOST_CHARACTERS = 20_000
"""Longer schemas are not kept: a form made from one could not be used."""
_DEEPEST = 6
_KINDS: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
    "array": list,
    "object": dict,
}
_NAMES = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "array": "a list",
    "object": "an object",
}


def schema_of(annotation: object) -> dict[str, Any] | None:
    """Return the schema of an annotation. None: it takes anything, or no schema can express it."""
    if annotation is Any:
        return None
    try:
        made = msgspec.json.schema(cast("Any", annotation))
    except Exception:  # noqa: BLE001  (a user's class may raise anything; then there is no schema)
        return None
    return _inline(made, made.get("$defs", {}), 0) or None


def schema_text(annotation: object) -> str | None:
    """Return the schema of an annotation as text, as it is stored. None if it is too long or there is none."""
    try:
        return _text(annotation)
    except TypeError:  # an annotation that cannot be hashed
        return None


@lru_cache(maxsize=1024)
def _text(annotation: Any) -> str | None:
    found = schema_of(annotation)
    text = None if found is None else json.dumps(found)
    return None if text is None or len(text) > MOST_CHARACTERS else text


def _inline(schema: Any, named: dict[str, Any], depth: int) -> Any:
    """Return a schema without references. A schema that refers to itself takes anything below a depth."""
    if isinstance(schema, list):
        parts: list[Any] = schema  # pyright: ignore[reportUnknownVariableType]
        return [_inline(each, named, depth) for each in parts]
    if not isinstance(schema, dict):
        return schema
    given = cast("dict[str, Any]", schema)
    if "$ref" in given:
        name = str(given["$ref"]).rpartition("/")[2]
        return _inline(named.get(name, {}), named, depth + 1) if depth < _DEEPEST else {}
    return {key: _inline(value, named, depth) for key, value in given.items() if key != "$defs"}


def find_fault(schema: dict[str, Any] | None, value: Any, where: str) -> str | None:
    """Return what is wrong with a value, as a sentence. None if the schema accepts it."""
    if not schema:
        return None
    kind = schema.get("type")
    if "anyOf" in schema:
        fits = not all(find_fault(each, value, where) for each in schema["anyOf"])
    elif "enum" in schema:
        fits = value in schema["enum"]
    else:
        fits = kind not in _KINDS or _is(kind, value)
    if not fits:
        return f"{where} is {_shown(schema)}, not {value!r}"
    if kind == "object":
        return _misfit_of_object(schema, value, where)
    if kind == "array" and isinstance(schema.get("items"), dict):
        found = (find_fault(schema["items"], each, f"{where}[{number}]") for number, each in enumerate(value))
        return next((wrong for wrong in found if wrong is not None), None)
    return None


def _misfit_of_object(schema: dict[str, Any], value: dict[str, Any], where: str) -> str | None:
    known = schema.get("properties", {})
    missing = [name for name in schema.get("required", ()) if name not in value]
    if missing:
        return f"{where} needs {', '.join(missing)}"
    if schema.get("additionalProperties") is False and (unknown := [name for name in value if name not in known]):
        return f"{where} has no {', '.join(unknown)}; it has {', '.join(known) or 'nothing'}"
    for name, each in value.items():
        if name in known and (wrong := find_fault(known[name], each, f"{where}.{name}")) is not None:
            return wrong
    return None


def _is(kind: str, value: Any) -> bool:
    return isinstance(value, _KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _shown(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_shown(each) for each in schema["anyOf"]))
    if "enum" in schema:
        return " or ".join(json.dumps(each) for each in schema["enum"])
    return _NAMES.get(schema.get("type", ""), "something else")
