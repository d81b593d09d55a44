"""With `Offload(…, delete=True)`, values outside of the database go when nothing in it names them any more, and never before."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, Client, Settings, run
from mainspring.errors import InvalidInput, PayloadError
from mainspring.operations.retention import Pruning
from mainspring.payloads import Chain, Compression, Encryption, FileStore, Offload
from mainspring.payloads.offload import OffloadedValues
from mainspring.testing import world
from tests.payloads import test_canary

if TYPE_CHECKING:
    from pathlib import Path

BIG = "x" * 1_000


def names(store: FileStore) -> set[str]:
    return {name for name, _ in store.list() if not name.startswith("owner")}


def age(folder: Path, seconds: float, which: str = "*/*") -> None:
    """Make files look as old as that."""
    for path in folder.glob(which):
        then = time.time() - seconds
        os.utime(path, (then, then))


def shop(codec: Any) -> tuple[App, Any]:
    app = App(settings=Settings(retention="1h"), payloads=codec)

    @app.step
    async def echo(word: str) -> str:
        return word

    @app.workflow
    async def main(word: str) -> str:
        await run.set_event("event", word)
        await run.write_stream("stream", word)
        return await echo(word)

    return app, main


def swept(app: App) -> int:
    runtime = app._runtime
    assert runtime.offloaded is not None
    return Pruning(runtime.connection().store, runtime.clock).sweep_values(runtime.offloaded)


async def test_values_of_deleted_runs_are_deleted_and_those_of_others_stay(store_url: str, tmp_path: Path) -> None:
    store = FileStore(tmp_path / "blobs")
    app, main = shop(Chain(Compression(), Encryption(Encryption.new_key()), Offload(10, store, delete=True)))
    async with world(app, url=store_url, at=datetime.now(UTC) - timedelta(days=2)) as w:
        assert app._worker is not None
        app._worker._sweeper.sweep_values = None  # its own sweep could come first, and be counted there
        await main.options(id="old")("y" + BIG)
        of_old = names(store)
        assert len(of_old) >= 4  # the input, the event, the stream, the step and the result
        await w.advance("2d")
        assert not await _there(app, "old")
        kept = await main.options(id="kept")("z" + BIG)
        of_kept = names(store) - of_old
        store.put("a" * 96, b"its commit failed")
        age(tmp_path / "blobs", 3 * 86_400)
        store.put("b" * 96, b"its transaction is still open")
        age(tmp_path / "blobs", 43_200, f"bb/{'b' * 96}")  # by its whole name: one in 256 names begins with "bb"
        assert await asyncio.to_thread(swept, app) == len(of_old) + 1
        assert names(store) == of_kept | {"b" * 96}
        assert await main.handle("kept").result() == kept


async def _there(app: App, run_id: str) -> bool:
    return any(found.id == run_id for found in await app.runs.list())


async def test_a_fork_keeps_the_values_of_the_run_that_it_was_forked_from(store_url: str, tmp_path: Path) -> None:
    store = FileStore(tmp_path / "blobs")
    app, main = shop(Offload(100, store, delete=True))
    async with world(app, url=store_url, at=datetime.now(UTC)):
        await main.options(id="first")(BIG)
        (made,) = (await app.runs.fork("first", id="second"),)
        assert await made.result() == BIG
        await app.runs.delete("first")
        age(tmp_path / "blobs", 2 * 86_400)
        await asyncio.to_thread(swept, app)
        assert (await app.handle("second").describe()).input == {"word": BIG}
        assert await app.handle("second").result() == BIG
        assert [step.output for step in await app.runs.steps("second") if step.kind == "step"] == [BIG]


async def test_workers_sweep_once_a_day_by_themselves(store_url: str, tmp_path: Path) -> None:
    store = FileStore(tmp_path / "blobs")
    app, main = shop(Offload(100, store, delete=True))
    async with world(app, url=store_url, at=datetime.now(UTC)) as w:
        await main.options(id="old")(BIG)
        age(tmp_path / "blobs", 2 * 86_400)
        await w.advance("3h")
        sweeper = app._worker._sweeper  # type: ignore[union-attr]
        await sweeper.next_round()
        await sweeper.next_round()
        assert names(store) == set()
        store.put("a" * 96, b"its commit failed")
        age(tmp_path / "blobs", 2 * 86_400)
        await sweeper.next_round()
        assert names(store) == {"a" * 96}  # swept today already
        await w.advance("25h")
        await sweeper.next_round()
        assert names(store) == set()


def test_a_storage_belongs_to_one_database(tmp_path: Path) -> None:
    values = OffloadedValues(FileStore(tmp_path))
    values.claim("first")
    values.claim("first")
    with pytest.raises(PayloadError, match="belongs to the database first"):
        values.claim("second")


def test_without_being_asked_nothing_is_deleted(tmp_path: Path) -> None:
    class Plain:
        def put(self, name: str, data: bytes) -> None: ...
        def get(self, name: str) -> bytes:
            return name.encode()

    assert Offload(100, FileStore(tmp_path)).offloaded is None
    assert Chain(Compression(), Offload(100, FileStore(tmp_path))).offloaded is None
    assert Chain(Compression()).offloaded is None
    with pytest.raises(InvalidInput, match="list and delete"):
        Offload(100, Plain(), delete=True)


def test_offload_is_the_last_of_a_chain(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="Offload is the last"):
        Chain(Offload(100, FileStore(tmp_path)), Compression())


def test_names_that_are_a_hash_alone_are_found() -> None:
    """As they were stored at first."""
    name = hashlib.sha256(b"data").hexdigest()
    text = '{"$payload":"' + base64.b64encode(b"\x00o1" + name.encode()).decode() + '"}'
    assert list(OffloadedValues.named_in(text)) == [name]


async def test_a_sweep_looks_wherever_values_are_stored(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything that the app of the canary stores is outside of the database, and each name is in a column that is looked at."""
    store = FileStore(tmp_path / "blobs")

    def codec(_key: str) -> Offload:
        return Offload(0, store, delete=True)

    monkeypatch.setattr(test_canary, "Encryption", codec)
    app, functions = test_canary.shop(f"sqlite:///{tmp_path / 'other.db'}")
    async with world(app, url=store_url, at=datetime.now(UTC)) as w:
        await test_canary.exercise(app, functions, w)
    with Client(store_url) as client:
        texts = list(client._runtime.connection().store.retention.texts_with(OffloadedValues.marker))
    looked_at = {name for text in texts for name in OffloadedValues.named_in(text)}
    everywhere = set(OffloadedValues.named_in(test_canary.dump(store_url)))
    assert len(everywhere) > 30
    assert looked_at == everywhere
