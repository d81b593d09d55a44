"""Databases for the whole suite: each test that asks gets a fresh one, on SQLite and on PostgreSQL.

Every xdist worker starts a PostgreSQL of its own when its first test asks for one: no lock between workers, and
nothing that a test does to its server can be felt in another worker.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import os
import signal
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import pytest
from hypothesis import settings

from mainspring.store.open import open_store
from tests.store.build import StoreSettings
from tests.support.postgres import PostgresServer
from tests.support.samples import left_out

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterator
    from pathlib import Path

# Examples are new in every run of a developer's; in CI they are the same, so that a red run is this change's doing.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


def _pass_over(*_: object) -> None:
    """In the background of a shell, or below nohup, these signals are ignored, and every process that a test starts would ignore
    them as well: what is handled here is not handed on.
    """


for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, _pass_over)


HANGING = 240.0
"""Seconds after which a test on an event loop is taken for one that hangs, and fails with what it was waiting for.

What cannot be cancelled, and what hangs elsewhere, ends later and less gently: `faulthandler_timeout` in pyproject.toml.
"""


_WHOLE = ("tests/web/test_browser.py", "tests/packaging/test_wheel.py")
"""Files whose tests share something that is expensive to make, a shop at work or a wheel: one process executes all of them."""


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each process the next test when it has two left, and the long files first: nobody waits for the last one.

    What `--dist` offers either divides these files between processes (`load`, `worksteal`), or keeps every file whole (`loadfile`), or renames
    tests so that `--last-failed` does not find them (`loadgroup`).
    """
    # Where tests run in one process, it is not loaded.
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415  # pyright: ignore[reportMissingTypeStubs]

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # without types of its own
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return file if file in _WHOLE else nodeid

    return Scheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep what the collection leaves, nearly a million objects that stay until the end, away from the garbage collector.

    Otherwise every full collection would look at all of them again, for a third of a second.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if passed_over := left_out(items):
        config.hook.pytest_deselected(items=passed_over)
        items[:] = [item for item in items if item not in passed_over]
    for item in items:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            item.obj = _bounded(item.obj)


def _bounded(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def bounded(*args: Any, **kwargs: Any) -> None:
        async with asyncio.timeout(HANGING):
            await test(*args, **kwargs)

    return bounded


_SHORT_LIVED = {"autovacuum": "off", "io_method": "sync"}
"""A database of a test lives for a second, in memory: nothing is worth a process beside it. What wants statistics says ANALYZE."""


@pytest.fixture(scope="session")
def shared_postgres() -> Iterator[PostgresServer]:
    """The server behind `postgres_url`. A test that wants to stop one asks for `own_postgres`."""
    with PostgresServer(fsync=False, settings=_SHORT_LIVED) as server:
        yield server


@pytest.fixture
def own_postgres(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """A server that this test alone uses, and so may stop, start and disturb.

    Commits reach the disk; `@pytest.mark.parametrize("own_postgres", [{"fsync": False}], indirect=True)` changes that.
    """
    options = cast("dict[str, bool]", getattr(request, "param", {}))
    with PostgresServer(fsync=options.get("fsync", True)) as server:
        yield server


@pytest.fixture(scope="session")
def migrated_postgres(shared_postgres: PostgresServer) -> str:
    """The name of a database that has the library's tables. A copy of it costs half of what making them costs."""
    url = shared_postgres.create_database()
    with closing(open_store(url, StoreSettings())) as store:
        store.open()
    return urlsplit(url).path[1:]


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest, shared_postgres: PostgresServer) -> Iterator[str]:
    """A fresh PostgreSQL database with the library's tables, or without any for a test that is marked `empty_database`."""
    empty = request.node.get_closest_marker("empty_database") is not None
    template = "template0" if empty else cast("str", request.getfixturevalue("migrated_postgres"))
    with shared_postgres.database(template=template) as url:
        yield url


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str:
    """A fresh database, once of each kind: a test that asks for this runs on both."""
    return cast("str", request.getfixturevalue(f"{request.param}_url"))
