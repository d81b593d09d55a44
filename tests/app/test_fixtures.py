"""The fixtures that a project gets with `pytest_plugins = ["mainspring.testing.fixtures"]`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mainspring import App, run
from mainspring.testing import fixtures

if TYPE_CHECKING:
    from mainspring.testing.fixtures import EveryCrash, MakeWorld

every_crash, mainspring_url, virtual_clock, world = (
    fixtures.every_crash,
    fixtures.mainspring_url,
    fixtures.virtual_clock,
    fixtures.world,
)


async def test_a_world_is_entered_on_the_database_that_the_project_names(
    request: pytest.FixtureRequest, world: MakeWorld
) -> None:
    assert request.getfixturevalue("mainspring_url") == "sqlite://"
    app = App("sqlite:////nowhere/at/all.db")

    @app.workflow
    async def nap() -> str:
        await run.sleep("1d")
        return "awake"

    async with world(app, at="2026-02-01T00:00Z") as w:
        assert await nap() == "awake"
        assert w.now.day == 2


async def test_a_result_survives_a_crash_at_every_call(every_crash: EveryCrash) -> None:
    app = App("sqlite://")

    @app.step
    async def one() -> int:
        return 1

    @app.workflow
    async def two() -> int:
        return await one() + await one()

    assert await every_crash(app, two.options(id="two")) > 4


async def test_a_result_that_a_crash_changes_is_seen(every_crash: EveryCrash) -> None:
    app, times = App("sqlite://"), [0]

    @app.workflow
    async def forgetful() -> int:
        times[0] += 1
        return times[0]

    with pytest.raises(pytest.fail.Exception, match="changed the result"):
        await every_crash(app, forgetful.options(id="forgetful"))
