"""A codec in an app: what is older stays readable, what fails says so, and every verb does what it does without."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, Client, State, run
from mainspring.errors import PayloadError, RemoteError
from mainspring.payloads import Chain, Compression, Encryption, FileStore, Offload
from mainspring.testing import world

if TYPE_CHECKING:
    from pathlib import Path

    from mainspring.payloads import PayloadCodec

KEY = Encryption.new_key()


def shop(url: str, payloads: PayloadCodec | None) -> tuple[App, Any, Any, Any]:
    app = App(url, payloads=payloads, version="1")

    @app.step
    async def double(word: str) -> str:
        return word * 2

    @app.workflow
    async def twice(word: str) -> str:
        return await double(word)

    @app.workflow
    async def later(word: str) -> str:
        return await double(word) + str(await run.receive("go"))

    @app.workflow
    async def fails(word: str) -> str:
        raise LookupError(word)

    return app, twice, later, fails


class Faulty:
    """A codec that fails while it is told to."""

    def __init__(self, kind: type[BaseException] = RuntimeError) -> None:
        self.encoding = self.decoding = True
        self.kind = kind

    def encode(self, data: bytes) -> bytes:
        if not self.encoding and b"secret" in data:
            raise self.kind(f"cannot encode {data!r}")
        return data[::-1]

    def decode(self, data: bytes) -> bytes:
        if not self.decoding:
            raise self.kind("cannot decode")
        return data[::-1]


each_kind = pytest.mark.parametrize("kind", [RuntimeError, asyncio.CancelledError, SystemExit])
"""A codec that awaits a key service may be cancelled. It is called on threads that work for all runs."""


async def test_what_was_written_before_there_was_a_codec_stays_readable(store_url: str) -> None:
    app, twice, later, fails = shop(store_url, None)
    async with world(app, url=store_url) as w:
        assert await twice.options(id="old")("ab") == "abab"
        waiting = await later.options(id="waits").start("ab")
        with pytest.raises(LookupError):
            await fails.options(id="failed")("ab")
        await w.drain()
        assert (await waiting.describe()).state is State.WAITING
    app, twice, later, fails = shop(store_url, Encryption(KEY))
    async with app:
        assert await app.handle("old").result() == "abab"
        await app.send("waits", "go", "!")
        assert await app.handle("waits").result() == "abab!"
        with pytest.raises(LookupError, match="ab"):
            await app.handle("failed").result()
        assert await twice.options(id="new")("cd") == "cdcd"
    replaced = Encryption(Encryption.new_key(), previous=[KEY])
    with Client(store_url, payloads=replaced) as client:
        assert await client.handle("new").result() == "cdcd"
        assert (await client.handle("new").describe()).input == {"word": "cd"}


async def test_a_client_without_the_codec_says_what_it_cannot_read(store_url: str) -> None:
    app, twice, _, fails = shop(store_url, Encryption(KEY))
    async with app:
        await twice.options(id="one")("ab")
        with pytest.raises(LookupError):
            await fails.options(id="failed")("ab")
    with Client(store_url) as client:
        with pytest.raises(PayloadError, match=r"result of run 'one'.*payloads="):
            await client.handle("one").result()
        with pytest.raises(RemoteError, match="encrypted"):
            await client.handle("failed").result()
        await client.options(id="plain").start("twice", "ab")
    async with app:
        assert await app.handle("plain").result() == "abab"


async def test_a_worker_without_the_codec_says_what_it_cannot_read(store_url: str) -> None:
    app, twice, _, _ = shop(store_url, Encryption(KEY))
    await twice.options(id="one").start("ab")
    app.close()
    forgetful, _, _, _ = shop(store_url, None)
    async with forgetful:
        with pytest.raises(PayloadError, match=r"input of 'twice' is encrypted.*payloads="):
            await forgetful.handle("one").result(timeout=20)


@each_kind
async def test_a_run_that_cannot_be_decoded_fails_alone_and_says_why(store_url: str, kind: type[BaseException]) -> None:
    codec = Faulty(kind)
    app, twice, _, _ = shop(store_url, codec)
    await twice.options(id="unreadable").start("ab")
    codec.decoding = False
    async with app:
        with pytest.raises(PayloadError, match=f"input of run unreadable cannot be decoded: {kind.__name__}"):
            await app.handle("unreadable").result(timeout=20)
        codec.decoding = True
        assert await twice("cd") == "cdcd"
        assert await app.runs.retry("unreadable") == {"unreadable": True}
        assert await app.handle("unreadable").result(timeout=20) == "abab"


@each_kind
async def test_a_value_that_cannot_be_encoded_is_the_error_of_its_step(
    store_url: str, kind: type[BaseException]
) -> None:
    codec = Faulty(kind)
    app, twice, _, _ = shop(store_url, codec)

    @app.step
    async def secret() -> str:
        return "secret"

    @app.workflow
    async def keeps(what: str) -> str:
        return what + await secret()

    codec.encoding = False
    async with app:
        with pytest.raises(PayloadError, match=f"input of run refused cannot be encoded: {kind.__name__}"):
            await twice.options(id="refused").start("secret")
        assert list(await app.runs.list(id_prefix="refused")) == []
        with pytest.raises(Exception, match=f"cannot be encoded: {kind.__name__}") as caught:
            await keeps.options(id="run-of-keeps")("x")
        assert "run-of-keeps" in str(caught.value)
        assert await twice("cd") == "cdcd"


async def test_verbs_of_operators_work_on_encoded_runs(store_url: str, tmp_path: Path) -> None:
    codec = Chain(Compression(), Encryption(KEY), Offload(50, FileStore(tmp_path / "blobs")))
    app, twice, _, fails = shop(store_url, codec)
    async with app:
        assert await twice.options(id="one")("ab" * 100) == "abab" * 100
        forked = await app.runs.fork("one")
        assert await forked.result(timeout=20) == "abab" * 100
        with pytest.raises(LookupError):
            await fails.options(id="failed")("ab")
        assert await app.runs.complete("failed", result="done", reason="by hand") == {"failed": True}
        assert await app.handle("failed").result() == "done"
        lines = await app.runs.export("one")
        assert "abab" not in "".join(lines)
        await app.runs.delete("one")
        await app.runs.load(lines)
        assert await app.handle("one").result() == "abab" * 100
