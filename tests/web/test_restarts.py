"""A page that is open while the database goes away and comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx

from mainspring import App, Client
from mainspring.web import dashboard, live
from mainspring.web.backend import Backend
from mainspring.web.redaction import Redactor

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.support.postgres import PostgresServer


async def test_an_open_page_follows_a_file_that_is_removed_put_back_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "SHORTEST_PAUSE", 0.05)
    monkeypatch.setattr(live, "COST", 0)
    url, file = f"sqlite:///{tmp_path / 'shop.db'}", tmp_path / "shop.db"
    await _fill(url, "first")
    async with Client(url) as client:
        backend = Backend(client, Redactor(None))

        async def look() -> object:
            return await backend.call(lambda scene: scene.operations.runs.summaries().runs)

        pages: Any = dashboard(client)
        transport = httpx.ASGITransport(pages, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as asking:
            events = aiter(live.Streams().open(backend, {"/": look}).body_iterator)

            async def until(name: bytes) -> None:
                while b"event: " + name not in bytes(await anext(events)):  # type: ignore[arg-type]
                    pass

            await until(b"fresh")
            file.rename(tmp_path / "away.db")
            await until(b"trouble")
            page = await asking.get("/runs")
            assert (page.status_code, "was removed or replaced" in page.text) == (503, True)
            refused = await asking.post("/api/runs/delete", json={"ids": ["first"]})
            assert refused.status_code == 503
            assert (await asking.get("/readyz")).status_code == 503
            (tmp_path / "away.db").rename(file)
            await until(b"changed")
            assert (await asking.get("/api/runs/first")).status_code == 200

            file.unlink()
            for beside in ("wal", "shm", "turn"):
                (tmp_path / f"shop.db-{beside}").unlink(missing_ok=True)
            await until(b"trouble")
            await _fill(url, "second")
            await until(b"changed")
            assert [run["id"] for run in (await asking.get("/api/runs")).json()["runs"]] == ["second"]
            assert (await asking.post("/api/runs/delete", json={"ids": ["second"]})).json()["result"] == {
                "second": True
            }


async def test_a_run_that_is_deleted_while_its_page_is_open_is_no_trouble(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "SHORTEST_PAUSE", 0.05)
    monkeypatch.setattr(live, "COST", 0)
    await _fill(store_url, "first")
    async with Client(store_url) as client:
        backend = Backend(client, Redactor(None))

        async def look() -> object:
            return await backend.call(lambda scene: scene.operations.runs.get("first"))

        events = aiter(live.Streams().open(backend, {"/": look}).body_iterator)
        await anext(events)
        assert b"event: fresh" in bytes(await anext(events))  # type: ignore[arg-type]
        await client.runs.delete("first")
        assert b"event: changed" in bytes(await anext(events))  # type: ignore[arg-type]
        await _fill(store_url, "first")
        assert b"event: changed" in bytes(await anext(events))  # type: ignore[arg-type]


async def _fill(url: str, run_id: str) -> None:
    app = App(url)

    @app.workflow
    async def greet() -> str:
        return "hello"

    async with app:
        await greet.options(id=run_id)()


async def test_an_open_page_says_that_the_database_is_away_and_comes_back(
    own_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "SHORTEST_PAUSE", 0.05)
    monkeypatch.setattr(live, "COST", 0)
    async with Client(own_postgres.create_database()) as client:
        backend = Backend(client, Redactor(None))

        async def look() -> object:
            return await backend.call(lambda scene: scene.operations.workers.list())

        pages: Any = dashboard(client)
        transport = httpx.ASGITransport(pages, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as asking:
            events = aiter(live.Streams().open(backend, {"/": look}).body_iterator)
            await anext(events)
            assert b"event: fresh" in bytes(await anext(events))  # type: ignore[arg-type]
            own_postgres.stop()
            assert b"event: trouble" in bytes(await anext(events))  # type: ignore[arg-type]
            page = await asking.get("/runs")
            assert (page.status_code, "The database does not answer" in page.text) == (503, True)
            assert (await asking.get("/api/runs")).status_code == 503
            assert (await asking.get("/readyz")).status_code == 503
            assert (await asking.get("/healthz")).status_code == 200
            own_postgres.start()
            while b"event: changed" not in bytes(await anext(events)):  # type: ignore[arg-type]
                pass
            assert (await asking.get("/runs")).status_code == 200
            assert (await asking.get("/readyz")).status_code == 200
