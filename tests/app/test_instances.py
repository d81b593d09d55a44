"""A run of a named instance is executed where that instance is, and waits, visibly, where there is none."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, Client, Settings, Spec, State, run
from mainspring.errors import UnknownFunction
from mainspring.model.clock import SECOND
from mainspring.testing import world
from tests.engine.lives import free_the_dead, info, store_of
from tests.support.processes import eventually

if TYPE_CHECKING:
    from mainspring.store.verbs.unknown_functions import Reviewed


def shop_app(url: str, *cities: str, **settings: Any) -> tuple[App, dict[str, Any]]:
    """A worker with the class, and with instances for some cities."""
    app = App(url, settings=Settings(poll=0.05, **settings))

    class Shop:
        def __init__(self, city: str) -> None:
            self.city = city

        @app.step
        async def price(self, item: str) -> str:
            return f"{item} in {self.city}"

        @app.workflow
        async def sell(self, item: str) -> str:
            await run.sleep("1h")
            return await self.price(item)

        @app.workflow(queue="q")
        def pack(self, item: str) -> str:
            return f"{item} packed in {self.city}"

    app.queue("q", concurrency=1)
    return app, {city: app.instance(city, Shop(city.title())) for city in cities}


async def test_a_run_that_lost_its_worker_is_left_to_one_that_has_its_instance(store_url: str) -> None:
    first, shops = shop_app(store_url, "paris")
    second, _ = shop_app(store_url, "rome")
    third, _ = shop_app(store_url, "paris", "rome")
    async with world(first, url=store_url) as w:
        handle = await shops["paris"].sell.options(id="a").start("bread")
        await w.advance("10m")
        await first._vanish()
        async with world(second, url=store_url, at=w.now) as w2:
            free_the_dead(second)
            await w2.advance("2h")
            strand(second)
            found = info(second, "a")
            assert (found.state, found.stranded) == (
                State.QUEUED,
                "no live worker has the instance paris that Shop.sell needs",
            )
            assert [each.id for each in (await second.runs.list(stranded=True)).runs] == ["a"]
            await w2.advance("2d")
            strand(second)
            review(second)
            assert info(second, "a").state is State.QUEUED, "it has begun, and is never given up"
            async with world(third, url=store_url, at=w2.now):
                assert await third.handle("a").result() == "bread in Paris"
                assert info(third, "a").stranded is None
        await first.__aenter__()
        assert (await handle.describe()).state is State.SUCCEEDED


def strand(app: App) -> None:
    functions = {function.name: function.fingerprint for function in app._runtime.registry}
    store_of(app).strand(functions)


def review(app: App, patience: int = 3_600 * SECOND) -> Reviewed:
    return store_of(app).unknown.review(app._runtime.clock.now(), patience)


@pytest.mark.parametrize("queue", [None, "q"])
async def test_a_run_that_never_began_waits_for_its_instance_and_fails_after_a_while(
    store_url: str, queue: str | None
) -> None:
    app, _ = shop_app(store_url, "rome")
    method = "Shop.pack" if queue else "Shop.sell"
    options: Any = {} if queue is None else {"queue": queue}
    async with world(app, url=store_url) as w:
        with Client(store_url, clock=app._runtime.clock) as client:
            for city in ("paris", "rome", "atlantis\0"):
                await client.options(id=city[:5], **options).start(method, city, "bread")
            assert "Rome" in await app.handle("rome").result()
            found = review(app)
            assert (found.marked, found.failed) == (2, 0)
            assert info(app, "paris").stranded == f"no live worker has the instance 'paris' that '{method}' needs"
            await w.advance("30m")
            assert (review(app).failed, info(app, "paris").state) == (0, State.QUEUED)
            await w.advance("40m")
            assert review(app).failed == 2
            with pytest.raises(UnknownFunction, match=r"had the instance 'paris' that 'Shop.* needs \(app.instance\)"):
                await client.handle("paris").result()


async def test_an_instance_that_is_named_while_runs_wait_for_it_gets_them(store_url: str) -> None:
    app, shops = shop_app(store_url, "rome")
    async with app:
        with Client(store_url) as client:
            await client.options(id="a", queue="q").start("Shop.pack", "paris", "bread")
            await client.options(id="b", queue="q").start("Shop.pack", "rome", "milk")
            assert await client.handle("b").result() == "milk packed in Rome"
            review(app)
            strand(app)
            assert info(app, "a").stranded is not None
            app.instance("paris", type(shops["rome"])("Paris"))
            assert await client.handle("a").result() == "bread packed in Paris"


async def test_workers_say_which_instances_they_have(store_url: str) -> None:
    app, shops = shop_app(store_url, "rome", lease=0.3)
    async with app:
        (there,) = await app.workers.list()
        assert there.instances == ["rome"]
        app.instance("paris", type(shops["rome"])("Paris"))
        await asyncio.to_thread(eventually, lambda: both_listed(app), "the next beat lists both")


def both_listed(app: App) -> bool:
    return app.workers.list.sync()[0].instances == ["paris", "rome"]


async def test_a_schedule_of_an_instance_fires_where_that_is(store_url: str) -> None:
    first, shops = shop_app(store_url, "paris")
    second, _ = shop_app(store_url, "rome")
    async with world(first, url=store_url, at="2026-01-01T00:30Z") as w:
        call = shops["paris"].price.bind("bread")
        await first.schedules.create("hourly", call, Spec(intervals=["1h"]))
        first.pause()
        async with world(second, url=store_url, at=w.now) as w2:
            await w2.advance("1h")
            (tick,) = await second.schedules.ticks("hourly")
            assert tick.run is not None
            assert info(second, tick.run).state is State.QUEUED, "the worker that acts on it does not have the instance"
            first.resume()
            assert await second.handle(tick.run).result() == "bread in Paris"


async def test_a_call_without_an_instance_fails_with_words(store_url: str) -> None:
    app, _ = shop_app(store_url, "rome")
    with Client(store_url) as client:
        async with app:
            handle = await client.start("Shop.sell")
            with pytest.raises(Exception, match="missing a required argument: 'self'"):
                await handle.result()
