"""Encrypt values with AES-256-GCM, by the library `cryptography`."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from typing import TYPE_CHECKING, Any

from mainspring.errors import InvalidInput, MissingExtra, PayloadError

if TYPE_CHECKING:
    from collections.abc import Sequence

_MARK = b"\x00e1"
_KEY_BYTES = 32
_NAME_BYTES = 4
_NONCE_BYTES = 12


class Encryption:
    """Encrypts values with a key. Values that were encrypted with a key in `previous` stay readable, so a key can be replaced.

    A key is 32 bytes, or their base64. `Encryption.new_key()` makes one. Equal values are encrypted differently, and a
    value that was changed in the database is refused. A value that is not encrypted is read as it is, since it may be
    older than the key. Raises `InvalidInput` for a wrong key, and `MissingExtra` if `cryptography` is not installed.
    """

    def __init__(self, key: str | bytes, previous: Sequence[str | bytes] = ()) -> None:
        if isinstance(previous, (str, bytes)):
            raise InvalidInput("previous= is a list of keys: Encryption(new, previous=[old])")
        keys = [_key(each) for each in (key, *previous)]
        self._ciphers = {_name(each): _cipher(each) for each in reversed(keys)}
        self._name = _name(keys[0])

    @staticmethod
    def new_key() -> str:
        """Return a new random key, as text for a vault or an environment variable."""
        return base64.urlsafe_b64encode(os.urandom(_KEY_BYTES)).decode()

    def encode(self, data: bytes) -> bytes:
        """Return the encrypted value."""
        nonce = os.urandom(_NONCE_BYTES)
        head = _MARK + self._name
        sealed: bytes = self._ciphers[self._name].encrypt(nonce, data, head)
        return head + nonce + sealed

    def decode(self, data: bytes) -> bytes:
        """Return the decrypted value. Raises `PayloadError` if its key was not given, or if the stored value was changed."""
        if not data.startswith(_MARK):
            return data
        start = len(_MARK) + _NAME_BYTES
        head, nonce, sealed = data[:start], data[start : start + _NONCE_BYTES], data[start + _NONCE_BYTES :]
        cipher = self._ciphers.get(head[len(_MARK) :])
        if cipher is None:
            raise PayloadError("it was encrypted with another key; give that one in Encryption(key, previous=[…])")
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415

        try:
            value: bytes = cipher.decrypt(nonce, sealed, head)
        except InvalidTag:
            raise PayloadError("what is stored was changed since it was encrypted") from None
        return value

    def __repr__(self) -> str:
        return f"<Encryption with {len(self._ciphers)} keys>"


def _key(given: str | bytes) -> bytes:
    if isinstance(given, bytes) and len(given) == _KEY_BYTES:
        return given
    try:
        found = base64.urlsafe_b64decode(given)
    except (ValueError, TypeError, binascii.Error):
        found = b""
    if len(found) != _KEY_BYTES:
        raise InvalidInput("a key is 32 bytes, or their base64; Encryption.new_key() makes one")
    return found


def _name(key: bytes) -> bytes:
    """Return an id of a key for stored values, which reveals nothing of the key."""
    return hashlib.sha256(b"mainspring key" + key).digest()[:_NAME_BYTES]


def _cipher(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415  (only where it is used)
    except ImportError as error:
        raise MissingExtra("encryption needs cryptography: pip install 'mainspring[encryption]'") from error
    return AESGCM(key)
