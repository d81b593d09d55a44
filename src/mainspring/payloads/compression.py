"""Compress values."""

from __future__ import annotations

import zlib

from mainspring.errors import InvalidInput

_MARK = b"\x00z1"
_AS_IS = b"\x00z0"


class Compression:
    """Compresses values with zlib where that makes them smaller. Values shorter than `threshold` bytes are not compressed."""

    def __init__(self, *, level: int = 6, threshold: int = 200) -> None:
        if not 0 <= level <= 9:
            raise InvalidInput(f"level is 0 to 9, not {level!r}")
        self._level = level
        self._threshold = threshold

    def encode(self, data: bytes) -> bytes:
        """Return the compressed value, or the value itself where that is shorter."""
        if len(data) >= self._threshold:
            compressed = _MARK + zlib.compress(data, self._level)
            if len(compressed) < len(data):
                return compressed
        return _AS_IS + data if data.startswith((_MARK, _AS_IS)) else data

    def decode(self, data: bytes) -> bytes:
        """Return the decompressed value."""
        if data.startswith(_MARK):
            return zlib.decompress(data[len(_MARK) :])
        return data.removeprefix(_AS_IS)
