"""A worker can be asked to work off what is due: everything that is, and nothing else."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from mainspring import App, Interval, Policy, Retry, Settings, Spec, run
from mainspring.errors import NotStarted

if TYPE_CHECKING:
    from mainspring import AsyncFn

LONG = timedelta(days=9)


def made(url: str) -> tuple[App, AsyncFn[[str, int], None], list[str]]:
    app = App(url, settings=Settings(poll=30, concurrency=2))
    app.queue("one", concurrency=1)
    done: list[str] = []

    @app.step
    def blocking(name: str) -> None:
        done.append(name)

    @app.workflow(retry=Retry(3, first=600))
    async def job(name: str, children: int) -> None:
        handles = [await job.options(queue="one").start(f"{name}/{number}", 0) for number in range(children)]
        if name == "bad":
            raise ValueError(name)
        await blocking.start(f"{name} in a thread")
        for handle in handles:
            await handle.result()
        done.append(name)
        if name == "sleeper":
            await run.sleep(LONG)

    return app, job, done


async def test_what_is_due_is_worked_off_and_the_rest_is_left(store_url: str) -> None:
    app, job, done = made(store_url)
    for name in ("a", "b", "bad", "sleeper"):
        await job.options(id=name).start(name, 0)
    await job.options(id="many").start("many", 5)
    await job.options(id="later", after=LONG).start("later", 0)
    await job.options(id="paused", queue="nobody made it").start("paused", 0)
    async with app:
        await app.drain()
        names = ["a", "b", "sleeper", "many", *(f"many/{number}" for number in range(5))]
        assert sorted(done) == sorted([*names, *(f"{name} in a thread" for name in names)])
        await app.drain()
    states = {
        each: (await app.runs.get(each)).state.value for each in ("a", "bad", "sleeper", "later", "paused", "many")
    }
    assert states == {
        "a": "succeeded",
        "bad": "scheduled",
        "sleeper": "waiting",
        "later": "scheduled",
        "paused": "queued",
        "many": "succeeded",
    }
    assert (await app.runs.get("sleeper")).worker is None
    app.close()


async def test_schedules_whose_time_has_come_are_part_of_it(store_url: str) -> None:
    app, job, done = made(store_url)
    hourly = Spec(intervals=[Interval("1h")])
    await app.schedules.create("s", job.bind("tick", 0), hourly, Policy(catchup="1d"))
    await app.schedules.trigger("s")
    async with app:
        await app.drain()
    assert sorted(done) == ["tick", "tick in a thread"]
    with pytest.raises(NotStarted):
        await app.drain()
    app.close()
