"""A FastAPI app of four processes: an order is safe in any of them, a schedule fires once."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from mainspring import App, Settings
from mainspring.errors import InvalidInput
from mainspring.integrations.fastapi import lifespan, mount
from tests.support.processes import PROJECT, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator
    from pathlib import Path

WORKERS = 4


@pytest.fixture
def place(tmp_path: Path, store_url: str) -> Iterator[str]:
    pytest.importorskip("fastapi")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "fastapi_shop:site", "--workers", str(WORKERS), "--port", str(port)]
    command += ["--app-dir", str(PROJECT / "examples"), "--timeout-graceful-shutdown", "1"]
    with (tmp_path / "said").open("wb") as said:
        environment = {**os.environ, "MAINSPRING_URL": store_url}
        server = subprocess.Popen(command, cwd=tmp_path, stdout=said, stderr=said, env=environment)
    try:
        yield f"http://localhost:{port}"
    finally:
        server.terminate()
        server.wait(120)


def _beats(folder: Path) -> list[list[str]]:
    path = folder / "beats.txt"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.processes
def test_four_processes_take_orders_and_a_schedule_fires_once(place: str, tmp_path: Path) -> None:
    def alive() -> bool:
        try:
            return len(httpx.get(f"{place}/ops/api/workers", timeout=60, verify=False).json()["workers"]) == WORKERS
        except (httpx.HTTPError, KeyError):  # not there yet, or the tables are not
            return False

    eventually(alive, "all four are workers", within=180)
    for number in range(8):
        assert httpx.post(f"{place}/orders/order-{number}", timeout=60, verify=False).json() == {
            "run": f"order-{number}"
        }
    for number in range(8):
        answer = httpx.get(f"{place}/orders/order-{number}", timeout=60, verify=False).json()
        assert answer == {"says": f"order-{number} is on its way"}
    eventually(lambda: len(_beats(tmp_path)) >= 5, "the schedule fires", within=120)
    fired = Counter(name for name, _ in _beats(tmp_path))
    assert set(fired.values()) == {1}
    assert "Workers alive" in httpx.get(f"{place}/ops/", timeout=60, verify=False).text


async def test_the_lifespan_enters_the_app_and_ones_own_inside_it(store_url: str) -> None:
    from contextlib import asynccontextmanager  # noqa: PLC0415

    app = App(store_url, settings=Settings(poll=0.1))

    @app.workflow
    async def hello() -> str:
        return "hello"

    @asynccontextmanager
    async def own(site: Any) -> AsyncGenerator[dict[str, Any]]:
        yield {"said": await hello(), "site": site}

    async with lifespan(app, own)("the site") as state:
        assert state == {"said": "hello", "site": "the site"}
    async with lifespan(app)(None) as nothing:
        assert nothing is None
        assert await hello() == "hello"


def test_the_dashboard_is_mounted_under_a_path(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="/ops"):
        mount(None, App(f"sqlite:///{tmp_path / 'x.db'}"), "/")
