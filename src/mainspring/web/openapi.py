"""The OpenAPI description of the JSON API, generated from the views and actions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from mainspring.web.views import Done

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.web.views import Action, View

_PLACE = re.compile(r"\{(\w+):path\}")
_TEMPLATE = "#/components/schemas/{name}"


class Problem(msgspec.Struct):
    """The error, in one sentence."""

    error: str


def describe(views: Sequence[View], actions: Sequence[Action], *, base: str, version: str) -> dict[str, Any]:
    """Return an OpenAPI 3.1 document."""
    kinds = [
        *[view.query for view in views],
        *[view.answer for view in views],
        *[action.body for action in actions],
        Done,
        Problem,
    ]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_TEMPLATE)
    of = dict(zip([id(kind) for kind in kinds], schemas, strict=True))
    paths: dict[str, Any] = {}
    for view in views:
        path = _PLACE.sub(r"{\1}", view.path)
        paths[f"/api{path}"] = {
            "get": {
                "operationId": view.name,
                "summary": view.summary,
                "tags": [_tag(view.path)],
                "parameters": _parameters(view, components),
                "responses": {"200": _json("What there is.", of[id(view.answer)]), **_PROBLEMS},
            }
        }
    for action in actions:
        paths[f"/api{action.path}"] = {
            "post": {
                "operationId": action.name,
                "summary": action.summary,
                "tags": [_tag(action.path)],
                "requestBody": {"required": True, "content": {"application/json": {"schema": of[id(action.body)]}}},
                "responses": {"200": _json("It is done.", of[id(Done)]), **_PROBLEMS, "409": _PROBLEM},
            }
        }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Mainspring",
            "version": version,
            "description": "Every page of the dashboard as data, and every action. Times are RFC 3339, values are JSON.",
        },
        "servers": [{"url": base or "/"}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "basic": {"type": "http", "scheme": "basic"},
            },
        },
        "security": [{}, {"token": []}, {"basic": []}],
    }


def _json(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


_PROBLEM = _json("Why not.", {"$ref": "#/components/schemas/Problem"})
_PROBLEMS = dict.fromkeys(("400", "401", "403", "404", "503"), _PROBLEM)


def _parameters(view: View, components: dict[str, Any]) -> list[dict[str, Any]]:
    name = view.query.__name__
    schema = components.get(name, {})
    in_path = set(_PLACE.findall(view.path))
    found: list[dict[str, Any]] = []
    for field, kind in schema.get("properties", {}).items():
        needed = field in in_path or field in schema.get("required", [])
        found.append({"name": field, "in": "path" if field in in_path else "query", "required": needed, "schema": kind})
    return found


def _tag(path: str) -> str:
    return path.strip("/").partition("/")[0] or "overview"
