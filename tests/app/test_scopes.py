"""Functions are known by name, once; blueprints bring theirs, imports bring modules, resources are opened once."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, Blueprint, Settings
from mainspring.errors import AlreadyRegistered, InvalidInput, NotSerializable, NotStarted
from mainspring.testing import world
from tests.engine.lives import names

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator
    from pathlib import Path


async def test_functions_of_a_blueprint_have_its_name_in_front(store_url: str) -> None:
    billing = Blueprint("billing")

    @billing.step
    async def charge(total: int) -> int:
        return total

    @billing.workflow(name="pay-all")
    async def pay(total: int) -> int:
        return await charge(total)

    app = App()
    app.include(billing)
    app.include(billing)

    @billing.workflow
    async def late() -> str:
        return "late"

    assert (charge.name, pay.name, late.name) == ("billing.charge", "billing.pay-all", "billing.late")
    async with world(app, url=store_url):
        assert await pay.options(id="a")(3) == 3
        assert names(app, "a") == ["billing.charge"]
        assert await late() == "late"


async def test_a_blueprint_that_no_app_includes_says_what_to_write() -> None:
    lonely = Blueprint("lonely")

    @lonely.workflow
    async def one() -> None: ...

    @lonely.step
    async def step() -> str:
        return "plain"

    with pytest.raises(NotStarted, match=r"app.include\(lonely\)"):
        await one.start()
    assert await step() == "plain"


def test_a_blueprint_belongs_to_one_app_and_has_a_name() -> None:
    billing = Blueprint("billing")
    App().include(billing)
    with pytest.raises(InvalidInput, match="part of another app"):
        App().include(billing)
    with pytest.raises(InvalidInput):
        Blueprint(" ")


def test_two_functions_of_one_name_are_an_error_and_a_reload_is_not() -> None:
    app = App()

    def register(text: str) -> Any:
        if text == "same":

            @app.workflow(name="one")
            async def first() -> str:
                return "first"

            return first

        @app.workflow(name="one")
        async def second() -> str:
            return "second"

        return second

    register("same")
    register("same")
    with pytest.raises(AlreadyRegistered, match=r"two functions are called 'one': .*line \d+ and .*line \d+; .*name=…"):
        register("other")


def test_what_cannot_be_a_function_is_refused_when_it_is_registered() -> None:
    app = App()

    class Opaque:
        __slots__ = ("x",)

    def takes_opaque(x: Opaque) -> None: ...

    def yields() -> Generator[int]:
        yield 1

    async def fine() -> None: ...

    with pytest.raises(NotSerializable):
        app.workflow(takes_opaque)
    with pytest.raises(NotSerializable, match="generator"):
        app.workflow(yields)
    with pytest.raises(InvalidInput, match="name"):
        app.workflow(name=" ")(fine)
    with pytest.raises(InvalidInput, match="registered already; use one decorator"):
        app.workflow(app.step(fine))


async def test_modules_named_in_imports_are_imported_when_the_app_is_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mainspring_tasks_of_this_test.py").write_text("imported = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))  # pyright: ignore[reportUnknownMemberType]
    app = App(imports=["mainspring_tasks_of_this_test"])
    assert "mainspring_tasks_of_this_test" not in sys.modules
    async with world(app):
        assert sys.modules.pop("mainspring_tasks_of_this_test").imported
    with pytest.raises(ModuleNotFoundError):
        async with world(App(imports=["no_such_module_at_all"])):
            pass


async def test_a_resource_is_opened_once_per_worker_and_closed_when_it_stops() -> None:
    app, log = App(), list[str]()

    @app.resource
    async def http() -> AsyncGenerator[str]:
        log.append("open http")
        yield "client"
        log.append("close http")

    @app.resource
    def pool() -> Generator[int]:
        log.append("open pool")
        yield 7
        log.append("close pool")

    @app.step
    async def uses() -> str:
        return f"{http()} {pool()}"

    @app.workflow
    async def one() -> list[str]:
        return [await uses(), await uses()]

    with pytest.raises(NotStarted, match=r"'.*http' is open only while the app executes"):
        http()
    async with world(app):
        assert await one() == ["client 7", "client 7"]
        assert log == ["open http", "open pool"]
    assert log == ["open http", "open pool", "close pool", "close http"]
    with pytest.raises(NotStarted):
        pool()


async def test_a_resource_that_is_overridden_is_not_opened() -> None:
    app, log = App(), list[str]()

    @app.resource
    def http() -> Generator[str]:
        log.append("open")
        yield "real"

    @app.step
    async def uses() -> str:
        return http()

    @app.workflow
    async def one() -> str:
        return await uses()

    with http.override("fake") as fake:
        async with world(app):
            assert (await one(), fake) == ("fake", "fake")
            with http.override("inner"):
                assert await one() == "inner"
            assert await one() == "fake"
    assert log == []


async def test_a_resource_that_cannot_be_opened_stops_the_app_from_starting_and_closes_the_others() -> None:
    app, log = App(), list[str]()

    @app.resource
    def fine() -> Generator[str]:
        with contextlib.suppress(GeneratorExit):
            yield "fine"
        log.append("closed")

    @app.resource
    def broken() -> Generator[str]:
        raise ConnectionError("no server")
        yield "never"

    with pytest.raises(ConnectionError, match="no server"):
        async with world(app):
            pass
    assert log == ["closed"]
    with pytest.raises(InvalidInput, match="generator"):
        app.resource(lambda: "not a generator")  # type: ignore[arg-type,return-value]


async def test_an_app_that_does_not_work_opens_no_resources_and_executes_nothing(store_url: str) -> None:
    app = App(settings=Settings(work=False))

    @app.resource
    def http() -> Generator[str]:
        raise AssertionError("opened")
        yield "never"

    @app.workflow
    async def one() -> str:
        return "done"

    async with world(app, url=store_url) as w:
        handle = await one.start()
        await w.advance("1h")
        assert (await handle.describe()).state == "queued"


async def test_a_function_of_another_app_is_not_mistaken_for_the_apps_own_of_that_name(store_url: str) -> None:
    mine, other = App(), App()

    @mine.step(name="charge")
    async def charge() -> str:
        return "mine"

    @other.step(name="charge")
    async def charge_card() -> str:
        return "another"

    @other.step
    async def refund() -> str:
        return "refunded by another"

    @mine.workflow
    async def both(call: str) -> str:
        return await {"charge": charge, "charge_card": charge_card, "refund": refund}[call]()

    async with world(mine, url=store_url):
        assert await both("charge") == "mine"
        assert await both("refund") == "refunded by another"
        with pytest.raises(AlreadyRegistered, match="two functions are called 'charge'"):
            await both("charge_card")
