"""What turns stored values into something else and back."""

from __future__ import annotations

from typing import Protocol

SEALED = '{"$payload":'
"""How a stored value begins that a codec has encoded."""
UNREADABLE = "is encrypted, and cannot be read here; give App or Client the codec that it was stored with: payloads=…"


class PayloadCodec(Protocol):
    """Encodes values on their way into the database, and decodes them on their way out: `App(payloads=codec)`.

    It is given the JSON of a value. Whatever it raises becomes a `PayloadError`. It is called on several threads at once.
    """

    def encode(self, data: bytes) -> bytes:
        """What is stored of a value."""
        ...

    def decode(self, data: bytes) -> bytes:
        """The value again, of what `encode` has returned at any time before."""
        ...
