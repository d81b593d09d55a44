"""Large values outside of the database."""

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
    """Where large values are kept: files, or an object storage such as S3. Used on several threads at once."""

    def put(self, name: str, data: bytes) -> None:
        """Keep `data` under a name, durably, before this returns. The same name is only ever given with the same data."""
        ...

    def get(self, name: str) -> bytes:
        """What is kept under a name. Raises whatever it likes if there is nothing."""
        ...


class Offload:
    """Keeps values of more than `threshold` bytes in `store`, and their names in the database.

    Names are hashes of the data, so that what is stored twice is kept once. Nothing is ever deleted there: have the storage delete what is
    older than your runs are kept.
    """

    def __init__(self, threshold: int, store: BlobStore) -> None:
        if not isinstance(threshold, int) or threshold < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"threshold is a number of bytes, not {threshold!r}")
        self._threshold = threshold
        self._store = store

    def encode(self, data: bytes) -> bytes:
        """The name of a large value; a smaller one itself."""
        if len(data) > self._threshold:
            name = hashlib.sha256(data).hexdigest()
            self._store.put(name, data)
            return _MARK + name.encode()
        return _AS_IS + data if data.startswith((_MARK, _AS_IS)) else data

    def decode(self, data: bytes) -> bytes:
        """The value again. `PayloadError` if the storage has another one under its name."""
        if data.startswith(_MARK):
            name = data[len(_MARK) :].decode()
            found = self._store.get(name)
            if hashlib.sha256(found).hexdigest() != name:
                raise PayloadError(f"what the storage has under {name} was changed since it was stored")
            return found
        return data.removeprefix(_AS_IS)


class FileStore:
    """Keeps large values as files in a folder, which all workers must see."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    def put(self, name: str, data: bytes) -> None:
        """Write a file. It is there whole, or not at all."""
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
