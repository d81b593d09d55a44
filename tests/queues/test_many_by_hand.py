"""Runs are ended, moved and let go on by what they are, however many, from an app, a client, a run and the command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, Client, Settings
from mainspring.errors import InvalidInput, NotSerializable, RunEnded, TooLarge
from mainspring.operations.runs import bulk
from mainspring.testing import world

if TYPE_CHECKING:
    from mainspring.testing import World

DAY = 86_400


@dataclass
class Parcel:
    number: int


class Shop:
    def __init__(self, url: str) -> None:
        self.app = App(url, settings=Settings(poll=0.05, value_bytes=10_000))
        self.app.queue("slow")
        self.works = False
        self.pack = self.app.workflow(name="pack")(self._pack)
        self.note = self.app.workflow(name="note")(self._note)
        self.tidy = self.app.workflow(name="tidy")(self._tidy)

    async def _pack(self, number: int) -> Parcel:
        if not self.works:
            raise ValueError(f"no box for {number}")
        return Parcel(number)

    async def _note(self) -> None: ...

    async def _tidy(self) -> list[int]:
        failed = await self.app.runs.fail(queue="slow", reason="tidied up")
        again = await self.app.runs.retry(workflow="pack")
        moved = await self.app.runs.reschedule(workflow="note", after=DAY)
        done = await self.app.runs.complete(id_prefix="by-hand-", result=Parcel(7))
        return [len(failed), len(again), len(moved), len(done)]


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several batches for a few runs."""
    monkeypatch.setattr(bulk, "BATCH", 3)


async def later(fn: Any, count: int, queue: str | None = None, prefix: str = "r") -> list[str]:
    args = (1,) if fn.name == "pack" else ()
    where = {} if queue is None else {"queue": queue}
    made = [await fn.options(id=f"{prefix}-{n}", after=DAY, **where).start(*args) for n in range(count)]
    return [handle.id for handle in made]


async def failed(shop: Shop, w: World, count: int) -> list[str]:
    handles = [await shop.pack.options(id=f"bad-{n}").start(n) for n in range(count)]
    await w.advance(1)
    return [handle.id for handle in handles]


async def test_all_runs_that_a_filter_finds_are_acted_on_and_no_others(store_url: str) -> None:
    shop = Shop(store_url)
    async with world(shop.app, url=store_url) as w:
        runs = shop.app.runs
        slow = await later(shop.note, 8, "slow", "slow")
        rest = await later(shop.note, 2, None, "rest")
        bad = await failed(shop, w, 7)
        assert await runs.fail(queue="slow", reason="not wanted") == dict.fromkeys(reversed(slow), True)
        with pytest.raises(RunEnded, match="not wanted"):
            await shop.app.handle(slow[0]).result()
        shop.works = True
        assert set(await runs.retry(workflow="pack")) == set(bad)
        await w.advance(1)
        assert [await shop.app.handle(each).result() for each in bad[:2]] == [Parcel(0), Parcel(1)]
        assert await runs.retry(workflow="pack") == {}
        assert set(await runs.reschedule(id_prefix="rest-", priority=-3)) == set(rest)
        assert (await runs.get(rest[0])).priority == -3
        assert set(await runs.complete(id_prefix="rest-", reason="done by hand")) == set(rest)
        assert (await runs.get(rest[0])).reason == "done by hand"
        assert set(await runs.cancel(id_prefix="slow-")) == set()


async def test_cancelled_runs_are_found_and_resumed(store_url: str) -> None:
    shop = Shop(store_url)
    async with world(shop.app, url=store_url):
        ids = set(await later(shop.note, 5))
        assert set(await shop.app.runs.cancel(workflow="note", reason="wait")) == ids
        assert set(await shop.app.runs.resume(workflow="note")) == ids
        assert set(await shop.app.runs.terminate(workflow="note")) == ids
        assert {run.state for run in (await shop.app.runs.list(workflow="note")).runs} == {"cancelled"}


