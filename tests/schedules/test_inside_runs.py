"""The verbs of schedules inside a run: each happens once, and is answered with the same, wherever the worker dies."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

import pytest

from mainspring import App, Overlap, Policy, Settings, Spec, run
from mainspring.errors import NotFound
from mainspring.testing import crash
from tests.schedules.conftest import BEGIN
from tests.support.samples import of

HOURLY = Spec(intervals=["1h"])
"""1 tries every call."""


def _managed(url: str) -> tuple[App, Any]:
    app = App(url, settings=Settings(poll=0.05))

    @app.workflow
    async def act() -> str:
        return run.id

    @app.workflow
    async def manage() -> list[Any]:
        schedules = app.schedules
        made = await schedules.create(
            "s",
            act.bind(),
            HOURLY,
            Policy(Overlap.ALLOW_ALL),
            trigger=True,
            backfill=[(BEGIN, BEGIN + timedelta(hours=1))],
        )
        handle = await schedules.trigger("s")
        assert handle is not None
        result = await handle.result()
        await schedules.pause("s", "by a run")
        filled = await schedules.backfill("s", BEGIN + timedelta(hours=3), BEGIN + timedelta(hours=4))
        await run.sleep(1)
        described = await schedules.describe("s")
        return [
            made.id,
            result == handle.id,
            filled.state,
            filled.end == BEGIN + timedelta(hours=4),
            described.note,
        ]

    return app, manage


@pytest.mark.sampled
async def test_verbs_inside_a_run_happen_once_wherever_it_crashes(store_url: str) -> None:
    at_call = 1
    stride = of(1, 9 if store_url.startswith("sqlite") else 15)
    while True:
        app, manage = _managed(store_url)

        async def work(manage: Any = manage, number: int = at_call) -> Any:
            return await manage.options(id=f"m{number}")()

        outcome = await crash(app, work, at=at_call, when="after" if at_call % 2 else "before", url=store_url)
        assert outcome.result == ["s", True, "running", True, "by a run"]
        async with App(store_url, settings=Settings(work=False)) as app:
            ticks = (await app.schedules.ticks("s")).ticks
            # What the clock fires until the run has paused the schedule depends on how long that takes.
            asked = [tick for tick in ticks if tick.source in {"trigger", "backfill"}]
            assert len(asked) == len({tick.run for tick in asked}) == 6
            await app.schedules.delete("s")
        if not outcome.crashed:
            break
        at_call += stride
    assert at_call > 10


def _steered(url: str) -> tuple[App, Any]:
    app = App(url, settings=Settings(poll=0.05))

    @app.workflow
    async def act() -> None: ...

    @app.workflow
    async def steer() -> list[Any]:
        """Verbs of which a second time would do something else than the first."""
        schedules = app.schedules
        made = await schedules.create("s", act.bind(), HOURLY)
        first, second, third = [await schedules.skip("s") for _ in range(3)]
        taken_back = [await schedules.unskip("s"), await schedules.unskip("s", third)]
        changed = await schedules.update("s", note="mine", revision=made.revision + 5)
        left = (await schedules.describe("s")).skips
        await schedules.delete("s")
        with pytest.raises(NotFound):
            await schedules.delete("s")
        return [second - first, third - second, taken_back == [first, third], changed.note, left == [second]]

    return app, steer


@pytest.mark.sampled
@pytest.mark.parametrize("when", ["before", "after"])
async def test_what_a_second_time_would_do_more_of_is_done_once(
    store_url: str, when: Literal["before", "after"]
) -> None:
    at_call = 1
    while True:
        app, steer = _steered(store_url)

        async def work(steer: Any = steer, number: int = at_call) -> Any:
            return await steer.options(id=f"m{number}")()

        outcome = await crash(app, work, at=at_call, when=when, url=store_url)
        hour = timedelta(hours=1)
        assert outcome.result == [hour, hour, True, "mine", True], f"after a crash at call {at_call}"
        if not outcome.crashed:
            break
        at_call += of(1, 9 if store_url.startswith("sqlite") else 15)
    assert at_call > 10
