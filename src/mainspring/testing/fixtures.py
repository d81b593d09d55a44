"""pytest fixtures: `pytest_plugins = ["mainspring.testing.fixtures"]` in the topmost conftest.py brings them.

They are asked for by name, so a project can put its own in their place: a `mainspring_url` that leads to PostgreSQL, and every test
that uses `world` runs there.
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
    """`await every_crash(app, work)`: how many crashes the outcome of the work has survived."""

    async def __call__(self, app: App, work: Callable[[], Awaitable[Any]]) -> int: ...


@pytest.fixture
def mainspring_url() -> str:
    """Where the worlds of a test are: an empty database in memory, unless a project says otherwise."""
    return "sqlite://"


@pytest.fixture
def virtual_clock() -> VirtualClock:
    """A clock that the test moves."""
    return VirtualClock()


@pytest.fixture
def world(mainspring_url: str) -> MakeWorld:
    """Enters an app as a worker, on a clock that the test moves."""
    return functools.partial(_world, url=mainspring_url)


@pytest.fixture
def every_crash() -> EveryCrash:
    """Does some work undisturbed, then again with a crash before and after every call to the store: each time the result is the same.

    The work starts its runs under ids of its own, as for `crash`. Each time is on an empty database in memory.
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
