"""What functions return and raise: kept as it is, live and on replay; what cannot be kept ends the run, never leaves it stuck."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from mainspring import App, Settings, State, run
from mainspring.codec import size_of, value_codec
from mainspring.errors import NotSerializable, RemoteError, TooLarge
from mainspring.testing import world
from tests.engine.lives import info, put, record, store_of


class Declined(Exception):
    def __init__(self, code: int, *, retryable: bool) -> None:
        super().__init__(f"declined with {code}")
        self.code = code
        self.retryable = retryable


async def test_none_is_a_result_like_any_other(store_url: str) -> None:
    app, done = App(), list[str]()

    @app.step
    async def nothing() -> None:
        done.append("step")

    @app.workflow
    async def one() -> None:
        assert await nothing() is None  # type: ignore[func-returns-value]

    async with world(app, url=store_url):
        handle = await one.options(id="a").start()
        assert await handle.result() is None  # type: ignore[func-returns-value]
        assert info(app, "a").state is State.SUCCEEDED
        put(app, one, "b", store_of(app).steps("a"))
        assert await app.handle("b").result() is None
    assert done == ["step"]


async def test_an_exception_keeps_its_type_and_attributes_live_on_replay_and_on_every_later_call(
    store_url: str,
) -> None:
    app, raised, caught = App(), list[int](), list[Declined]()

    @app.step
    async def charge() -> None:
        raised.append(1)
        raise Declined(402, retryable=True)

    @app.workflow
    async def one() -> None:
        try:
            await charge()
        except Declined as error:
            caught.append(error)
            raise

    async with world(app, url=store_url):
        handle = await one.options(id="a").start()
        for _ in range(2):
            with pytest.raises(Declined) as again:
                await handle.result()
            assert (again.value.code, again.value.retryable, str(again.value)) == (402, True, "declined with 402")
        with pytest.raises(Declined):
            await one.options(id="a")()
        put(app, one, "b", store_of(app).steps("a"))
        with pytest.raises(Declined):
            await app.handle("b").result()
        assert info(app, "a").state is info(app, "b").state is State.FAILED
        assert info(app, "a").reason == "Declined: declined with 402"
    assert raised == [1]
    assert [(error.code, error.retryable) for error in caught] == [(402, True), (402, True)]


async def test_a_parent_gets_the_exception_of_its_child_and_can_handle_it(store_url: str) -> None:
    app = App()

    @app.workflow
    async def child() -> None:
        raise Declined(1, retryable=False)

    @app.workflow
    async def parent() -> list[int]:
        codes = list[int]()
        try:
            await child()
        except Declined as error:
            codes.append(error.code)
        handle = await child.start()
        try:
            await handle.result()
        except Declined as error:
            codes.append(error.code)
        return codes

    async with world(app, url=store_url):
        assert await parent() == [1, 1]


async def test_an_exception_that_cannot_be_rebuilt_is_a_remote_error_that_says_all(store_url: str) -> None:
    app = App()

    class Stubborn(Exception):
        def __init__(self, where: object) -> None:
            super().__init__("no way")
            self.where = where

        def __str__(self) -> str:
            return f"no way through {type(self.where).__name__}"

    @app.workflow
    async def one() -> None:
        raise Stubborn(object())

    @app.workflow
    async def parent() -> str:
        try:
            await one()
        except RemoteError as error:
            return error.run_id
        return "?"

    async with world(app, url=store_url):
        with pytest.raises(RemoteError) as caught:
            await one.options(id="a")()
        assert caught.value.type_name.endswith("Stubborn")
        assert caught.value.message == "no way through object"
        assert caught.value.run_id == "a"
        assert "in one" in caught.value.traceback
        assert await parent.options(id="p")() == "p/0"


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError("x"), KeyboardInterrupt()])
async def test_an_exit_or_cancellation_ends_its_own_run_and_nobody_elses(store_url: str, error: BaseException) -> None:
    app = App()

    @app.workflow
    def leaves() -> None:
        raise error

    @app.workflow
    async def parent() -> str:
        try:
            await leaves.aio()
        except Exception as caught:  # noqa: BLE001
            return type(caught).__name__
        return "?"

    async with world(app, url=store_url):
        with pytest.raises(RemoteError, match=type(error).__name__):
            await leaves.options(id="a").aio()
        assert info(app, "a").state is State.FAILED
        assert await parent() == "RemoteError"


@pytest.mark.parametrize("bad", [object(), math.nan, {1: math.inf}, "\ud800", lambda: 1])
async def test_a_result_that_cannot_be_stored_ends_the_run_failed_never_stuck(store_url: str, bad: object) -> None:
    app = App()

    @app.workflow
    async def coroutine() -> object:
        return bad

    @app.workflow
    def blocking() -> object:
        return bad

    @app.step
    async def step() -> object:
        return bad

    @app.workflow
    async def in_step() -> str:
        try:
            await step()
        except NotSerializable as error:
            return str(error)
        return "?"

    async with world(app, url=store_url):
        for workflow in (coroutine, blocking):
            handle = await workflow.start()
            with pytest.raises(NotSerializable, match=f"the result of '{workflow.name}'"):
                await handle.result()
            assert info(app, handle.id).state is State.FAILED
        assert "the result of 'step'" in await in_step()


async def test_an_exception_full_of_things_that_cannot_be_stored_still_ends_the_run(store_url: str) -> None:
    app = App()

    @app.workflow
    async def one() -> None:
        error = ValueError(object(), math.nan, "a\0b")
        error.extra = asyncio.get_running_loop()  # type: ignore[attr-defined]
        raise error

    async with world(app, url=store_url):
        handle = await one.options(id="a").start()
        with pytest.raises((ValueError, RemoteError)):
            await handle.result()
        assert info(app, "a").state is State.FAILED


async def test_text_with_a_null_character_is_kept(store_url: str) -> None:
    app = App()

    @app.step
    async def echo(text: str) -> str:
        return text

    @app.workflow
    async def one(text: str) -> str:
        return await echo(text)

    async with world(app, url=store_url):
        assert await one("a\0b") == "a\0b"


async def test_values_above_the_limit_are_refused_where_they_come_up(store_url: str) -> None:
    app = App(settings=Settings(value_bytes=1_000))

    @app.step
    async def large(size: int) -> str:
        return "x" * size

    @app.workflow
    async def result(size: int) -> str:
        return await large.options()(size) if size < 990 else "x" * size

    @app.workflow
    async def in_step() -> str:
        try:
            await large(1_001)
        except TooLarge as error:
            return str(error)
        return "?"

    @app.workflow
    async def argument(text: str) -> str:
        return text

    async with world(app, url=store_url):
        assert len(await result(980)) == 980
        assert len(await result(1_000)) == 1_000
        with pytest.raises(TooLarge, match="the result of 'result': 1,001 bytes; the limit is 1,000"):
            await result(1_001)
        assert "the result of step 'large': 1,001 bytes" in await in_step()
        with pytest.raises(TooLarge, match="the arguments of 'argument'"):
            await argument("x" * 1_000)
        with pytest.raises(TooLarge, match="the arguments of 'argument'"):
            argument.bind("x" * 1_000)


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (b"\0" * 7_000_000, 7_000_000),
        (bytearray(7_000_000), 7_000_000),
        ("\n" * 7_000_000, 7_000_000),
        ("€" * 2_500_000, 7_500_000),
        ([b"\0" * 3_500_000, {"a": b"\0" * 3_500_000}], 7_000_012),
        (["x"] * 100, 401 - 200),
    ],
    ids=["bytes", "bytearray", "escapes", "euros", "nested", "list"],
)
async def test_a_value_is_as_large_as_its_user_counts(value: Any, size: int) -> None:
    encoded = value_codec(Any, "it").encode(value)
    assert size <= size_of(encoded, value) <= size + 200  # the names of types in values without an annotation
    app = App("sqlite://", settings=Settings(value_bytes=size + 200))
    small = App("sqlite://", settings=Settings(value_bytes=max(64, size - 100)))

    for each in (app, small):

        @each.step(name="step")
        async def step(given: Any) -> Any:
            return given

        @each.workflow(name="echo")
        async def echo(given: Any) -> Any:
            await run.set_event("said", given)
            await run.write_stream("log", given)
            await each.send(run.id, "topic", given)  # noqa: B023
            return await step(given)

        async with each:
            if each is app:
                handle = await echo.start(value)
                assert await handle.result() == value
                assert await app.get_event(handle.id, "said") == value
            else:
                with pytest.raises(TooLarge, match="the arguments of 'echo'"):
                    await echo.start(value)


async def test_stop_iteration_of_a_step_is_an_error_like_any_other(store_url: str) -> None:
    app = App()

    @app.step
    def blocking() -> None:
        raise StopIteration(1)

    @app.step
    async def coroutine() -> None:
        raise StopIteration(1)

    @app.workflow
    async def from_async() -> list[str]:
        found = list[str]()
        for step in (blocking.aio, coroutine):
            try:
                await step()
            except RuntimeError as error:
                found.append(str(error))
        return found

    @app.workflow
    def from_def() -> list[str]:
        found = list[str]()
        for step in (blocking, coroutine.sync):
            try:
                step()
            except RuntimeError as error:
                found.append(str(error))
        return found

    async with world(app, url=store_url):
        for workflow in (from_async, from_def):
            handle = await workflow.options(id=workflow.name).start()
            assert await handle.result() == ["step 'blocking' raised StopIteration", "coroutine raised StopIteration"]
            assert len(record(app, handle.id)) == 2


async def test_code_that_cancels_itself_fails_its_run_with_words(store_url: str) -> None:
    app = App()

    @app.workflow
    async def work() -> None:
        task = asyncio.create_task(run.sleep("1d"))
        task.cancel()
        await task

    async with world(app, url=store_url):
        await work.options(id="a").start()
        with pytest.raises(RemoteError):
            await app.handle("a").result()
        found = info(app, "a")
        assert found.state is State.FAILED
        assert (found.reason or "").startswith("CancelledError: the code of the run cancelled itself")
