"""The interface of payload codecs, which transform stored values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

SEALED = '{"$payload":'
"""The prefix of stored values that a codec has encoded."""
_OWN = '{"$plain":'
UNREADABLE = "is encrypted, and cannot be read here; give App or Client the codec that it was stored with: payloads=…"


def escaped(text: str) -> str:
    """The JSON of a value, wrapped if it would be taken for a value that a codec has encoded."""
    return f"{_OWN}{text}}}" if text.startswith((SEALED, _OWN)) else text


def unescaped(text: str) -> str:
    """The JSON that was given to `escaped`."""
    return text[len(_OWN) : -1] if text.startswith(_OWN) else text


class Offloaded(Protocol):
    """Values that a codec has stored outside of the database, and that are to be deleted when their names are gone from it."""

    @property
    def marker(self) -> str:
        """Every stored text that names a value has this in it."""
        ...

    def claim(self, database: str) -> None:
        """Note that they belong to a database; an error if they belong to another one."""
        ...

    def stored_before(self, moment: datetime) -> set[str]:
        """The names of values that were stored before a time."""
        ...

    def named_in(self, text: str) -> Iterator[str]:
        """The names in a stored text."""
        ...

    def delete(self, name: str) -> None:
        """Delete a value."""
        ...


class PayloadCodec(Protocol):
    """Encodes values on their way into the database and decodes them on their way out: `App(payloads=codec)`.

    A codec gets the JSON of a value. An exception that it raises becomes a `PayloadError`. It must be thread-safe.
    """

    def encode(self, data: bytes) -> bytes:
        """Return the bytes that are stored for a value."""
        ...

    def decode(self, data: bytes) -> bytes:
        """Return the value of bytes that `encode` returned at any time before."""
        ...
