"""Encode values as JSON text, and decode them, by the annotation that describes them.

The text is readable with a plain SELECT. A decoded value equals the encoded one. A value that cannot be decoded again is refused with
an explanation: when the function is registered if the annotation is at fault, at the call if the value is.

* Natural JSON wherever it is enough: `3`, `"2026-07-01T09:00:00Z"`, `{"total": "9.90"}`. Bytes are base64, tuples and sets
  arrays (sets sorted), Decimal, UUID and Path text, timedelta ISO 8601, enums their value. Integers have any size.
* `datetime` keeps instant and offset, and a `ZoneInfo` by its name: `"2026-07-01T09:00:00+02:00[Europe/Paris]"`.
* NaN and infinity are errors, since JSON would turn them into null. So are lone surrogates.
* A union whose members JSON cannot distinguish carries the type's name: `{"$type": "Card", "number": "…"}`,
  `{"$type": "datetime", "value": "…"}`. If all members are Structs with tags of their own, those are used.
* A subclass where its base is annotated is an error, because it would be decoded as its base. Subclasses of plain types
  (a `StrEnum` where `str` is annotated) are decoded as the plain value that they equal.
* Without an annotation, or with Any, plain JSON stays plain. datetime, date, time, timedelta, Decimal, UUID, bytes, Path, tuple,
  set, frozenset, and mappings with other keys than text carry their type's name as above. A user's classes are refused
  there: the annotation decides which class a stored value becomes, the stored value must not.
* Objects are rebuilt from their fields without calling `__init__`. `__post_init__` is called. A field that is not stored has its
  default, and one that is no longer declared is ignored, so that a class may change between encoding and decoding.
* The order of a dict is kept. That of a set is not, as in Python.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast
from zoneinfo import ZoneInfo

import msgspec

from mainspring.codec.annotations import shape_of
from mainspring.codec.containers import in_order
from mainspring.codec.models import dump, is_model
from mainspring.codec.type_codec import TAG, Misfit, Shape, all_shapes, at, contain_exit, is_array, is_mapping, short
from mainspring.errors import NotSerializable, TooLarge
from mainspring.model.payloads import escaped, unescaped

if TYPE_CHECKING:
    from collections.abc import Callable


_QUOTED_TAG = f'"{TAG}"'


def _write_hook(value: object) -> Any:
    """Encode a class that msgspec does not support, inside a value that it does."""
    if isinstance(value, (PurePath, ZoneInfo)):
        return str(value)
    if is_model(type(value)):
        return dump(value)
    raise NotImplementedError


def _read_hook(cls: type[Any], raw: Any) -> Any:
    return raw if cls is object else _paths(cls).shape.lift(raw)


_write = msgspec.json.Encoder(enc_hook=_write_hook).encode
_parse = msgspec.json.Decoder().decode


class _Paths(NamedTuple):
    """How an annotation is encoded and decoded. Without `read` only the slow path is possible."""

    shape: Shape
    read: Callable[[str], Any] | None
    open: bool


class ValueCodec:
    """Encodes and decodes the values of one annotation. `where` names them in messages: "the result of step 'charge'"."""

    __slots__ = ("_open", "_plain", "_read", "_shape", "annotation", "where")

    def __init__(self, annotation: object, where: str, paths: _Paths) -> None:
        self.annotation = annotation
        self.where = where
        self._shape, self._read, self._open = paths
        self._plain = self._shape.plain if self._read is not None else _never

    def encode(self, value: object) -> str:
        """Return the JSON text of a value. Raises `NotSerializable` if the value does not fit the annotation."""
        try:
            if self._plain(value):
                return escaped(_write(value).decode())
        except Exception:  # noqa: BLE001, S110 - the slow path reports what is wrong, and where
            pass
        return self._encode_slowly(value)

    def decode(self, text: str) -> Any:
        """Return the value of a text. Raises `NotSerializable` if the text does not fit the annotation."""
        text = unescaped(text)
        if self._read is not None and not (self._open and _QUOTED_TAG in text):
            try:
                return self._read(text)
            except Exception:  # noqa: BLE001, S110 - the slow path supports more, and reports what is wrong, and where
                pass
        return self._decode_slowly(text)

    @property
    def custom(self) -> bool:
        """Whether decoding runs code of the user (`__post_init__`, validators), which may refuse a stored value."""
        return any(shape.custom for shape in all_shapes(self._shape))

    def _encode_slowly(self, value: object) -> str:
        try:
            return escaped(_write(contain_exit(self._shape.lower, value)).decode())
        except Misfit as misfit:
            raise NotSerializable(f"{self.where} cannot be stored as JSON: {misfit}.") from None
        except RecursionError:
            raise NotSerializable(
                f"{self.where} cannot be stored as JSON: it is nested too deeply, or contains itself."
            ) from None
        except Exception as error:
            raise NotSerializable(f"{self.where} cannot be stored as JSON: {error}.") from error

    def _decode_slowly(self, text: str) -> Any:
        try:
            return contain_exit(self._shape.lift, _parse(text))
        except Misfit as misfit:
            raise NotSerializable(f"{self.where} cannot be read back from what is stored: {misfit}.") from None
        except Exception as error:
            raise NotSerializable(f"{self.where} cannot be read back from what is stored: {error}.") from error

    def __repr__(self) -> str:
        return f"ValueCodec({self.annotation!r}, {self.where!r})"


def value_codec(annotation: object, where: str) -> ValueCodec:
    """Return the codec of an annotation. Raises `NotSerializable` if its values cannot be stored and decoded again."""
    try:
        return ValueCodec(annotation, where, _paths(annotation))
    except Misfit as misfit:
        raise NotSerializable(f"the annotation of {where} cannot be used: {misfit}.") from None


def _paths(annotation: object) -> _Paths:
    try:
        hash(annotation)
    except TypeError:  # Annotated[int, []]
        return _new_paths(annotation)
    return _cached_paths(annotation)


def _new_paths(annotation: object) -> _Paths:
    shape = shape_of(annotation)
    parts = all_shapes(shape)
    read = _reader(annotation) if all(part.native for part in parts) else None
    return _Paths(shape, read, any(part.open for part in parts))


_cached_paths = lru_cache(maxsize=2048)(_new_paths)


def _reader(annotation: Any) -> Callable[[str], Any] | None:
    """Return msgspec's decoder, or None if msgspec refuses the annotation."""
    try:
        return msgspec.json.Decoder(annotation, dec_hook=_read_hook).decode
    except (TypeError, NameError, RecursionError):
        return None


