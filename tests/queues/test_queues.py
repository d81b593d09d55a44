"""Queues as users have them: declared, named in options, limited, paused, changed while runs wait."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, Client, Rate, Settings, run
from mainspring.errors import AlreadyRegistered, InvalidInput, NotFound
from mainspring.testing import world

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from datetime import datetime

    from mainspring.testing import World


class Shop:
    """An app whose jobs take as long as they are told, and a record of who was at work when."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.app = App(url, settings=Settings(poll=0.05, **settings))
        self.at_work: set[str] = set()
        self.most = 0
        self.begun: list[str] = []
        self.times: list[datetime] = []
        self.world: World

        @self.app.workflow
        async def job(name: str, length: float = 0) -> str:
            self.begun.append(name)
            self.times.append(run.now())
            self.at_work.add(name)
            self.most = max(self.most, len(self.at_work))
            if length:
                await run.sleep(length)
            self.at_work.discard(name)
            return name

        self.job = job

    async def enqueue(self, names: str, length: float = 0, **options: Any) -> list[Any]:
        queue = options.pop("queue", "q")
        return await self.app.start_many(self.job.options(queue=queue, **options).bind(name, length) for name in names)


@asynccontextmanager
async def opened(shop: Shop, url: str) -> AsyncGenerator[Shop]:
    async with world(shop.app, url=url) as shop.world:
        yield shop


async def test_a_serial_queue_runs_one_after_the_other_in_order(store_url: str) -> None:
    shop = Shop(store_url)
    shop.app.queue("q", concurrency=1)
    async with opened(shop, store_url):
        handles = await shop.enqueue("abcde", 10)
        await shop.world.advance(60)
        assert [await handle.result() for handle in handles] == list("abcde")
    assert (shop.begun, shop.most) == (list("abcde"), 1)


async def test_jobs_in_several_serial_queues_run_side_by_side(store_url: str) -> None:
    shop = Shop(store_url)
    for name in "abcde":
        shop.app.queue(name, concurrency=1)
    async with opened(shop, store_url):
        for name in "abcde":
            await shop.enqueue(name, 10, queue=name)
        await shop.world.advance(5)
        assert shop.at_work == set("abcde")


async def test_concurrency_counts_runs_that_sleep(store_url: str) -> None:
    shop = Shop(store_url)
    shop.app.queue("q", concurrency=3)
    async with opened(shop, store_url):
        await shop.enqueue("abcdefghi", 10)
        await shop.world.advance(100)
    assert (len(shop.begun), shop.most) == (9, 3)


async def test_a_parked_run_keeps_its_place(store_url: str) -> None:
    shop = Shop(store_url, resident=0)
    shop.app.queue("q", concurrency=2)
    async with opened(shop, store_url):
        await shop.enqueue("abcdef", 10)
        await shop.world.advance(5)
        assert (await shop.app.queues.describe("q")).under_way == 2
        await shop.world.advance(100)
    assert shop.most == 2
    assert set(shop.begun) == set("abcdef")


async def test_a_rate_is_kept_over_a_rolling_window(store_url: str) -> None:
    shop = Shop(store_url)
    shop.app.queue("q", rate=Rate(3, per="10s"))
    async with opened(shop, store_url):
        await shop.enqueue("abcdefghi")
        await shop.world.advance(100)
    seconds = [(moment - shop.times[0]).total_seconds() for moment in shop.times]
    assert seconds == [0, 0, 0, 10, 10, 10, 20, 20, 20]


async def test_one_partition_never_blocks_another(store_url: str) -> None:
    shop = Shop(store_url)
    shop.app.queue("q", partition_concurrency=1)
    async with opened(shop, store_url):
        await shop.enqueue("abcd", 10, partition="big")
        await shop.enqueue("z", 10, partition="small")
        await shop.world.advance(5)
        assert shop.at_work == {"a", "z"}
        await shop.world.advance(100)
    assert [name for name in shop.begun if name != "z"] == list("abcd")


async def test_smaller_priorities_go_first(store_url: str) -> None:
    shop = Shop(store_url)
    shop.app.queue("q", concurrency=1)
    async with opened(shop, store_url):
        await shop.enqueue("x", 10)
        await shop.world.advance(1)
        await shop.enqueue("c", priority=5)
        await shop.enqueue("b")
        await shop.enqueue("a", priority=-1)
        await shop.world.advance(60)
    assert shop.begun == list("xabc")


