"""Calling, starting, binding: a call is a value, an id is one run, and a child's id follows from its place."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass
from typing import Any

import pytest

from mainspring import App, AsyncFn, Call, State, run
from mainspring.errors import Conflict, InvalidInput, NotSerializable, UnknownFunction
from mainspring.testing import world
from tests.engine.lives import another_process, count_runs, info, names, record


@dataclass
class Order:
    number: int
    items: list[str]


def make_app() -> App:
    app = App()

    @app.step(name="total")
    async def total(order: Order, *, factor: int = 1) -> int:
        return len(order.items) * factor

    @app.workflow(name="checkout")
    async def checkout(order: Order, *, factor: int = 1) -> int:
        return await total(order, factor=factor)

    @app.workflow(name="other")
    async def other() -> None: ...

    return app


async def test_a_workflow_can_be_called_started_bound_and_given_options(store_url: str) -> None:
    app, bodies = App(), list[str]()

    @app.workflow
    async def checkout(order: Order, *, factor: int = 1) -> int:
        bodies.append(run.id)
        return len(order.items) * factor

    order = Order(7, ["a", "b"])
    async with world(app, url=store_url):
        assert await checkout(order) == 2
        assert await checkout.options(id="direct")(order, factor=2) == 4
        started = await checkout.options(id="started", attributes={"tenant": "acme"}).start(order, factor=3)
        assert (started.id, started.created, await started.result()) == ("started", True, 6)
        call = checkout.options(id="bound").bind(order, factor=4)
        assert isinstance(call, Call)
        assert call.name == "checkout"
        assert "bound" not in bodies
        order.items.append("changed later, and still part of the call")
        assert await (await call.start()).result() == 12
        assert info(app, "started").attributes == {"tenant": "acme"}
        assert info(app, "started").input == {"order": {"number": 7, "items": ["a", "b"]}, "factor": 3}
    assert bodies[1:] == ["direct", "started", "bound"]


async def test_def_workflows_are_called_with_aio_from_coroutines(store_url: str) -> None:
    app = App()

    @app.step
    def double(number: int) -> int:
        return number * 2

    @app.workflow
    def four_times(number: int) -> int:
        return double(double(number))

    async with world(app, url=store_url):
        assert await four_times.aio(3) == 12
        assert await (await four_times.start(4)).result() == 16
        assert await double.aio(5) == 10


def test_blocking_code_uses_the_app_with_with(store_url: str) -> None:
    app = App(store_url)

    @app.step
    async def double(number: int) -> int:
        return number * 2

    @app.workflow
    async def four_times(number: int) -> int:
        return await double(await double(number))

    @app.workflow
    def plain(number: int) -> int:
        handle = four_times.start.sync(number)
        return handle.result.sync() + double.sync(number)

    with app:
        assert four_times.sync(3) == 12
        assert plain(3) == 18
        assert double.sync(4) == 8
        handle = four_times.options(id="a").start.sync(5)
        assert handle.result.sync(timeout=10) == 20
        assert handle.describe.sync().state is State.SUCCEEDED
        assert not handle.cancel.sync()
        handles = app.start_many.sync(four_times.bind(number) for number in range(3))
        assert [handle.result.sync() for handle in handles] == [0, 4, 8]


async def test_many_runs_start_in_one_call_in_order(store_url: str) -> None:
    app = App()

    @app.workflow
    async def square(number: int) -> int:
        return number**2

    async with world(app, url=store_url):
        handles = await app.start_many(square.options(id=f"n{number}").bind(number) for number in range(50))
        assert [handle.id for handle in handles] == [f"n{number}" for number in range(50)]
        assert [await handle.result() for handle in handles] == [number**2 for number in range(50)]
        again = await app.start_many([square.options(id="n3").bind(3), square.options(id="new").bind(4)])
        assert [handle.created for handle in again] == [False, True]
        assert await app.start_many([]) == []
        with pytest.raises(InvalidInput, match=r"square is a function, not a call; write square.bind\(…\)"):
            await app.start_many([square])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def test_one_id_is_one_run(store_url: str) -> None:
    app = make_app()
    checkout: Any = function(app, "checkout")
    async with world(app, url=store_url) as w:
        first = await checkout.options(id="a").start(Order(1, ["x"]))
        again = await checkout.options(id="a").start(Order(2, ["y", "z"]))
        assert (first.created, again.created) == (True, False)
        assert await again.result() == 1
        await another_process(w)
        assert await checkout.options(id="a")(Order(3, [])) == 1
        assert count_runs(app) == 1


@pytest.mark.parametrize("place", ["outside", "inside"])
async def test_an_id_of_another_workflow_is_a_conflict(store_url: str, place: str) -> None:
    app = App()

    @app.workflow
    async def one() -> int:
        return 1

    @app.workflow
    async def other() -> None: ...

    @app.workflow
    async def inside() -> list[str]:
        found = list[str]()
        for verb in (other.options(id="a"), other.options(id="a").start):
            try:
                await verb()
            except Conflict as error:
                found.append(str(error))
        return found

    message = "run id 'a' belongs to a run of 'one', so a run of 'other' cannot have it; choose another id"
    async with world(app, url=store_url):
        await one.options(id="a")()
        if place == "inside":
            assert await inside.options(id="i")() == [message, message]
            assert [step.kind for step in record(app, "i")] == ["call", "start"]
        else:
            for verb in (other.options(id="a"), other.options(id="a").start):
                with pytest.raises(Conflict, match=message):
                    await verb()
        assert await app.handle("a").result() == 1


async def test_children_have_ids_that_follow_from_their_place(store_url: str) -> None:
    app = App()

    @app.workflow
    async def leaf() -> str:
        return run.id

    @app.workflow
    async def branch() -> str:
        return await leaf()

    @app.step
    async def starter() -> str:
        return (await leaf.start()).id

    @app.workflow
    async def parent() -> list[str]:
        handle = await leaf.start()
        many = await app.start_many([leaf.bind(), leaf.bind()])
        named = await leaf.options(id="named").start()
        ids = [handle.id, *(one.id for one in many), named.id, await branch(), await starter()]
        return [*ids, *await asyncio.gather(nested(), nested())]

    async def nested() -> str:
        return await leaf()

    async with world(app, url=store_url):
        ids = await parent.options(id="p")()
        assert ids == ["p/0", "p/1.0", "p/1.1", "named", "p/3/0", "p/4.s0", "p/t0.0", "p/t1.0"]
        assert {info(app, run_id).parent for run_id in ids} == {"p", "p/3"}
        assert [step.kind for step in record(app, "p")][:5] == ["start", "start", "start", "call", "step"]


async def test_a_detached_child_is_nobodys_child(store_url: str) -> None:
    app = App()

    @app.workflow
    async def leaf() -> None: ...

    @app.workflow
    async def parent() -> str:
        return (await leaf.options(detached=True).start()).id

    async with world(app, url=store_url):
        child = await parent.options(id="p")()
        assert (info(app, child).parent, info(app, child).scheduled_by) == (None, "p")


async def test_steps_are_plain_calls_inside_steps_and_outside_runs(store_url: str) -> None:
    app, done = App(), list[str]()

    @app.step
    async def inner(what: str) -> object:
        done.append(what)
        return (what, object)

    @app.step
    def plain(what: str) -> object:
        return object

    @app.step
    async def outer() -> str:
        assert await inner("nested") == ("nested", object)
        assert plain("nested") is object
        assert await plain.aio("nested") is object
        return "outer"

    @app.workflow
    async def one() -> str:
        return await outer()

    assert await inner("outside") == ("outside", object)
    assert plain("outside") is object
    async with world(app, url=store_url):
        assert await inner("outside, in the app") == ("outside, in the app", object)
        assert await one.options(id="a")() == "outer"
        assert names(app, "a") == ["outer"]
        assert count_runs(app) == 1
    assert done == ["outside", "outside, in the app", "nested"]


async def test_a_step_can_be_started_as_a_run_of_its_own(store_url: str) -> None:
    app, tried = App(), list[int]()

    @app.step(retry=3)
    async def flaky(number: int) -> int:
        tried.append(number)
        if len(tried) < 3:
            raise ConnectionError
        return number

    async with world(app, url=store_url):
        handle = await flaky.options(id="a").start(7)
        assert await handle.result() == 7
        assert (info(app, "a").kind, names(app, "a")) == ("step", ["flaky"])
    assert tried == [7, 7, 7]


@pytest.mark.parametrize("bad", ["", "  ", "x" * 513, "a/b", "a\nb", "a\0b", 7, None])
async def test_ids_that_cannot_be_are_refused(bad: Any) -> None:
    app = make_app()
    with pytest.raises(InvalidInput, match="run id"):
        function(app, "other").options(id=bad)


async def test_wrong_arguments_are_errors_at_the_call_and_leave_nothing_behind(store_url: str) -> None:
    app = make_app()
    checkout: Any = function(app, "checkout")
    wrong: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((), {}),
        ((Order(1, []), 2), {}),
        ((Order(1, []),), {"colour": "red"}),
        ((object(),), {}),
        ((Order(1, [object()]),), {}),  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
        ((Order("one", []),), {}),  # type: ignore[arg-type]
        ((Order(1, []),), {"factor": float("nan")}),
    ]
    async with world(app, url=store_url):
        for args, kwargs in wrong:
            for verb in (checkout, checkout.start, checkout.bind, checkout.options(id="a").start):
                with pytest.raises(InvalidInput, match="checkout"):
                    await _made(verb, args, kwargs)
        with pytest.raises(NotSerializable):
            await app.start_many([checkout.bind(Order(1, [])), checkout.bind(object())])
        for options in (
            {"color": "red"},
            {"after": 1, "at": 2.0},
            {"after": -1},
            {"at": float("nan")},
            {"attributes": {"x": object()}},
            {"attributes": {1: 2}},
            {"version": " "},
        ):
            with pytest.raises(InvalidInput):
                checkout.options(**options)
        with pytest.raises(
            UnknownFunction, match="no function is registered as 'nothing'; registered are: checkout, other, total"
        ):
            app._runtime.registry.get("nothing")
        assert count_runs(app) == 0


async def _made(verb: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    made = verb(*args, **kwargs)
    if inspect.isawaitable(made):
        await made


def function(app: App, name: str) -> Any:
    return AsyncFn[..., Any](app, app._runtime.registry.get(name))
