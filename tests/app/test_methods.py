"""Methods, classmethods and staticmethods are workflows and steps too; the instance must be findable after a restart."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from mainspring import App, run
from mainspring.errors import InvalidInput
from mainspring.testing import world
from tests.engine.lives import another_process, info, names, record

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


@pytest.mark.parametrize("kind", ["workflow", "step", "transaction"])
def test_a_classmethod_is_made_before_it_is_a_workflow(kind: str) -> None:
    class Wrong:
        @classmethod
        async def one(cls) -> None: ...

    with pytest.raises(InvalidInput, match=rf"'Wrong.one' takes cls .* write @classmethod below @app.{kind}, directly"):
        getattr(App(), kind)(vars(Wrong)["one"].__func__)  # what stands between @classmethod and the function sees this


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="there a classmethod does not say that it is one")
def test_a_classmethod_by_another_name_is_found_out_when_it_is_used() -> None:
    local = App()

    class Wrong:
        @classmethod
        @local.workflow
        async def one(klass) -> None: ...  # noqa: N804  # pyright: ignore[reportSelfClsParameterName]

    wrong: Any = Wrong
    for owner in (wrong, wrong()):
        with pytest.raises(InvalidInput, match=r"write @classmethod below @app.workflow, directly above the function"):
            _ = owner.one


async def test_a_staticmethod_may_stand_above_and_below(store_url: str) -> None:
    local = App()

    class Counter:
        @local.scheduled("0 * * * *")
        @staticmethod
        @local.workflow
        async def above() -> str:
            return "above"

        @staticmethod
        @local.scheduled("0 * * * *", id="beside")
        @local.workflow
        async def between() -> str:
            return "between"

        @local.scheduled("0 * * * *", id="below")
        @local.workflow
        @staticmethod
        async def below() -> str:
            return "below"

    counter: Any = Counter
    async with world(local, url=store_url, at="2026-01-01T00:30Z") as w:
        assert [await each() for each in (counter.above, counter().between, counter.below)] == [
            "above",
            "between",
            "below",
        ]
        await w.advance("1h")
        ticks = [await local.schedules.ticks(schedule) for schedule in ("Counter.above", "beside", "below")]
        assert [[tick.outcome for tick in page] for page in ticks] == [["fired"]] * 3


def test_one_decorator_is_enough_whatever_stands_between() -> None:
    local = App()

    @local.step
    async def one() -> None: ...

    with pytest.raises(InvalidInput, match=r"<step one> is registered already; use one decorator"):
        local.workflow(staticmethod(one))


@pytest.mark.parametrize("wrapper", [classmethod, staticmethod])
def test_a_schedule_stands_above_a_workflow(wrapper: Any) -> None:
    async def one() -> None: ...

    with pytest.raises(InvalidInput, match=r"write @app.workflow between the two"):
        App().scheduled("0 * * * *")(wrapper(one))


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
