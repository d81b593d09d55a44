"""The walks in docs/design.md: each call is made, and the way leads through the files that the page names, and through few others."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import sys
import threading
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from click.testing import CliRunner

import mainspring
from mainspring import App, Client, Settings, run
from mainspring.cli.main import main
from mainspring.web import dashboard

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

ROOT = f"{Path(mainspring.__file__ or '').parent}/"
PAGE = (Path(__file__).parents[2] / "docs" / "design.md").read_text("utf-8")
CALL, JOINED, CANCEL = PAGE.partition("### Walks")[2].partition("\n## ")[0].split("\n- ")[1:]
ALL_FILES = {"call": 58, "joined": 30}
"""Of all files that are entered on the way, also those that the page leaves out, there may be so many."""


def files_of(walk: str) -> list[str]:
    named = re.findall(r"`([a-z_/]+\.py)`", walk)
    stated = re.search(r"(\d+) files", walk)
    assert stated is not None
    assert len(set(named)) == len(named) == int(stated[1])
    packages = [file.partition("/")[0] for file in named]
    if (changes := re.search(r"(\d+) changes of package", walk)) is not None:
        assert sum(one != other for one, other in pairwise(packages)) == int(changes[1])
    return named


class Profile:
    """The files of the library that are entered, on threads that start while it is installed and on this one."""

    def __init__(self) -> None:
        self.entered: set[str] = set()
        self.on = False

    def __call__(self, frame: Any, event: str, _: Any) -> None:
        if self.on and event == "call" and frame.f_code.co_filename.startswith(ROOT):
            self.entered.add(frame.f_code.co_filename.removeprefix(ROOT))

    @contextmanager
    def recorded(self) -> Generator[set[str]]:
        self.entered, self.on = set(), True
        try:
            yield self.entered
        finally:
            self.on = False


@pytest.fixture
def profile() -> Generator[Profile]:
    made = Profile()
    before = sys.getprofile()
    threading.setprofile(made)
    sys.setprofile(made)
    yield made
    sys.setprofile(before)
    threading.setprofile(None)


def test_a_call_passes_through_the_files_of_its_walk(profile: Profile, sqlite_url: str) -> None:
    app = App(sqlite_url)

    @app.step
    async def charge(order: str) -> str:
        return order

    @app.workflow
    async def checkout(order: str) -> str:
        return await charge(order)

    async def entered() -> set[str]:
        async with app:
            await checkout("first")  # imports, statements and connections that later calls do not need
            with profile.recorded() as files:
                await checkout("second")
            with profile.recorded() as again:
                await checkout("third")
            return files & again  # without the services that worked during one of them by chance

    found = asyncio.run(entered())
    assert [file for file in files_of(CALL) if file not in found] == []
    assert len(found) <= ALL_FILES["call"]


def test_a_verb_in_a_joined_transaction_passes_through_the_files_of_its_walk(profile: Profile, sqlite_url: str) -> None:
    app = App(sqlite_url, settings=Settings(work=False))

    @app.workflow
    async def waits() -> None:
        await run.receive("news")

    with app:
        waits.options(id="a").start.sync()
        own = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
        own.execute("BEGIN IMMEDIATE")
        with profile.recorded() as found, app.joined(own):
            app.send.sync("a", "news", "hello")
        own.execute("COMMIT")
        own.close()
    assert [file for file in files_of(JOINED) if file not in found] == []
    assert len(found) <= ALL_FILES["joined"]


def test_every_surface_cancels_through_the_same_files(profile: Profile, sqlite_url: str) -> None:
    app = App(sqlite_url, settings=Settings(work=False))

    @app.workflow
    async def waits() -> None:
        await run.receive("news")

    async def by_page(run_id: str) -> None:
        transport = httpx.ASGITransport(dashboard(app), client=("127.0.0.1", 1234))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as pages:
            assert (await pages.post("/api/runs/cancel", json={"ids": [run_id]})).status_code == 200

    def by_client(run_id: str) -> None:
        with Client(sqlite_url) as client:
            assert client.runs.cancel.sync(run_id)

    ways: dict[str, Callable[[str], Any]] = {
        "app": app.runs.cancel.sync,
        "client": by_client,
        "command": lambda run_id: CliRunner().invoke(main, ["runs", "cancel", run_id, "--url", sqlite_url]),
        "page": lambda run_id: asyncio.run(by_page(run_id)),
    }
    with app:
        for name, cancel in ways.items():
            handle = waits.options(id=name).start.sync()
            with profile.recorded() as found:
                cancel(name)
            assert handle.describe.sync().state == "cancelled"
            assert [file for file in files_of(CANCEL) if file not in found] == [], name