async def test_a_run_in_an_unknown_queue_waits_visibly_until_somebody_makes_it(store_url: str) -> None:
    shop = Shop(store_url)
    async with opened(shop, store_url):
        (handle,) = await shop.enqueue("a", queue="nowhere")
        await shop.world.drain()
        (info,) = await shop.app.queues.list()
        assert (info.name, info.exists, info.ready) == ("nowhere", False, 1)
        assert (await handle.describe()).queue == "nowhere"
        await shop.app.queues.set("nowhere")
        assert await handle.result() == "a"


async def test_a_paused_queue_begins_nothing_until_it_is_resumed(store_url: str) -> None:
    shop = Shop(store_url)
    shop.app.queue("q")
    async with opened(shop, store_url):
        await shop.app.queues.pause("q")
        (handle,) = await shop.enqueue("a")
        await shop.world.drain()
        assert shop.begun == []
        assert (await shop.app.queues.describe("q")).paused
        await shop.app.queues.resume("q")
        assert await handle.result() == "a"
        with pytest.raises(NotFound, match="no queue 'x'"):
            await shop.app.queues.pause("x")


async def test_limits_are_changed_live_and_the_rest_of_them_stays(store_url: str) -> None:
    shop = Shop(store_url)
    shop.app.queue("q", concurrency=1, partition_concurrency=9)
    async with opened(shop, store_url):
        await shop.enqueue("abcdef", 10)
        await shop.world.advance(1)
        assert len(shop.at_work) == 1
        info = await shop.app.queues.set("q", concurrency=4)
        assert (info.limits.concurrency, info.limits.partition_concurrency) == (4, 9)
        await shop.world.advance(1)
        assert len(shop.at_work) == 4
        await shop.app.queues.set("q", concurrency=None)
        await shop.world.advance(1)
        assert len(shop.at_work) == 6


async def test_one_partition_gets_limits_of_its_own_and_gives_them_back(store_url: str) -> None:
    shop = Shop(store_url)
    shop.app.queue("q", partition_concurrency=1)
    async with opened(shop, store_url):
        info = await shop.app.queues.set("q", partition="vip", partition_concurrency=3)
        own = info.partitions["vip"].limits
        assert own is not None
        assert own.partition_concurrency == 3
        await shop.enqueue("abcd", 10, partition="vip")
        await shop.world.advance(1)
        assert len(shop.at_work) == 3
        info = await shop.app.queues.set("q", partition="vip", partition_concurrency=None)
        assert info.partitions["vip"].limits is None
        with pytest.raises(InvalidInput, match="a partition has no concurrency"):
            await shop.app.queues.set("q", partition="vip", concurrency=3)


async def test_a_cancelled_run_frees_its_place(store_url: str) -> None:
    shop = Shop(store_url)
    shop.app.queue("q", concurrency=1)
    async with opened(shop, store_url):
        first, second = await shop.enqueue("ab", 1000)
        await shop.world.advance(1)
        await first.cancel()
        await shop.world.advance(1)
        assert shop.begun == ["a", "b"]
        await second.cancel()


async def test_a_queued_call_inside_a_run_is_a_child_that_waits_its_turn(store_url: str) -> None:
    shop = Shop(store_url)
    shop.app.queue("q", concurrency=1)

    @shop.app.workflow
    async def parent() -> list[str]:
        first = await shop.job.options(queue="q").start("a", 5)
        second = await shop.job.options(queue="q")("b", 5)
        return [await first.result(), second]

    async with opened(shop, store_url):
        assert await parent() == ["a", "b"]
    assert shop.most == 1


async def test_a_workflow_can_have_a_queue_by_itself(store_url: str) -> None:
    shop = Shop(store_url)
    emails = shop.app.queue("emails", concurrency=1)

    @shop.app.workflow(queue=emails)
    async def send(name: str) -> str:
        return name

    async with opened(shop, store_url):
        handle = await send.start("ada")
        assert (await handle.describe()).queue == "emails"
        assert await handle.result() == "ada"
        assert await send("bob") == "bob"


