"""What a queue of jobs is relied on for beyond its limits: order, restarts, keys, versions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

import pytest

from mainspring import App, Retry, Settings, run
from mainspring.errors import RunCancelled
from mainspring.testing import crash, world
from tests.support.samples import calls

if TYPE_CHECKING:
    from mainspring import AsyncFn


class Shop:
    """An app whose job notes what it was given, and fails as often as it is told."""

    def __init__(self, url: str, *, version: str | None = None) -> None:
        self.app = App(url, version=version, settings=Settings(poll=0.05))
        self.seen: list[str] = []
        self.failures = 0
        self.job: AsyncFn[[str], int] = self.app.workflow(name="job", retry=Retry(5, first=3600, cap="1h"))(self._job)

    async def _job(self, value: str) -> int:
        if self.failures:
            self.failures -= 1
            raise ValueError(value)
        self.seen.append(value)
        return run.attempt


async def test_a_request_for_the_key_of_a_job_that_failed_begins_it_anew_at_once(store_url: str) -> None:
    shop = Shop(store_url)
    async with world(shop.app, url=store_url) as w:
        shop.failures = 2
        first = await shop.job.options(key="k").start("a")
        await w.advance(3601)
        assert (await first.describe()).attempts == 2
        again = await shop.job.options(key="k").start("b")
        assert (again.id, await again.result()) == (first.id, 1)
        assert shop.seen == ["b"]


async def test_a_job_that_failed_takes_the_new_time_even_if_its_own_was_to_be_kept(store_url: str) -> None:
    shop = Shop(store_url)
    async with world(shop.app, url=store_url) as w:
        shop.failures = 1
        first = await shop.job.options(key="k").start("a")
        await w.advance(1)
        await shop.job.options(key="k", key_mode="preserve_run_at", after=5).start("b")
        await w.advance(6)
        assert await first.result() == 1


async def test_runs_are_found_and_stopped_by_key_and_what_has_ended_is_left(store_url: str) -> None:
    shop = Shop(store_url)
    async with world(shop.app, url=store_url):
        await shop.job.options(key="k", id="done")("a")
        pending = await shop.job.options(key="k", after=60).start("b")
        await shop.job.options(key="other", after=60).start("c")
        assert {each.id for each in (await shop.app.runs.list(key="k")).runs} == {"done", pending.id}
        assert await shop.app.runs.cancel(key="k") == {pending.id: True}
        with pytest.raises(RunCancelled):
            await pending.result()
        assert shop.seen == ["a"]


async def test_a_partition_keeps_its_order_across_batches_and_restarts(store_url: str) -> None:
    shop = Shop(store_url)
    shop.app.queue("q", partition_concurrency=1)
    names = [f"{partition}{number:02d}" for number in range(12) for partition in "ab"]
    await shop.app.start_many(shop.job.options(queue="q", partition=name[0]).bind(name) for name in names[:12])
    async with shop.app:
        await shop.app.drain()
    await shop.app.start_many(shop.job.options(queue="q", partition=name[0]).bind(name) for name in names[12:])
    async with shop.app:
        await shop.app.drain()
    for partition in "ab":
        mine = [name for name in shop.seen if name.startswith(partition)]
        assert mine == sorted(mine)
    assert sorted(shop.seen) == sorted(names)


async def test_versions_share_the_limits_of_the_fleet(store_url: str) -> None:
    old, new = Shop(store_url, version="1"), Shop(store_url, version="2")
    under_way: list[int] = [0]
    most: list[int] = [0]

    for shop in (old, new):

        @shop.app.workflow(name="hold", queue="q")
        async def hold(gate: int) -> None:
            under_way[0] += 1
            most[0] = max(most[0], *under_way)
            await asyncio.sleep(0.002 * gate)
            under_way[0] -= 1

        shop.app.queue("q", concurrency=2)
        handles = await shop.app.start_many(hold.options(version=shop.app.version).bind(n % 3) for n in range(10))
        del handles
    async with old.app, new.app:
        await asyncio.gather(old.app.drain(), new.app.drain())
        while "queued" in await new.app.runs.counts():
            await new.app.drain()
            await old.app.drain()
    assert most == [2]
    assert {each.version for each in (await new.app.runs.list(workflow="hold")).runs} == {"1", "2"}


@pytest.mark.sampled
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_parent_that_is_recovered_while_it_fans_out_enqueues_each_child_once(
    store_url: str, when: Literal["before", "after"]
) -> None:
    app = App(store_url)
    app.queue("q", concurrency=2)
    done: list[str] = []

    @app.workflow
    async def child(name: str) -> str:
        return name

    @app.workflow
    async def parent(name: str) -> list[str]:
        handles = [await child.options(queue="q").start(f"{name}{number}") for number in range(3)]
        handles += await app.start_many(child.options(queue="q").bind(f"{name}{number}") for number in (3, 4))
        return [await handle.result() for handle in handles]

    for at in calls(when):
        name = f"p{at}-"

        async def work(name: str = name) -> list[str]:
            return await parent.options(id=name)(name)

        outcome = await crash(app, work, at=at, when=when, url=store_url)
        assert outcome.result == [f"{name}{number}" for number in range(5)]
        done.append(name)
        if not outcome.crashed:
            break
    runs = (await app.runs.list(workflow="child", limit=10_000)).runs
    assert len(runs) == 5 * len(done)
    app.close()
