"""From what a browser or a program sends to what views and actions take."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

import msgspec

from mainspring.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.requests import Request

S = TypeVar("S", bound=msgspec.Struct)
MOST_BYTES = 1_000_000
_ZERO = "text has a zero character in it, which no id, name or reason has"
_LOCAL_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?")


def read_pairs(kind: type[S], pairs: Iterable[tuple[str, str]]) -> S:
    """An object from the pairs of a query or a form. What was left empty was not given; other names are ignored."""
    lists = _lists(kind)
    values: dict[str, Any] = {}
    for name, text in pairs:
        if name not in kind.__struct_fields__ or not text:
            continue
        if "\0" in text:
            raise InvalidInput(_ZERO)
        value = _zoned(text)
        if name in lists:
            values.setdefault(name, []).append(value)
        else:
            values[name] = value
    return _convert(values, kind, strict=False)


async def read_json(kind: type[S], request: Request) -> S:
    """An object from a JSON body."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise InvalidInput("send JSON, with content-type: application/json")
    raw = await body(request)
    if rb"\u0000" in raw:
        raise InvalidInput(_ZERO)
    try:
        values = msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"the body is not JSON: {error}") from None
    return _convert(values, kind, strict=True)


async def read_form(request: Request) -> list[tuple[str, str]]:
    """The pairs of a form."""
    try:
        return parse_qsl((await body(request)).decode(), keep_blank_values=True, max_num_fields=2_000)
    except ValueError as error:
        raise InvalidInput(f"the form cannot be read: {error}") from None


async def body(request: Request) -> bytes:
    """The body, up to a limit."""
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
        raise InvalidInput(str(error)) from None


def _lists(kind: type[msgspec.Struct]) -> set[str]:
    found: set[str] = set()
    for name, hint in get_type_hints(kind).items():
        kinds = [hint, *get_args(hint)]
        if any(get_origin(each) is list for each in kinds):
            found.add(name)
    return found


def _zoned(text: str) -> str:
    """Browsers send times without zone and seconds; the forms say that they are UTC."""
    found = _LOCAL_TIME.fullmatch(text)
    if found is None:
        return text
    return f"{text}Z" if found[1] else f"{text}:00Z"
