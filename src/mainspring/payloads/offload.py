"""Store large values outside of the database."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import re
import secrets
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from mainspring.errors import InvalidInput, PayloadError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MARK = b"\x00o1"
_AS_IS = b"\x00o0"
_HASH = 64
_OWN = 32
"""Characters of a name: the hash of the data, and what makes it different from every other one."""
_OWNER = "owner"
_NAMED = re.compile(r"AG8x(?:[A-Za-z0-9+/]{128}|[A-Za-z0-9+/]{86}==)")
"""The mark and a name in base64; the shorter ones are names that are a hash alone."""


class BlobStore(Protocol):
    """A store for large values: files, or an object storage such as S3. Must be thread-safe."""

    def put(self, name: str, data: bytes) -> None:
        """Store `data` under a name, durably, before this returns. A name is only ever used with the same data."""
        ...

    def get(self, name: str) -> bytes:
        """Return the data of a name. Raise any exception if there is none."""
        ...


@runtime_checkable
class DeletingBlobStore(BlobStore, Protocol):
    """A store whose values can be listed and deleted: for `Offload(…, delete=True)`."""

    def list(self) -> Iterable[tuple[str, datetime]]:
        """The names of all values, each with the time it was stored, with time zone."""
        ...

    def delete(self, name: str) -> None:
        """Delete a value. No error if there is none."""
        ...


class Offload:
    """Stores values of more than `threshold` bytes in `store`, and their names in the database.

    With `delete=True` workers delete, once a day, what was stored more than a day ago and has no name in the database any more: values of
    runs that were deleted, and values whose commit failed. Only for a storage that belongs to one database alone. Without it
    the library deletes nothing there. In a `Chain`, this codec is the last.
    """

    def __init__(self, threshold: int, store: BlobStore, *, delete: bool = False) -> None:
        if not isinstance(threshold, int) or threshold < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"threshold is a number of bytes, not {threshold!r}")
        if delete and not isinstance(store, DeletingBlobStore):
            raise InvalidInput(f"delete=True takes a storage with list and delete, not {store!r}")
        self._threshold = threshold
        self._store = store
        self._deletes = delete

    def encode(self, data: bytes) -> bytes:
        """Return the name of a large value, or a smaller value itself."""
        if len(data) > self._threshold:
            # A name of its own, also for equal data: what has no name in the database now will never have one.
            name = hashlib.sha256(data).hexdigest() + secrets.token_hex(_OWN // 2)
            self._store.put(name, data)
            return _MARK + name.encode()
        return _AS_IS + data if data.startswith((_MARK, _AS_IS)) else data

    def decode(self, data: bytes) -> bytes:
        """Return the value. Raises `PayloadError` if the storage has other data under its name."""
        if data.startswith(_MARK):
            name = data[len(_MARK) :].decode()
            found = self._store.get(name)
            if hashlib.sha256(found).hexdigest() != name[:_HASH]:
                raise PayloadError(f"what the storage has under {name} was changed since it was stored")
            return found
        return data.removeprefix(_AS_IS)

    # -- deleting what is no longer needed -------------------------------------------------------------------------------
    @property
    def offloaded(self) -> OffloadedValues | None:
        """What can be deleted, if that is asked for."""
        store = self._store
        return OffloadedValues(store) if self._deletes and isinstance(store, DeletingBlobStore) else None


class OffloadedValues:
    """The values in a storage, for a sweep: those whose names the database does not have are deleted."""

    marker = base64.b64encode(_MARK).decode()
    """Every stored text that names a value has this in it."""

    def __init__(self, store: DeletingBlobStore) -> None:
        self._store = store

    def claim(self, database: str) -> None:
        """Note that the storage belongs to a database. `PayloadError` if it belongs to another one."""
        names = [name for name, _ in self._store.list() if name.startswith(_OWNER)]
        if not names:
            self._store.put(f"{_OWNER}{secrets.token_hex(_OWN // 2)}", database.encode())
        elif (found := self._store.get(min(names)).decode()) != database:
            raise PayloadError(f"the storage belongs to the database {found}, and this is {database}")

    def stored_before(self, moment: datetime) -> set[str]:
        """The names of values that were stored before a time."""
        return {name for name, stored in self._store.list() if stored < moment and not name.startswith(_OWNER)}

    @staticmethod
    def named_in(text: str) -> Iterator[str]:
        """The names in a stored text."""
        for found in _NAMED.findall(text):
            yield base64.b64decode(found)[len(_MARK) :].decode()

    def delete(self, name: str) -> None:
        self._store.delete(name)


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

    def list(self) -> Iterator[tuple[str, datetime]]:
        """All files, each with the time it was written."""
        for path in self._folder.glob("*/*"):
            if not path.name.startswith("."):
                with contextlib.suppress(FileNotFoundError):
                    yield path.name, datetime.fromtimestamp(path.stat().st_mtime, UTC)

    def delete(self, name: str) -> None:
        """Delete a file."""
        self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        if not name.isalnum():
            raise PayloadError(f"{name!r} is not the name of a stored value")
        return self._folder / name[:2] / name
