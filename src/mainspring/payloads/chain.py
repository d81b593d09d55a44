"""Apply several codecs in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.errors import InvalidInput
from mainspring.payloads.offload import Offload

if TYPE_CHECKING:
    from mainspring.model.payloads import PayloadCodec
    from mainspring.payloads.offload import OffloadedValues


class Chain:
    """Several codecs as one: `Chain(Compression(), Encryption(key), Offload(100_000, store))` compresses first.

    Values that were stored before a codec was added stay readable: each codec of this package recognises its own values.
    Raises `InvalidInput` for an object without `encode` and `decode`.
    """

    def __init__(self, *codecs: PayloadCodec) -> None:
        if not codecs or not all(hasattr(codec, "encode") and hasattr(codec, "decode") for codec in codecs):
            raise InvalidInput(f"Chain takes codecs with encode and decode, not {codecs!r}")
        if any(isinstance(codec, Offload) for codec in codecs[:-1]):
            raise InvalidInput("in a Chain, Offload is the last: what comes after it would hide the names of values")
        self._codecs = codecs

    @property
    def offloaded(self) -> OffloadedValues | None:
        """What the last codec has stored outside of the database, if that can be deleted."""
        return getattr(self._codecs[-1], "offloaded", None)

    def encode(self, data: bytes) -> bytes:
        """Encode with each codec, first to last."""
        for codec in self._codecs:
            data = codec.encode(data)
        return data

    def decode(self, data: bytes) -> bytes:
        """Decode with each codec, last to first."""
        for codec in reversed(self._codecs):
            data = codec.decode(data)
        return data
