"""A page that is open while the database goes away and comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx

from mainspring import Client
from mainspring.web import dashboard, live
from mainspring.web.desk import Desk
from mainspring.web.redaction import Redactor

if TYPE_CHECKING:
    import pytest

    from tests.support.postgres import PostgresServer


async def test_an_open_page_says_that_the_database_is_away_and_comes_back(
    own_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "SHORTEST_PAUSE", 0.05)
    monkeypatch.setattr(live, "COST", 0)
    async with Client(own_postgres.create_database()) as client:
        desk = Desk(client, Redactor(None))

        async def look() -> object:
            return await desk.ask(lambda scene: scene.operations.workers.list())

        pages: Any = dashboard(client)
        transport = httpx.ASGITransport(pages, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as asking:
            events = aiter(live.stream(desk, look).body_iterator)
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
