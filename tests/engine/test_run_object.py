"""`run`: what a run knows of itself is the same in every replay."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, Retry, run
from mainspring.errors import Interrupted, InvalidInput, NotInRun, StepTimedOut
from mainspring.testing import world
from tests.engine.lives import another_process, info, names, put, record, store_of

if TYPE_CHECKING:
    from collections.abc import Coroutine


async def test_a_run_knows_its_id_version_deadline_and_attributes(store_url: str) -> None:
    app = App(version="v7")

    @app.step
    async def inside() -> list[Any]:
        return [run.id, run.version, run.attributes, run.attempt]

    @app.workflow
    async def one() -> list[Any]:
        return [run.id, run.version, run.deadline, run.attributes, run.attempt, await inside()]

    async with world(app, at="2026-01-01T00:00Z", url=store_url):
        found = await one.options(id="a", timeout="1h", attributes={"tenant": "acme", "n": [1]})()
        attributes = {"tenant": "acme", "n": [1]}
        assert found == ["a", "v7", datetime(2026, 1, 1, 1, tzinfo=UTC), attributes, 1, ["a", "v7", attributes, 1]]
        assert (await one())[2:4] == [None, {}]


async def test_the_step_key_is_the_same_in_every_attempt_and_after_a_crash_and_nowhere_else(store_url: str) -> None:
    app, keys = App(), list[str]()

    @app.step(retry=Retry(3, first="1m"))
    async def flaky(what: str) -> str:
        keys.append(f"{what} {run.step_key}")
        if len(keys) < 3:
            raise ConnectionError
        return run.step_key

    @app.workflow
    async def one() -> list[str]:
        return [await flaky("first"), await flaky("second")]

    async with world(app, url=store_url) as w:
        handle = await one.start()
        await w.advance("30s")
        await another_process(w)
        first, second = await handle.result()
        assert keys == [f"first {first}"] * 3 + [f"second {second}"]
        assert first != second
        assert first not in await one()


async def test_time_chance_and_uuids_are_the_same_on_replay_and_differ_within_and_between_runs(store_url: str) -> None:
    app, seen, began, go = App(), list[list[Any]](), asyncio.Event(), asyncio.Event()

    @app.step
    async def note() -> list[Any]:
        return [run.random().random(), str(run.uuid())]

    @app.step
    async def hang() -> None:
        began.set()
        await go.wait()

    @app.workflow
    async def leaf() -> None: ...

    @app.workflow
    async def draw() -> None:
        async def branch() -> list[Any]:
            return [run.random().random(), run.uuid(), *await note(), run.now()]

        found: list[Any] = [run.now(), run.random().random(), run.random().random(), run.uuid(), run.uuid()]
        if not seen:
            w.clock.set(datetime(2026, 1, 2, tzinfo=UTC))  # time passes while the workflow's own code is at work
        await leaf.start()
        found.append(run.now())
        await run.sleep("1h")
        found += [run.now(), *await branch(), *itertools.chain(*await asyncio.gather(branch(), branch()))]
        seen.append(found)
        await hang()

    async with world(app, at="2026-01-01T00:00Z", url=store_url) as w:
        handle = await draw.start()
        waiting = asyncio.create_task(handle.result())
        await began.wait()
        await another_process(w)
        go.set()
        await handle.result()
        await draw()
        waiting.cancel()
    live, again, other = seen
    assert live == again
    assert [one for one in live if isinstance(one, datetime)][:3] == [
        datetime(2026, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 2, tzinfo=UTC),
        datetime(2026, 1, 2, 1, tzinfo=UTC),
    ]
    drawn = [one for one in live + other if not isinstance(one, datetime)]
    assert len(set(drawn)) == len(drawn)


@pytest.mark.parametrize("colour", ["async", "def"])
async def test_any_function_can_be_a_step_ad_hoc(store_url: str, colour: str) -> None:
    app, done = App(), list[str]()

    async def coroutine(what: str, *, loud: bool = False) -> str:
        done.append(what)
        return what.upper() if loud else what

    def blocking(what: str) -> datetime:
        done.append(what)
        return datetime.fromisoformat(what)

    @app.workflow
    async def from_async() -> list[Any]:
        one = await run.step("one", coroutine, "a", loud=True)
        two = await run.step("two", blocking, "2026-01-01")
        return [one, two, await run.step("three", len, "four")]

    @app.workflow
    def from_def() -> list[Any]:
        one = run.step.sync("one", coroutine, "a", loud=True)
        two = run.step.sync("two", blocking, "2026-01-01")
        return [one, two, run.step.sync("three", len, "four")]

    workflow = from_async if colour == "async" else from_def
    async with world(app, url=store_url):
        handle = await workflow.options(id="a").start()
        expected = ["A", datetime(2026, 1, 1), 4]  # noqa: DTZ001  (what the function makes)
        assert await handle.result() == expected
        assert names(app, "a") == ["one", "two", "three"]
        put(app, workflow, "b", store_of(app).steps("a"))
        assert await app.handle("b").result() == expected
    assert done == ["a", "2026-01-01"]


@pytest.mark.parametrize("colour", ["async", "def"])
async def test_a_step_ad_hoc_has_the_options_of_a_step(store_url: str, colour: str) -> None:
    app, tried = App(), list[int]()

    async def flaky() -> str:
        tried.append(run.attempt)
        if len(tried) < 3:
            raise ConnectionError("not yet")
        return "done"

    async def slow() -> None:
        await asyncio.Event().wait()

    @app.workflow
    async def from_async() -> str:
        found = await run.step.options(retry=Retry(3, first="1m"))("flaky", flaky)
        with pytest.raises(StepTimedOut):
            await run.step.options(timeout=0.01)("slow", slow)
        return found

    @app.workflow
    def from_def() -> str:
        found = run.step.options(retry=Retry(3, first="1m")).sync("flaky", flaky)
        with pytest.raises(StepTimedOut):
            run.step.options(timeout=0.01).sync("slow", slow)
        return found

    async with world(app, url=store_url) as w:
        handle = await (from_async if colour == "async" else from_def).options(id="a").start()
        await w.advance("4m")
        assert await handle.result() == "done"
        assert names(app, "a") == ["flaky", "slow"]
    assert tried == [1, 2, 3]
    with pytest.raises(InvalidInput, match="longer than zero"):
        run.step.options(timeout=0)
    with pytest.raises(InvalidInput, match="never started a second time"):
        run.step.options(retry=2, at_most_once=True)


async def test_a_step_ad_hoc_that_is_started_at_most_once_is_not_started_again(store_url: str) -> None:
    app, done, begun = App(), list[str](), asyncio.Event()

    async def once() -> None:
        done.append("once")
        begun.set()
        await asyncio.Event().wait()

    @app.workflow
    async def one() -> str:
        try:
            await run.step.options(at_most_once=True)("once", once)
        except Interrupted as error:
            return str(error)
        return "?"

    async with world(app, url=store_url) as w:
        await one.options(id="a").start()
        await begun.wait()
        await another_process(w)
        assert "is at_most_once, so it is not executed again" in await app.handle("a").result()
    assert done == ["once"]


@dataclass
class Parcel:
    weight: Decimal
    sent: date


class Scales:
    async def weigh(self, weight: str) -> Parcel:
        return Parcel(Decimal(weight), date(2026, 7, 1))

    async def __call__(self, weight: str) -> Parcel:
        return await self.weigh(weight)


async def weigh(weight: str) -> Parcel:
    return await Scales().weigh(weight)


async def test_a_step_ad_hoc_has_the_type_that_any_kind_of_function_says_it_returns(store_url: str) -> None:
    app = App()

    @app.workflow
    async def from_async() -> list[Parcel]:
        parcels = await run.step("lambda", lambda: gather(weigh("1"), weigh("2")))
        assert parcels == [Decimal(1), Decimal(2)]
        return [
            await run.step("function", weigh, "1.10"),
            await run.step("partial", partial(weigh, "1.10")),
            await run.step("method", Scales().weigh, "1.10"),
            await run.step("object", Scales(), "1.10"),
        ]

    @app.workflow
    def from_def() -> list[Parcel]:
        assert run.step.sync("lambda", lambda: gather(weigh("1"), weigh("2"))) == [Decimal(1), Decimal(2)]
        limited = run.step.options(timeout=30)
        return [
            run.step.sync("function", weigh, "1.10"),
            run.step.sync("partial", partial(weigh, "1.10")),
            limited.sync("method", Scales().weigh, "1.10"),
            limited.sync("object", Scales(), "1.10"),
        ]

    async def gather(*calls: Coroutine[Any, Any, Parcel]) -> list[Decimal]:
        return [parcel.weight for parcel in await asyncio.gather(*calls)]

    async with world(app, url=store_url):
        for workflow in (from_async, from_def):
            handle = await workflow.start()
            assert await handle.result() == [Parcel(Decimal("1.10"), date(2026, 7, 1))] * 4


async def test_a_step_ad_hoc_needs_a_name_and_a_function_that_was_not_called() -> None:
    app = App()

    @app.workflow
    async def one() -> list[str]:
        found = list[str]()
        step: Any = run.step
        for arguments in ((" ", len), ("name", 3), (len, "name")):
            try:
                await step(*arguments)
            except InvalidInput as error:
                found.append(str(error))
        return found

    async with world(app):
        blank, called, swapped = await one()
        assert "is not a name" in blank
        assert "do not call it yourself" in called
        assert "takes a name first, then the function" in swapped


def test_outside_runs_everything_of_run_says_that_there_is_none() -> None:
    for ask in (
        lambda: run.id,
        lambda: run.attempt,
        lambda: run.version,
        lambda: run.deadline,
        lambda: run.attributes,
        lambda: run.step_key,
        run.now,
        run.random,
        run.uuid,
        lambda: run.sleep.sync(1),
        lambda: run.sleep_until.sync(1),
        lambda: run.step.sync("name", len, "x"),
    ):
        with pytest.raises(NotInRun, match="available only inside a workflow or step"):
            ask()


async def test_inside_a_step_nothing_waits_durably_and_nothing_is_recorded_by_itself() -> None:
    app = App()

    @app.step
    async def tries() -> list[str]:
        found = list[str]()
        for verb in (lambda: run.sleep(1), lambda: run.sleep_until(1), lambda: run.step("name", len, "x")):
            try:
                await verb()
            except NotInRun as error:
                found.append(str(error))
        return found

    @app.workflow
    async def one() -> list[str]:
        return await tries()

    async with world(app):
        sleep, until, step = await one()
        assert "run.sleep belongs in a workflow" in sleep
        assert "run.sleep_until belongs in a workflow" in until
        assert "run.step belongs in a workflow" in step


async def test_a_handle_described_inside_a_run_is_recorded(store_url: str) -> None:
    app = App()

    @app.workflow
    async def leaf() -> int:
        return 3

    @app.workflow
    async def one() -> list[Any]:
        handle = await leaf.options(id="leaf").start()
        await handle.result()
        found = await handle.describe()
        return [found.state.value, found.output, found.created, await handle.cancel(), await app.handle("?").cancel()]

    async with world(app, at="2026-01-01T00:00Z", url=store_url):
        expected = ["succeeded", 3, datetime(2026, 1, 1, tzinfo=UTC), False, False]
        assert await one.options(id="a")() == expected
        assert [step.kind for step in record(app, "a")] == ["start", "result", "step", "step", "step"]
        put(app, one, "b", store_of(app).steps("a"))
        assert await app.handle("b").result() == expected
        assert info(app, "b").recoveries == 1