async def test_ids_and_filters_together_are_what_is_both(store_url: str) -> None:
    shop = Shop(store_url)
    async with world(shop.app, url=store_url):
        first, second, _ = await later(shop.note, 3)
        assert await shop.app.runs.fail(first, second, id_prefix="r-1") == {second: True}


async def test_nothing_is_acted_on_when_nothing_is_named(store_url: str) -> None:
    shop = Shop(store_url)
    async with world(shop.app, url=store_url):
        await later(shop.note, 2)
        assert await shop.app.runs.fail() == {}
        with pytest.raises(InvalidInput, match="which runs are meant"):
            await shop.app.runs.fail(workflow=None)


async def test_one_run_that_cannot_go_on_does_not_stop_the_others(store_url: str) -> None:
    shop = Shop(store_url)
    async with world(shop.app, url=store_url) as w:
        keyed = await shop.pack.options(id="keyed", key="k").start(1)
        await w.advance(1)
        holder = await shop.pack.options(key="k", after=DAY).start(1)
        bad = await failed(shop, w, 4)
        shop.works = True
        assert set(await shop.app.runs.retry(workflow="pack", state="failed")) == set(bad)
        assert (await keyed.describe()).state == "failed"
        await holder.cancel()


async def test_a_run_acts_on_many_once_and_remembers_what_came_of_it(store_url: str) -> None:
    shop = Shop(store_url)
    async with world(shop.app, url=store_url) as w:
        await later(shop.note, 2, "slow", "slow")
        await later(shop.note, 1, None, "rest")
        await later(shop.pack, 2, None, "by-hand")
        bad = await failed(shop, w, 4)
        shop.works = True
        handle = await shop.tidy.start()
        assert await handle.result() == [2, 4, 1, 2]
        assert await shop.pack.options(id="by-hand-0")(1) == Parcel(7)
        steps = await shop.app.runs.steps(handle.id)
        verbs = ["runs.fail", "runs.retry", "runs.reschedule", "runs.complete"]
        assert list(dict.fromkeys(step.name for step in steps if step.name != "runs.find")) == verbs
        assert {run_id for step in steps if step.name == "runs.retry" for run_id in step.output} == set(bad)


async def test_a_result_by_hand_is_of_the_type_that_the_function_returns(store_url: str) -> None:
    shop = Shop(store_url)
    async with world(shop.app, url=store_url):
        await later(shop.pack, 2, prefix="p")
        await later(shop.note, 1, prefix="n")
        await later(shop.tidy, 1, prefix="t")
        for wrong in (None, "a parcel", {"number": "x"}):
            with pytest.raises(InvalidInput, match=r"'(pack|note)' cannot be completed with .* result="):
                await shop.app.runs.complete("n-0", "p-0", result=wrong)
        with pytest.raises(InvalidInput, match="cannot be completed"):
            await shop.app.runs.complete("p-0", result=float("nan"))
        with pytest.raises(TooLarge, match="the limit is 10,000"):
            await shop.app.runs.complete("t-0", result=[1] * 10_000)
        assert (await shop.app.runs.get("n-0")).state == "scheduled"
        assert await shop.app.runs.complete("p-0", result=Parcel(3)) == {"p-0": True}
        assert await shop.pack.options(id="p-0")(1) == Parcel(3)
        assert await shop.app.runs.complete("n-0") == {"n-0": True}


async def test_a_client_stores_any_result_and_who_waits_finds_out_whether_it_fits(store_url: str) -> None:
    shop = Shop(store_url)
    async with world(shop.app, url=store_url):
        right, wrong = await later(shop.pack, 2)
        with Client(store_url) as client:
            assert await client.runs.complete(right, result={"number": 5}) == {right: True}
            assert set(await client.runs.complete(workflow="pack", result="five")) == {wrong}
            assert await client.handle(wrong).result() == "five"
        assert await shop.pack.options(id=right)(1) == Parcel(5)
        with pytest.raises(NotSerializable, match="cannot be read back"):
            await shop.pack.options(id=wrong)(1)
