"""The codecs by themselves: what they encode they decode, also after another one was added or a key replaced."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest

from mainspring import App
from mainspring.errors import InvalidInput, PayloadError
from mainspring.payloads import Chain, Compression, Encryption, FileStore, Offload

if TYPE_CHECKING:
    from pathlib import Path

    from mainspring.payloads import PayloadCodec

VALUES = [b"", b"null", b'{"order": 7}', b"x" * 100_000, b"\x00e1\x00z1\x00o1", bytes(range(256)) * 9]


@pytest.fixture
def codecs(tmp_path: Path) -> dict[str, PayloadCodec]:
    store = FileStore(tmp_path / "blobs")
    found: dict[str, PayloadCodec] = {
        "encryption": Encryption(Encryption.new_key()),
        "compression": Compression(),
        "offload": Offload(100, store),
    }
    return {**found, "chain": Chain(Compression(), Encryption(Encryption.new_key()), Offload(100, store))}


@pytest.mark.parametrize("name", ["encryption", "compression", "offload", "chain"])
def test_what_is_encoded_is_decoded(codecs: dict[str, PayloadCodec], name: str) -> None:
    for value in VALUES:
        assert codecs[name].decode(codecs[name].encode(value)) == value


def test_encrypted_values_show_nothing_and_are_never_alike() -> None:
    codec = Encryption(Encryption.new_key())
    one, other = codec.encode(b"the canary"), codec.encode(b"the canary")
    assert b"canary" not in one
    assert one != other


def test_a_key_can_be_replaced() -> None:
    old, new = Encryption.new_key(), Encryption.new_key()
    stored = Encryption(old).encode(b"before")
    both = Encryption(new, previous=[old])
    assert both.decode(stored) == b"before"
    assert Encryption(new).decode(both.encode(b"after")) == b"after"
    with pytest.raises(PayloadError, match="another key"):
        Encryption(new).decode(stored)


def test_a_value_that_was_changed_is_refused() -> None:
    codec = Encryption(Encryption.new_key())
    stored = bytearray(codec.encode(b"pay 10"))
    stored[-1] ^= 1
    with pytest.raises(PayloadError, match="changed"):
        codec.decode(bytes(stored))


def test_a_codec_can_be_added_to_a_chain_later(tmp_path: Path) -> None:
    encryption = Encryption(Encryption.new_key())
    stored = encryption.encode(b"x" * 1_000)
    grown = Chain(Compression(), encryption, Offload(10, FileStore(tmp_path)))
    assert grown.decode(stored) == b"x" * 1_000
    assert len(Chain(Compression(), encryption).encode(b"x" * 1_000)) < 200


def test_large_values_are_files_and_small_ones_are_not(tmp_path: Path) -> None:
    codec = Offload(100, FileStore(tmp_path))
    assert codec.encode(b"small") == b"small"
    stored = codec.encode(b"large" * 100)
    assert codec.decode(stored) == b"large" * 100
    (file,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert file.read_bytes() == b"large" * 100
    file.write_bytes(b"other")
    with pytest.raises(PayloadError, match="changed"):
        codec.decode(stored)


@pytest.mark.parametrize("key", [b"short", "short", base64.b64encode(b"x" * 16), 7])
def test_a_key_that_is_none_is_an_error_at_once(key: str | bytes) -> None:
    with pytest.raises(InvalidInput, match=r"new_key\(\)"):
        Encryption(key)


def test_what_is_no_codec_is_an_error_at_once() -> None:
    with pytest.raises(InvalidInput, match="encode and decode"):
        App("sqlite://", payloads=Encryption.new_key())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidInput, match="encode and decode"):
        Chain()
    with pytest.raises(InvalidInput, match="list of keys"):
        Encryption(Encryption.new_key(), previous=Encryption.new_key())
