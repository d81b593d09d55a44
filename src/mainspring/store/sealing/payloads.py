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
from typing import TYPE_CHECKING, Any, NamedTuple

from mainspring.errors import InvalidInput, PayloadError
from mainspring.model.payloads import SEALED, UNREADABLE, unescaped
from mainspring.model.runs import error_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.model.payloads import PayloadCodec

KEY = "$payload"
HIDDEN = "encrypted"


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


class Direction(NamedTuple):
    """Seals texts, or opens them: a value and an exception, each with its name for messages."""

    value: Callable[[str, str], str]
    error: Callable[[str, str], str]


class Payloads:
    """Seals and opens texts with a codec."""

    def __init__(self, codec: PayloadCodec) -> None:
        self._codec = codec
        self.sealing = Direction(self.seal, self.seal_error)
        self.opening = Direction(self.open, self.open_error)

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
        except BaseException as error:  # an exit or cancellation would end the thread that commits for all
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
