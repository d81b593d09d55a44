"""`db empty`, `versions set-newest`, `runs fork --past-last`, `runs resume --to-queue`, `runs list --user`."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from mainspring import App, Settings
from mainspring.operations.connect import connect

if TYPE_CHECKING:
    from tests.cli.conftest import Mainspring


@pytest.fixture
async def url(store_url: str) -> str:
    """A database with runs of two users, and one version."""
    app = App(store_url, version="v1")

    @app.workflow
    async def greet(name: str) -> str:
        return f"hello {name}"

    async with app:
        for name in ("ada", "grace"):
            await (await greet.options(id=name, user=name).start(name)).result(timeout=20)
        await greet.options(id="later", after="1h").start("later")
        await app.runs.cancel("later")
    return store_url


def test_lists_by_user(mainspring: Mainspring, url: str) -> None:
    assert mainspring("runs", "list", "--user", "ada", "-o", "ids", "--url", url).stdout.split() == ["ada"]


def test_forks_past_the_last_step(mainspring: Mainspring, url: str) -> None:
    done = mainspring("runs", "fork", "ada", "--past-last", "--id", "again", "--url", url)
    assert (done.exit_code, done.stdout.split()) == (0, ["again"])
    assert mainspring("runs", "fork", "ada", "--child", "x", "--url", url).exit_code == 2
    assert mainspring("runs", "fork", "ada", "--child", "x=nobody", "--url", url).exit_code == 4


def test_resumes_into_another_queue(mainspring: Mainspring, url: str) -> None:
    done = mainspring("runs", "resume", "later", "--to-queue", "slow", "--url", url)
    assert done.exit_code == 0, done.stderr
    shown = json.loads(mainspring("runs", "list", "--queue", "slow", "-o", "json", "--url", url).stdout)
    assert "later" in json.dumps(shown)


def test_names_the_newest_version(mainspring: Mainspring, url: str) -> None:
    done = mainspring("versions", "set-newest", "v1", "--reason", "rolled back", "--url", url)
    assert done.exit_code == 0, done.stderr
    assert "v1 is the newest version" in done.stderr
    assert mainspring("versions", "set-newest", "v9", "--url", url).exit_code == 4


def test_empties_the_database_when_no_worker_lives(mainspring: Mainspring, url: str) -> None:
    assert mainspring("db", "empty", "--url", url, stdin="n\n").exit_code == 1
    done = mainspring("db", "empty", "--yes", "--reason", "a new start", "--url", url)
    assert done.exit_code == 0, done.stderr
    assert "3\truns" in done.stdout
    assert mainspring("runs", "list", "-o", "ids", "--url", url).stdout == ""
    with connect(url, Settings()) as operations:
        assert [each.action for each in operations.audit.list().entries] == ["db.empty"]


async def test_does_not_empty_a_database_with_a_worker(mainspring: Mainspring, url: str) -> None:
    async with App(url, version="v1"):
        refused = await asyncio.to_thread(mainspring, "db", "empty", "--yes", "--url", url)
    assert refused.exit_code == 1
    assert "workers live" in refused.stderr
    assert "ada" in mainspring("runs", "list", "-o", "ids", "--url", url).stdout
