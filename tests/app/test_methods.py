"""Methods, classmethods and staticmethods are workflows and steps too; the instance must be findable after a restart."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring import App, State, run
from mainspring.errors import InvalidInput
from mainspring.testing import world
from tests.engine.lives import another_process, info, names, put, record

app = App()


class Shop:
    rate = 2

    def __init__(self, city: str) -> None:
        self.city = city

    @app.step
    async def price(self, item: str) -> str:
        return f"{item} in {self.city}"

    @app.step
    def plain(self, item: str) -> str:
        return f"{item} from {self.city}"

    @app.step
    @classmethod
    def rated(cls, number: int) -> int:
        return number * cls.rate

    @app.step
    @staticmethod
    async def static(number: int) -> int:
        return number + 1

    @app.workflow
    async def sell(self, item: str) -> list[str]:
        await run.sleep("1h")
        return [await self.price(item), await self.plain.aio(item)]

    @app.workflow
    def sell_plainly(self, item: str) -> str:
        return self.plain(item)

    @app.workflow
    @classmethod
    async def grow(cls, number: int) -> int:
        await run.sleep("1h")
        me: Any = cls
        rated: int = await me.rated.aio(number)
        static: int = await me.static(number)
        return rated + static

    @app.workflow
    @staticmethod
    async def count(number: int) -> int:
        found: int = await shop_class.static(number)
        return found


class Outlet(Shop):
    rate = 5


paris = app.instance("paris", Shop("Paris"))
shop_class: Any = Shop
outlet_class: Any = Outlet
"""A decorator above `classmethod` or `staticmethod` works, but has no types."""


async def test_a_method_is_a_workflow_of_its_instance_across_restarts(store_url: str) -> None:
    async with world(app, url=store_url) as w:
        handle = await paris.sell.options(id="a").start("bread")
        await w.advance("10m")
        await another_process(w)
        assert await handle.result() == ["bread in Paris", "bread from Paris"]
        assert names(app, "a") == ["sleep", "Shop.price", "Shop.plain"]
        assert info(app, "a").workflow == "Shop.sell"
        assert info(app, "a").input == {"self": "paris", "item": "bread"}
        assert await paris.sell_plainly.aio("milk") == "milk from Paris"
        assert await (await paris.sell.bind("salt").start()).result() == ["salt in Paris", "salt from Paris"]


async def test_classmethods_and_staticmethods_are_too_and_know_their_class(store_url: str) -> None:
    async with world(app, url=store_url) as w:
        handle = await outlet_class.grow.options(id="a").start(10)
        await w.advance("10m")
        await another_process(w)
        assert await handle.result() == 61
        assert await shop_class.grow(10) == 31
        assert await shop_class("Paris").grow(10) == 31
        assert await shop_class.count(1) == await shop_class("Paris").count(1) == 2
        assert [step.name for step in record(app, "a")] == ["sleep", "Shop.rated", "Shop.static"]


async def test_outside_runs_methods_that_are_steps_are_plain_methods() -> None:
    rome = Shop("Rome")
    assert await rome.price("wine") == "wine in Rome"
    assert rome.plain("wine") == "wine from Rome"
    assert outlet_class.rated(2) == 10
    assert await shop_class("Rome").static(1) == 2


async def test_an_instance_that_has_no_name_is_refused_at_the_call() -> None:
    async with world(app):
        with pytest.raises(InvalidInput, match=r'name it with app.instance\("name", obj\)'):
            await Shop("Rome").sell.start("wine")


async def test_a_run_of_an_instance_that_is_not_there_ends_failed_and_says_so(store_url: str) -> None:
    async with world(app, url=store_url):
        put(app, Shop.sell, "a", input='{"self": "atlantis", "item": "fish"}')
        with pytest.raises(InvalidInput, match=r"needs the instance 'atlantis', which is not named here"):
            await app.handle("a").result()
        assert info(app, "a").state is State.FAILED


async def test_a_class_that_cannot_be_found_again_is_refused_at_the_call() -> None:
    local = App()

    class Hidden:
        @local.workflow
        @classmethod
        async def one(cls) -> None: ...

    hidden: Any = Hidden
    async with world(local):
        with pytest.raises(InvalidInput, match="cannot be imported, so a run of its methods could not be continued"):
            await hidden.one.start()


def test_a_name_means_one_instance() -> None:
    with pytest.raises(InvalidInput, match="the instance name 'paris' is taken"):
        app.instance("paris", Shop("Paris, Texas"))
    assert app.instance("paris", paris) is paris
