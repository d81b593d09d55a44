"""Forks of runs that a schedule started."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003  (the annotations of workflows are read)
from typing import TYPE_CHECKING

from mainspring import App, Policy, Spec, State, run
from mainspring.testing import world

if TYPE_CHECKING:
    from mainspring import RunTick


async def test_a_fork_knows_the_tick_of_its_original_and_is_no_run_of_the_schedule(store_url: str) -> None:
    app, works = App(), list[str]()
    ticks: list[RunTick | None] = []

    @app.step
    async def send() -> str:
        if not works:
            raise OSError("no network")
        return works[0]

    @app.workflow
    async def report() -> str:
        ticks.append(run.tick)
        return await send()

    @app.scheduled("*/5 * * * *")
    @app.workflow
    async def times(scheduled: datetime, started: datetime) -> str:
        return f"{scheduled:%H:%M} {started:%H:%M}, {await send()}"

    async with world(app, url=store_url, at="2026-01-01T00:00Z") as w:
        await app.schedules.create("s", report.bind(), Spec(intervals=["5m"]), Policy(pause_on_failure=True))
        await w.advance("7m")
        originals = [f"{name}-2026-01-01T00:05:00Z" for name in ("s", "times")]
        assert [(await app.handle(each).describe()).state for each in originals] == [State.FAILED] * 2
        works.append("sent")
        for _ in range(2):  # the second time forks of forks
            made = await app.runs.fork_failed(*originals)
            assert [await app.handle(made[each]).result() for each in originals] == ["sent", "00:05 00:05, sent"]
            originals = [made[each] for each in originals]
        assert ticks[0] is not None
        assert ticks == [ticks[0]] * 3
        found = await app.schedules.describe("s")
        assert (found.paused, found.starts, found.running) == (True, 1, [])
        assert (await app.runs.list(schedule="s")).runs[0].id == "s-2026-01-01T00:05:00Z"
