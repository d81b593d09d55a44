"""Encode the JSON of a value for storage, and decode it, with the user's codec.

A sealed value is JSON as well: `{"$payload":"base64"}`. A sealed exception keeps the name of its class, and has "encrypted" as its message.
Values that were stored before there was a codec are read as they are.
"""

from __future__ import annotations

import base64
import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from mainspring.errors import InvalidInput, PayloadError
from mainspring.model.payloads import SEALED, UNREADABLE, unescaped
from mainspring.model.runs import error_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.model.payloads import PayloadCodec

KEY = "$payload"
HIDDEN = "encrypted"
_SEALED_IN_TRAIL = ("error", "input")
_TICK_VALUES = ("last_result", "last_failure")
_parts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def is_sealed(text: str) -> bool:
    """Whether a stored text is a sealed value."""
    return text.startswith(SEALED)


def shown(text: str) -> Any:
    """A stored value for display without a codec: sealed values are shown as "encrypted"."""
    own = unescaped(text)
    value: Any = json.loads(own)
    if own is not text or not isinstance(value, dict) or KEY not in value:
        return value  # pyright: ignore[reportUnknownVariableType]
    sealed: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
    del sealed[KEY]
    return sealed or HIDDEN


def shown_input(text: str) -> dict[str, Any]:
    """The arguments of a call for display without a codec, which are always an object."""
    return {HIDDEN: True} if is_sealed(text) else json.loads(text)


def readable(text: str, what: str) -> str:
    """The text, unless it is sealed. A sealed text means that this process has no codec, or the wrong one."""
    if is_sealed(text):
        raise PayloadError(f"{what} {UNREADABLE}")
    return text


class Payloads:
    """Seals and opens texts with a codec."""

    def __init__(self, codec: PayloadCodec) -> None:
        self._codec = codec

    # -- values --------------------------------------------------------------------------------------------------------
    def seal(self, text: str, what: str) -> str:
        """Encode a value for storage. Raises `PayloadError` if the codec fails; `what` names the value in its message."""
        return text if is_sealed(text) else f'{SEALED}"{self._encoded(text, what)}"}}'

    def open(self, text: str, what: str) -> str:
        """Decode a stored value. Raises `PayloadError` if the codec fails."""
        return self._decoded(json.loads(text)[KEY], what) if is_sealed(text) else text

    def _encoded(self, text: str, what: str) -> str:
        try:
            return base64.b64encode(self._codec.encode(text.encode())).decode()
        except KeyboardInterrupt:
            raise
        except (
            BaseException
        ) as error:  # a cancellation or exit of the codec's must not end the thread that commits for all
            raise PayloadError(f"{what} cannot be encoded: {_cause(error)}") from error

    def _decoded(self, encoded: str, what: str) -> str:
        try:
            return self._codec.decode(base64.b64decode(encoded)).decode()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise PayloadError(f"{what} cannot be decoded: {_cause(error)}") from error

    # -- exceptions ----------------------------------------------------------------------------------------------------
    def seal_error(self, text: str, what: str) -> str:
        """Encode an exception for storage. If the codec fails, the record says so."""
        record = json.loads(text)
        if KEY in record:
            return text
        kind = record.get("type", "")
        try:
            encoded = self._encoded(text, f"the exception of {what}")
        except PayloadError as error:
            return error_record("PayloadError", f"{error}; it was {kind}")
        return json.dumps({"type": kind, "message": HIDDEN, KEY: encoded}, ensure_ascii=False)

    def open_error(self, text: str, what: str) -> str:
        """Decode a stored exception."""
        record = json.loads(text)
        return self._decoded(record[KEY], f"the exception of {what}") if KEY in record else text

    # -- parts of records ----------------------------------------------------------------------------------------------
    def seal_trail(self, text: str, what: str) -> str:
        """The attempts of a step, with their errors and the hash of the input sealed."""
        return self._each_attempt(text, lambda error: json.loads(self.seal(json.dumps(error), what)))

    def open_trail(self, text: str, what: str) -> str:
        return self._each_attempt(text, lambda error: json.loads(self.open(msgspec.json.encode(error).decode(), what)))

    @staticmethod
    def _each_attempt(text: str, change: Callable[[Any], Any]) -> str:
        attempts: list[dict[str, Any]] = json.loads(text)
        changed = [
            {
                name: change(value) if name in _SEALED_IN_TRAIL and value is not None else value
                for name, value in each.items()
            }
            for each in attempts
        ]
        return json.dumps(changed, ensure_ascii=False)

    def seal_tick(self, text: str, what: str) -> str:
        """The tick of a run, with the values that its schedule remembers sealed."""
        return self._each_memory(text, what, self.seal, self.seal_error)

    def open_tick(self, text: str, what: str) -> str:
        return self._each_memory(text, what, self.open, self.open_error)

    @staticmethod
    def _each_memory(text: str, what: str, value: Callable[[str, str], str], error: Callable[[str, str], str]) -> str:
        if not any(f'"{name}"' in text for name in _TICK_VALUES):
            return text
        parts = _parts(text)
        for name, change in zip(_TICK_VALUES, (value, error), strict=True):
            if name in parts:
                parts[name] = msgspec.Raw(change(bytes(parts[name]).decode(), what).encode())
        return msgspec.json.encode(parts).decode()

    def seal_declared(self, text: str, what: str) -> str:
        """The declaration of a schedule, with its arguments sealed."""
        return self._with_input(text, what, self.seal)

    def open_declared(self, text: str, what: str) -> str:
        return self._with_input(text, what, self.open)

    @staticmethod
    def _with_input(text: str, what: str, change: Callable[[str, str], str]) -> str:
        declared: dict[str, Any] = json.loads(text)
        if isinstance(declared.get("input"), str):
            declared["input"] = change(declared["input"], what)
        return json.dumps(declared)


def _cause(error: BaseException) -> str:
    """The cause of a codec's failure. Its message may quote the value, unless it is an error of the library."""
    return str(error) if isinstance(error, PayloadError) else type(error).__name__


def named_codec(name: str) -> PayloadCodec | None:
    """The codec that `module:name` names; None for "none". The current folder is importable."""
    if name == "none":
        return None
    module, _, attribute = name.partition(":")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        codec: PayloadCodec = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInput(f"the setting payloads is {name!r}, and not the module:name of a codec: {error}") from error
    if not (hasattr(codec, "encode") and hasattr(codec, "decode")):
        raise InvalidInput(f"the setting payloads names {codec!r}, which has no encode and decode")
    return codec
