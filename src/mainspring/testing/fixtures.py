"""pytest fixtures: write `pytest_plugins = ["mainspring.testing.fixtures"]` in the topmost conftest.py.

Fixtures are found by name, so a project can override them: with a `mainspring_url` of a PostgreSQL database, every test that uses
`world` runs there.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from mainspring.testing.clock import VirtualClock
from mainspring.testing.crash import crash
from mainspring.testing.world import world as _world

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime

    from mainspring.app.app import App
    from mainspring.testing.world import World


class MakeWorld(Protocol):
    """`async with world(app, at=…) as w:`, on the database of the fixture `mainspring_url`."""

    def __call__(self, app: App, *, at: datetime | str = ...) -> AbstractAsyncContextManager[World]: ...


class EveryCrash(Protocol):
    """`await every_crash(app, work)`: returns how many crashes the result of the work has survived."""

    async def __call__(self, app: App, work: Callable[[], Awaitable[Any]]) -> int: ...


@pytest.fixture
def mainspring_url() -> str:
    """The database URL of the worlds of a test: an empty in-memory database. Override it in your project."""
    return "sqlite://"


@pytest.fixture
def virtual_clock() -> VirtualClock:
    """A clock that the test advances."""
    return VirtualClock()


@pytest.fixture
def world(mainspring_url: str) -> MakeWorld:
    """Enter an app as a worker, on a clock that the test advances."""
    return functools.partial(_world, url=mainspring_url)


@pytest.fixture
def every_crash() -> EveryCrash:
    """Do some work without faults, then with a crash before and after every call to the store. Each time the result must be the same.

    The work starts its runs with ids of its own, as for `crash`. Each attempt has an empty in-memory database.
    """
    return _every_crash


async def _every_crash(app: App, work: Callable[[], Awaitable[Any]]) -> int:
    undisturbed = await crash(app, work, at=None)
    survived = 0
    for when in ("before", "after"):
        at, crashed = 0, True
        while crashed:
            at += 1
            outcome = await crash(app, work, at=at, when=when)
            crashed = outcome.crashed
            if outcome.result != undisturbed.result:
                pytest.fail(
                    f"a crash {when} call {at} to the store changed the result to {outcome.result!r};"
                    f" undisturbed it is {undisturbed.result!r}"
                )
            survived += crashed
    return survived