async def test_a_deferred_run_enters_its_queue_when_it_is_due(store_url: str) -> None:
    shop = Shop(store_url)
    shop.app.queue("q", concurrency=1)
    async with opened(shop, store_url):
        await shop.enqueue("a", after=30)
        await shop.world.advance(29)
        assert shop.begun == []
        await shop.world.advance(2)
        assert shop.begun == ["a"]


async def test_a_worker_that_listens_to_some_queues_leaves_the_others_alone(store_url: str) -> None:
    shop = Shop(store_url, queues="fast")
    for name in ("fast", "slow"):
        shop.app.queue(name)
    async with opened(shop, store_url):
        (fast,) = await shop.enqueue("f", queue="fast")
        await shop.enqueue("s", queue="slow")
        assert await fast.result() == "f"
        assert await shop.job("plain") == "plain"
        await shop.world.drain()
    assert shop.begun == ["f", "plain"]


async def test_a_limit_per_worker_holds_and_what_it_held_back_goes_on(store_url: str) -> None:
    shop = Shop(store_url)
    shop.app.queue("q", worker_concurrency=2)
    async with opened(shop, store_url):
        handles = await shop.enqueue("abcdefg", 10)
        await shop.world.advance(100)
        await asyncio.gather(*(handle.result() for handle in handles))
    assert shop.most == 2


async def test_two_apps_share_the_limit_of_the_fleet_and_tell_each_other_of_free_places(store_url: str) -> None:
    first, second = Shop(store_url), Shop(store_url)
    for shop in (first, second):
        shop.app._runtime.settings = Settings(poll=60, concurrency=2)
        shop.app.queue("q", concurrency=3)
    async with first.app, second.app:
        handles = await first.enqueue("abcdefghijklmnopqrst", 0.01)
        for handle in handles:
            await handle.result(timeout=20)
    assert sorted(first.begun + second.begun) == sorted("abcdefghijklmnopqrst")


async def test_a_client_enqueues_and_steers(store_url: str) -> None:
    shop = Shop(store_url)
    async with opened(shop, store_url), Client(store_url) as client:
        await client.queues.set("q", concurrency=2)
        handle = await client.options(queue="q", priority=3, partition="p").start("job", "ada")
        assert await handle.result(timeout=10) == "ada"
        info = await client.queues.describe("q")
        assert info.limits.concurrency == 2
        assert await client.queues.delete("q")
        assert not await client.queues.delete("q")


async def test_a_verb_inside_a_run_is_recorded(store_url: str) -> None:
    shop = Shop(store_url)

    @shop.app.workflow
    async def make() -> int | None:
        info = await shop.app.queues.set("made", concurrency=7, rate=Rate(5, "1m"))
        assert info.limits.rate == Rate(5, "60s")
        return (await shop.app.queues.describe("made")).limits.concurrency

    async with opened(shop, store_url):
        assert await make() == 7


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"queue": ""}, "a queue's name"),
        ({"queue": "a,b"}, "comma"),
        ({"priority": 1.5}, "whole number"),
        ({"queue": "q", "partition": ""}, "text of 1 to 512"),
        ({"partition": "p"}, "give queue= as well"),
    ],
)
async def test_bad_options_are_errors_at_the_call(options: dict[str, Any], says: str) -> None:
    shop = Shop("sqlite://")
    with pytest.raises(InvalidInput, match=says):
        shop.job.options(**options).bind("a")


@pytest.mark.parametrize(
    "limits", [{"concurrency": 0}, {"concurrency": True}, {"rate": 5}, {"worker_concurrency": "2"}]
)
def test_bad_limits_are_errors_at_the_declaration(limits: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        App("sqlite://").queue("q", **limits)


def test_a_rate_is_a_number_and_a_length_of_time() -> None:
    assert Rate.read("100/1m") == Rate(100, per=60)
    with pytest.raises(InvalidInput):
        Rate(0)
    with pytest.raises(InvalidInput):
        Rate(5, per=0)


@pytest.mark.parametrize("text", ["5", "x/1m", "/1m", "5/soon"])
def test_a_rate_that_cannot_be_read_is_an_error(text: str) -> None:
    with pytest.raises(InvalidInput):
        Rate.read(text)


def test_one_name_with_two_sets_of_limits_is_an_error() -> None:
    app = App("sqlite://")
    app.queue("q", concurrency=1)
    app.queue("q", concurrency=1)
    with pytest.raises(AlreadyRegistered, match="declared twice"):
        app.queue("q", concurrency=2)