def _never(_value: object) -> bool:
    return False


_LONGEST_CHARACTER = 4
"""The maximum number of bytes of a character in UTF-8."""


def check_size(text: str, value: object, limit: int, what: str) -> str:
    """Return the text. Raises `TooLarge` if the value that it encodes has more than `limit` bytes.

    Quotes, escapes and base64 do not count: seven megabytes of `bytes` are seven megabytes.
    """
    if len(text) * _LONGEST_CHARACTER > limit and len(text.encode()) > limit:
        size = size_of(text, value)
        if size > limit:
            raise TooLarge(f"{what}: {size:,} bytes; the limit is {limit:,} (setting value_bytes)")
    return text


def size_of(text: str, value: object) -> int:
    """Return the size in bytes of a value that is stored as `text`."""
    try:
        added = _added(contain_exit(UNTAGGED.lower, value))
    except Exception:  # noqa: BLE001  (the value can only be encoded by its annotation)
        added = 0
    return len(text.encode()) - added


def _added(lowered: object) -> int:
    """Return how many bytes the JSON of the text and bytes in a value adds to them."""
    if isinstance(lowered, (bytes, bytearray)):
        return (len(lowered) + 2) // 3 * 4 + 2 - len(lowered)
    if isinstance(lowered, str):
        return len(msgspec.json.encode(lowered)) - len(lowered.encode())
    if is_mapping(lowered):
        return sum(map(_added, lowered.values()))
    if is_array(lowered):
        return sum(map(_added, lowered))
    return 0


JSON: TypeAlias = bool | int | float | str | list["JSON"] | dict[str, "JSON"] | None
"""The result of a run whose function's code is elsewhere: a Decimal is a string, a dataclass a dict."""


class _PlainJson:
    """Decodes stored results without types."""

    annotation: object = object
    where = "the result of a run"

    def decode(self, text: str) -> JSON:
        found: JSON = json.loads(text)
        return found


PLAIN_JSON = cast("ValueCodec", _PlainJson())
"""Decodes the results of runs for a client, which has no code and so no types."""


class Untagged(Shape):
    """Encodes JSON without tags: a tuple is an array, a datetime is text. Cannot decode."""

    def __init__(self) -> None:
        super().__init__("Any", object, ())

    def lower(self, value: Any) -> Any:
        if is_mapping(value):
            return {_key(key): at(f"[{short(key)}]", self.lower, part) for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [at(f"[{index}]", self.lower, part) for index, part in enumerate(cast("list[Any]", value))]
        if isinstance(value, (set, frozenset)):
            return sorted(map(self.lower, cast("set[Any]", value)), key=in_order)
        try:
            shape = _shape(value)
        except Misfit as misfit:
            raise Misfit(f"{short(value)} cannot be written: {misfit.problem}") from None
        return shape.lower(value)


def _key(key: Any) -> str:
    lowered = _shape(key).lower(key)
    if type(lowered) is not str and type(lowered) is not int:
        raise Misfit(f"the key {short(key)} has no form in JSON; use text")
    return str(lowered)


def _shape(value: object) -> Shape:
    cls: Any = type(value)
    return _shape_of_class(cls)


@lru_cache(maxsize=512)
def _shape_of_class(cls: type[Any]) -> Shape:
    return shape_of(cls)


UNTAGGED = Untagged()
