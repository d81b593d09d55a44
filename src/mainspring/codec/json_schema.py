"""What an annotation takes, as a JSON schema: forms are made from it, and values that people type are checked against it.

Only what the schema can say is checked here. The code that receives the value has the last word.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, cast

import msgspec

MOST_CHARACTERS = 20_000
"""A schema that is longer is not kept: a form made from it could not be used."""
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
    """The schema of an annotation; None: it takes anything, or no schema can express it."""
    if annotation is Any:
        return None
    try:
        made = msgspec.json.schema(cast("Any", annotation))
    except Exception:  # noqa: BLE001  (classes of the user's may do anything; then there is no schema)
        return None
    return _inline(made, made.get("$defs", {}), 0) or None


def schema_text(annotation: object) -> str | None:
    """The same as text, as it is stored."""
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
    """A schema without references. What refers to itself takes anything from some depth on."""
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


def misfit(schema: dict[str, Any] | None, value: Any, where: str) -> str | None:
    """What is wrong with a value, in words; None: nothing that a schema can see."""
    if not schema:
        return None
    kind = schema.get("type")
    if "anyOf" in schema:
        fits = not all(misfit(each, value, where) for each in schema["anyOf"])
    elif "enum" in schema:
        fits = value in schema["enum"]
    else:
        fits = kind not in _KINDS or _is(kind, value)
    if not fits:
        return f"{where} is {_shown(schema)}, not {value!r}"
    if kind == "object":
        return _misfit_of_object(schema, value, where)
    if kind == "array" and isinstance(schema.get("items"), dict):
        found = (misfit(schema["items"], each, f"{where}[{number}]") for number, each in enumerate(value))
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
        if name in known and (wrong := misfit(known[name], each, f"{where}.{name}")) is not None:
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
