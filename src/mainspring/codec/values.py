"""Values to JSON text and back, by the annotation that describes them.

The text is what a person sees with SELECT. What an annotation says comes back equal; what it cannot say is refused with words,
when the function is registered if the annotation is at fault, when the value is given if the value is.

* Natural JSON wherever it is enough: `3`, `"2026-07-01T09:00:00Z"`, `{"total": "9.90"}`. Bytes are base64, tuples and sets
  arrays (sets sorted), Decimal, UUID, Path strings, timedelta ISO 8601, enums their value. Integers have any size.
* `datetime` keeps instant and offset, and a `ZoneInfo` by its name: `"2026-07-01T09:00:00+02:00[Europe/Paris]"`.
* NaN and infinity are errors, since JSON would turn them into null. So are lone surrogates.
* A union that JSON cannot tell apart carries the type's name: `{"$type": "Card", "number": "…"}`,
  `{"$type": "datetime", "value": "…"}`.
* A subclass where its base is annotated is an error, because it would come back as its base.
* Without an annotation (or with Any) plain JSON stays plain, and datetime, date, time, timedelta, Decimal, UUID, bytes, Path,
  tuple, set, frozenset and mappings with other keys than text carry their type's name as above. Classes of the user are
  refused there: an annotation has to say which class a stored value becomes, the stored value must not.
* Dict order is kept; the order of a set is not, as in Python.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from mainspring.codec.shape import TAG, Misfit, Shape
from mainspring.codec.shapes import shape_of
from mainspring.errors import NotSerializable

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_QUOTED_TAG = f'"{TAG}"'


class ValueCodec:
    """Writes and reads the values of one annotation. `where` names the place in messages."""

    __slots__ = ("_lift", "_lower", "_open", "_plain", "_read", "annotation", "where")

    def __init__(self, annotation: object, shape: Shape, where: str) -> None:
        self.annotation = annotation
        self.where = where
        self._plain = shape.plain if shape.native else _never
        self._lower = shape.lower
        self._lift = shape.lift
        self._open = shape.open
        self._read = _reader(annotation) if shape.native else None

    def encode(self, value: object) -> str:
        """The JSON text of a value. Raises NotSerializable when it does not fit the annotation."""
        try:
            if self._plain(value):
                return _encode(value).decode()
        except Exception:  # noqa: BLE001, S110 - the slow lane finds out what it was, and where
            pass
        return self._encode_slowly(value)

    def decode(self, text: str) -> Any:
        """The value again. Raises NotSerializable when the text is not what the annotation says."""
        if self._read is not None and not (self._open and _QUOTED_TAG in text):
            try:
                return self._read(text)
            except msgspec.DecodeError:
                pass
        return self._decode_slowly(text)

    def _encode_slowly(self, value: object) -> str:
        try:
            return _encode(self._lower(value)).decode()
        except Misfit as misfit:
            raise self._error("cannot be stored as JSON", misfit) from None
        except RecursionError:
            raise self._error(
                "cannot be stored as JSON", Misfit("it is nested too deeply, or contains itself")
            ) from None
        except (TypeError, ValueError, OverflowError) as error:
            raise self._error("cannot be stored as JSON", Misfit(str(error))) from error

    def _decode_slowly(self, text: str) -> Any:
        try:
            return self._lift(_decode(text))
        except Misfit as misfit:
            raise self._error("cannot be read back from what is stored", misfit) from None
        except (RecursionError, msgspec.DecodeError, TypeError, ValueError) as error:
            raise self._error("cannot be read back from what is stored", Misfit(str(error))) from error

    def _error(self, trouble: str, misfit: Misfit) -> NotSerializable:
        place = f"at {misfit.path.lstrip('.')}: " if misfit.path else ""
        return NotSerializable(f"{self.where} {trouble}: {place}{misfit.problem}.")

    def __repr__(self) -> str:
        return f"ValueCodec({self.annotation!r}, {self.where!r})"


def _never(_value: object) -> bool:
    return False


def _reader(annotation: object) -> Any:
    """msgspec's decoder. An annotation that it refuses after all is left to the slow lane."""
    try:
        return msgspec.json.Decoder(annotation).decode
    except (TypeError, NameError):
        return None


def value_codec(annotation: object, where: str) -> ValueCodec:
    """The codec of an annotation. Raises NotSerializable for one whose values cannot be stored and read back."""
    try:
        return _cached(annotation, where)
    except TypeError:  # unhashable, as Annotated[int, []]
        return _made(annotation, where)


def _made(annotation: object, where: str) -> ValueCodec:
    try:
        shape = shape_of(annotation)
    except Misfit as misfit:
        raise NotSerializable(
            f"{where} has an annotation that cannot be used: {misfit.path}{misfit.problem}."
        ) from None
    return ValueCodec(annotation, shape, where)


_cached = lru_cache(maxsize=4096)(_made)
