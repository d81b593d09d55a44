"""The interface of payload codecs, which transform stored values."""

from __future__ import annotations

from typing import Protocol

SEALED = '{"$payload":'
"""The prefix of stored values that a codec has encoded."""
UNREADABLE = "is encrypted, and cannot be read here; give App or Client the codec that it was stored with: payloads=…"


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
