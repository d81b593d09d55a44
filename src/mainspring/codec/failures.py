"""Exceptions to JSON text and back.

An exception is stored as a record: its type, message, arguments, attributes, notes, traceback, and the same of its cause.
It is rebuilt without calling `__init__`, which often wants other arguments than those the exception keeps, and often does
more than keep them: the class makes an empty instance, which then gets the arguments and attributes of the original. If that
instance is not like the original (same message, same arguments, nothing left out), it is not used, and a `RemoteError` with the
type's name, the message, the attributes and the traceback takes its place.

The traceback is text, in the attribute `remote_traceback`. It is no note, since notes belong to the user and stay equal, and
no `__cause__`, since what the user's code finds there must be what the original had.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from typing import TYPE_CHECKING, Any

import msgspec

from mainspring.codec.shape import Misfit, class_name
from mainspring.codec.unions import ANYTHING
from mainspring.errors import RemoteError

if TYPE_CHECKING:
    from collections.abc import Callable

TRACEBACK_LIMIT = 16_000
MESSAGE_LIMIT = 16_000
CHAIN_LIMIT = 8

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def encode_exception(exc: BaseException) -> str:
    """The JSON text of an exception. Never fails: what cannot be stored is stored as what repr() says of it."""
    return _encode(_record(exc, CHAIN_LIMIT, set())).decode()


def decode_exception(text: str, find: Callable[[str], type[BaseException] | None] | None = None) -> BaseException:
    """The exception again, or a RemoteError that stands for it. `find` may know classes that cannot be imported."""
    return _rebuilt(_decode(text), find)


def _record(exc: BaseException, depth: int, seen: set[int]) -> dict[str, Any]:
    seen.add(id(exc))
    record: dict[str, Any] = {
        "type": f"{type(exc).__module__}:{type(exc).__qualname__}",
        "message": _bounded(_text(exc)),
    }
    args, whole = _lowered(list(exc.args))
    record["args"] = args
    attributes: dict[str, Any] = {}
    for name, value in vars(exc).items():
        if name in {"__notes__", "remote_traceback"}:
            continue
        lowered, fine = _lowered(value)
        attributes[name] = lowered
        whole = whole and fine
    record["attributes"] = attributes
    record["whole"] = whole
    if notes := getattr(exc, "__notes__", None):
        record["notes"] = [_bounded(str(note)) for note in notes]
    record["traceback"] = getattr(exc, "remote_traceback", None) or _bounded(
        "".join(traceback.format_exception(exc, chain=False)), TRACEBACK_LIMIT
    )
    cause = exc.__cause__ or (None if exc.__suppress_context__ else exc.__context__)
    if cause is not None and depth > 0 and id(cause) not in seen:
        record["cause" if exc.__cause__ else "context"] = _record(cause, depth - 1, seen)
    return record


def _lowered(value: Any) -> tuple[Any, bool]:
    try:
        return ANYTHING.lower(value), True
    except (Misfit, RecursionError, TypeError, ValueError):
        return _bounded(repr(value)), False


def _rebuilt(record: dict[str, Any], find: Callable[[str], type[BaseException] | None] | None) -> BaseException:
    made = _same(record, find)
    if made is None:
        made = RemoteError(
            record["type"],
            record["message"],
            traceback=record["traceback"],
            attributes=ANYTHING.lift(record["attributes"]),
        )
    if notes := record.get("notes"):
        made.__notes__ = notes
    if "cause" in record:
        made.__cause__ = _rebuilt(record["cause"], find)
    elif "context" in record:
        made.__context__ = _rebuilt(record["context"], find)
    return made


def _same(record: dict[str, Any], find: Callable[[str], type[BaseException] | None] | None) -> BaseException | None:
    cls = _class(record["type"], find)
    if cls is None or not record["whole"]:
        return None
    try:
        args = tuple(ANYTHING.lift(record["args"]))
        made = cls.__new__(cls, *args)
        made.args = args
        for name, value in ANYTHING.lift(record["attributes"]).items():
            made.__dict__[name] = value
        made.__dict__["remote_traceback"] = record["traceback"]
        return made if _bounded(_text(made)) == record["message"] else None
    except Exception:  # noqa: BLE001 - whatever a user's class raises, it cannot be rebuilt
        return None


def _class(name: str, find: Callable[[str], type[BaseException] | None] | None) -> type[BaseException] | None:
    if find is not None and (known := find(name)) is not None:
        return known
    module, _, qualname = name.partition(":")
    try:
        found: Any = sys.modules.get(module) or importlib.import_module(module)
        for part in qualname.split("."):
            found = getattr(found, part)
    except Exception:  # noqa: BLE001 - a module may raise anything when imported
        return None
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def _text(exc: BaseException) -> str:
    try:
        return str(exc).encode(errors="backslashreplace").decode()
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide the failure
        return f"<{class_name(type(exc))} without a readable message>"


def _bounded(text: str, limit: int = MESSAGE_LIMIT) -> str:
    return (
        text
        if len(text) <= limit
        else f"{text[: limit // 2]}\n… {len(text) - limit} characters left out …\n{text[-limit // 2 :]}"
    )
