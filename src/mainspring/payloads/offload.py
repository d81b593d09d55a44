"""Store large values outside of the database."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Protocol

from mainspring.errors import InvalidInput, PayloadError

_MARK = b"\x00o1"
_AS_IS = b"\x00o0"


class BlobStore(Protocol):
    """A store for large values: files, or an object storage such as S3. Must be thread-safe."""

    def put(self, name: str, data: bytes) -> None:
        """Store `data` under a name, durably, before this returns. A name is only ever used with the same data."""
        ...

    def get(self, name: str) -> bytes:
        """Return the data of a name. Raise any exception if there is none."""
        ...


class Offload:
    """Stores values of more than `threshold` bytes in `store`, and their names in the database.

    Names are hashes of the data, so equal values are stored once. The library never deletes them: configure the storage
    to delete values that are older than the retention of your runs.
    """

    def __init__(self, threshold: int, store: BlobStore) -> None:
        if not isinstance(threshold, int) or threshold < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"threshold is a number of bytes, not {threshold!r}")
        self._threshold = threshold
        self._store = store

    def encode(self, data: bytes) -> bytes:
        """Return the name of a large value, or a smaller value itself."""
        if len(data) > self._threshold:
            name = hashlib.sha256(data).hexdigest()
            self._store.put(name, data)
            return _MARK + name.encode()
        return _AS_IS + data if data.startswith((_MARK, _AS_IS)) else data

    def decode(self, data: bytes) -> bytes:
        """Return the value. Raises `PayloadError` if the storage has other data under its name."""
        if data.startswith(_MARK):
            name = data[len(_MARK) :].decode()
            found = self._store.get(name)
            if hashlib.sha256(found).hexdigest() != name:
                raise PayloadError(f"what the storage has under {name} was changed since it was stored")
            return found
        return data.removeprefix(_AS_IS)


class FileStore:
    """Stores large values as files in a folder that all workers can read."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    def put(self, name: str, data: bytes) -> None:
        """Write a file atomically and durably."""
        path = self._path(name)
        if path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
            raise
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def get(self, name: str) -> bytes:
        """Read a file."""
        return self._path(name).read_bytes()

    def _path(self, name: str) -> Path:
        if not name.isalnum():
            raise PayloadError(f"{name!r} is no name of a stored value")
        return self._folder / name[:2] / name
