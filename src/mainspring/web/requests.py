"""Decodes requests of browsers and programs into the arguments of views and actions."""

from __future__ import annotations

import functools
import json
import re
from datetime import UTC, datetime, tzinfo
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl
from zoneinfo import ZoneInfo

import msgspec

from mainspring.errors import InvalidInput
from mainspring.recurrence.instants import parse_instant

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.requests import Request

S = TypeVar("S", bound=msgspec.Struct)
_PROBLEM = re.compile(r"(?P<wrong>.*) - at `\$\.(?P<name>[^`]+)`")
_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]+)`")
MOST_BYTES = 1_000_000
_ZERO = "text has a zero character in it, which no id, name or reason has"


def read_pairs(kind: type[S], pairs: Iterable[tuple[str, str]]) -> S:
    """Decode an object from the pairs of a query or a form. An empty value counts as not given; unknown names are ignored.

    Times without an offset are in the zone that a field `zone` names, else UTC.
    """
    lists, moments = _fields_of(kind, list), _fields_of(kind, datetime)
    pairs = list(pairs)
    zone = _zone(dict(pairs).get("zone")) if moments else UTC
    values: dict[str, Any] = {name: value for name, value in composed(pairs).items() if name in kind.__struct_fields__}
    for name, text in pairs:
        if name not in kind.__struct_fields__ or not text:
            continue
        if "\0" in text:
            raise InvalidInput(_ZERO)
        value = _zoned(name, text, zone) if name in moments else text
        if name in lists:
            values.setdefault(name, []).append(value)
        else:
            values[name] = value
    return _convert(values, kind, strict=False)


def check_names(kind: type[Any], names: Iterable[str]) -> None:
    """Refuse parameters that a query does not have: a filter with a typing error would find everything."""
    known = [*kind.__struct_fields__, "zone"]
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise InvalidInput(f"there is no parameter {name!r} here; {hint}")


def composed(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Compose values that a form has split: fields called `input:text:order` and `input:json:total` are the parts of `input`.

    A part without a name is the value itself, and `input:object:` marks an object that may have no parts. An empty field counts
    as not given, or as null where its name says so: `input:text?:order`.
    """
    values: dict[str, Any] = {}
    for field, given in pairs:
        target, _, rest = field.partition(":")
        kind, colon, name = rest.partition(":")
        if not colon:
            continue
        if kind == "object":
            values.setdefault(target, {})
            continue
        if not given.strip() and not kind.endswith("?"):
            continue
        value = None if not given.strip() else given if kind.startswith("text") else read_value(given, name or target)
        if name:
            values.setdefault(target, {})[name] = value
        else:
            values[target] = value
    return values


async def read_json(kind: type[S], request: Request) -> S:
    """Decode an object from a JSON body."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise InvalidInput("send JSON, with content-type: application/json")
    raw = await body(request)
    if rb"\u0000" in raw:
        raise InvalidInput(_ZERO)
    moments = _fields_of(kind, datetime)
    try:
        values: Any = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(f"the body is not JSON: {error}") from None
    if isinstance(values, dict):
        given = cast("dict[str, Any]", values)
        zoned = {name: _zoned(name, given[name]) for name in moments & given.keys() if isinstance(given[name], str)}
        values = given | zoned
    return _convert(values, kind, strict=True)


def read_value(text: str, what: str) -> Any:
    """Decode a value that was typed as JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{what} is not JSON: {error}") from None


async def read_form(request: Request) -> list[tuple[str, str]]:
    """Read the pairs of a form."""
    try:
        return parse_qsl((await body(request)).decode(), keep_blank_values=True, max_num_fields=2_000)
    except ValueError as error:
        raise InvalidInput(f"the form cannot be read: {error}") from None


async def body(request: Request) -> bytes:
    """Read the body, up to a limit."""
    found = bytearray()
    async for chunk in request.stream():
        found += chunk
        if len(found) > MOST_BYTES:
            raise InvalidInput(f"a request has at most {MOST_BYTES:,} bytes")
    return bytes(found)


def _convert(values: Any, kind: type[S], *, strict: bool) -> S:
    try:
        return msgspec.convert(values, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise InvalidInput(_sentence(str(error))) from None


def _sentence(problem: str) -> str:
    """Rewrite a message of msgspec in the style of the other messages."""
    if missing := _MISSING.fullmatch(problem):
        return f"{missing['name']} is missing"
    found = _PROBLEM.fullmatch(problem)
    if found is None:
        return problem[:1].lower() + problem[1:]
    wrong = re.sub(r"^Expected", "expected", found["wrong"]).replace("`", "")
    return f"{found['name']}: {wrong[:1].lower()}{wrong[1:]}"


@functools.cache
def _fields_of(kind: type[msgspec.Struct], wanted: type) -> frozenset[str]:
    """Return the names of the fields of `kind` whose type is, or may be, `wanted`."""
    found: set[str] = set()
    for name, hint in get_type_hints(kind).items():
        if any(wanted in {each, get_origin(each)} for each in (hint, *get_args(hint))):
            found.add(name)
    return frozenset(found)


def _zone(name: str | None) -> tzinfo:
    try:
        return ZoneInfo(name) if name else UTC
    except (ValueError, KeyError, OSError):
        raise InvalidInput(f"zone: there is no time zone {name!r} here") from None


def _zoned(name: str, text: str, zone: tzinfo = UTC) -> str:
    """Add the zone to a time from a form: browsers send times without zone and seconds, and people write dates."""
    try:
        return parse_instant(text, name, zone).astimezone(UTC).isoformat()
    except OverflowError:
        raise InvalidInput(f"{name} is out of range: {text}") from None
