"""Tests with virtual time: the project's app as a worker of this process, on the test database, on a clock that the test moves.

    class TrialTests(WorldTestCase):
        def test_a_trial_ends_after_three_weeks(self) -> None:
            self.client.post("/trials/", {"user": "ada"})
            self.world.advance("22d")
            self.assertEqual(Trial.objects.get().state, "over")

The worker has connections of its own, so it sees what is committed: use `WorldTestCase`, or `world()` in a `TransactionTestCase` or in
a test of pytest-django with `transaction=True`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, ClassVar

from django.core.exceptions import ImproperlyConfigured
from django.test import TransactionTestCase

from mainspring.app.coroutines import Portal
from mainspring.integrations.django.compat import Task
from mainspring.integrations.django.conf import in_memory
from mainspring.integrations.django.project import get_app
from mainspring.testing import world as testing_world

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from datetime import datetime, timedelta

    from mainspring.app.functions.functions import AsyncFn, SyncFn
    from mainspring.integrations.django.compat import AnyTask
    from mainspring.integrations.django.project import DjangoApp
    from mainspring.testing.world import Replacement, World

_AT_ONCE = 200


class BlockingWorld:
    """The app under test and its clock, for code that blocks. See `mainspring.testing.world`."""

    def __init__(self, app: DjangoApp, inner: World, portal: Portal) -> None:
        self.app = app
        self._inner = inner
        self._portal = portal

    @property
    def now(self) -> datetime:
        """Return wall-clock time in this world."""
        return self._inner.now

    def advance(self, by: timedelta | float | str) -> None:
        """Let a length of wall-clock time pass. When this returns, everything that became due has happened."""
        self._move(self._inner.advance(by))

    def advance_to(self, when: datetime | str) -> None:
        """Let wall-clock time pass until a moment."""
        self._move(self._inner.advance_to(when))

    def drain(self) -> None:
        """Wait until everything that is due now has happened."""
        self._move(self._inner.drain())

    def _move(self, moving: Coroutine[Any, Any, None]) -> None:
        """Move the clock after the worker has processed what the test committed, and wait until it has processed the effects."""
        self._portal.call(self.app.drain())
        self._portal.call(moving)
        self._portal.call(self.app.drain())

    def replace(
        self, function: AsyncFn[..., Any] | SyncFn[..., Any] | AnyTask, fake: Callable[..., Any]
    ) -> Replacement:
        """Call `fake` instead of a workflow, a step or a Django task, inside the block."""
        return self._inner.replace(self.app.tasks.of(function) if isinstance(function, Task) else function, fake)


@contextlib.contextmanager
def world(*, at: datetime | str = "2026-01-01T00:00:00Z") -> Generator[BlockingWorld]:
    """Enter the project's app as a worker at a chosen time, on the test database without the runs of earlier tests."""
    app = get_app()
    if app.alias is not None and in_memory(app.alias):
        raise ImproperlyConfigured(
            f"the test database {app.alias!r} is in memory, where the worker of this test cannot reach it; name a file: "
            f'DATABASES["{app.alias}"]["TEST"] = {{"NAME": BASE_DIR / "test.sqlite3"}}'
        )
    app.close()
    app.make_tables()
    _empty(app)
    portal, closes = Portal(), app.closes_connections
    app.closes_connections = True
    entered = testing_world(app, at=at, url=app.url)
    try:
        inner = portal.call(entered.__aenter__())
        try:
            yield BlockingWorld(app, inner, portal)
        finally:
            portal.call(entered.__aexit__(None, None, None))
    finally:
        app.closes_connections = closes
        portal.close()
        app.close()


def _empty(app: DjangoApp) -> None:
    """Delete the runs and schedules that earlier tests left."""
    page = app.runs.list.sync(limit=_AT_ONCE)
    runs = list(page.runs)
    while page.next is not None:
        page = app.runs.list.sync(limit=_AT_ONCE, after=page.next)
        runs += page.runs
    if live := [each.id for each in runs if not each.state.ended]:
        app.runs.terminate.sync(*live, reason="the test is over")
    if runs:
        app.runs.delete.sync(*[each.id for each in runs])
    for schedule in app.schedules.list.sync().schedules:
        app.schedules.delete.sync(schedule.id)
    app.close()


class WorldTestCase(TransactionTestCase):
    """A test case with `self.world`, a new world for each test. `at` is its start time."""

    at: ClassVar[datetime | str] = "2026-01-01T00:00:00Z"
    world: BlockingWorld

    def setUp(self) -> None:
        super().setUp()
        self.world = self.enterContext(world(at=self.at))
