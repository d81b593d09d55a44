"""Steps are tried as their policy says, across crashes; what is given up is the exception itself."""

from __future__ import annotations

import asyncio
import functools
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, Retry, Settings, run
from mainspring.errors import InvalidInput, NotSerializable, TooLarge
from mainspring.testing import world
from tests.engine.lives import another_process, put, record, store_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)


def offsets(times: list[datetime]) -> list[float]:
    return [(when - MIDNIGHT).total_seconds() for when in times]


async def test_pauses_grow_by_the_factor_up_to_the_cap_and_none_follows_the_last_attempt(store_url: str) -> None:
    app, tried = App(), list[datetime]()

    @app.step(retry=Retry(6, first=1, factor=2, cap=5))
    async def flaky() -> None:
        tried.append(w.now)
        raise ConnectionError("away")

    @app.workflow
    async def one() -> str:
        try:
            await flaky()
        except ConnectionError:
            return "gave up"
        return "?"

    async with world(app, at=MIDNIGHT, url=store_url) as w:
        assert await one() == "gave up"
        assert offsets(tried) == [0, 1, 3, 7, 12, 17]
        assert (w.now - MIDNIGHT).total_seconds() == 17


@pytest.mark.parametrize("colour", ["async", "def"])
async def test_when_attempts_run_out_the_last_exception_itself_is_raised_with_a_note_of_all(
    store_url: str, colour: str
) -> None:
    app, tried = App(), list[int]()

    @app.step(retry=3)
    def flaky() -> None:
        tried.append(run.attempt)
        raise ValueError(f"number {len(tried)}")

    @app.workflow
    def blocking() -> None:
        flaky()

    @app.workflow
    async def coroutine() -> None:
        await flaky.aio()

    async with world(app, url=store_url):
        handle = await (coroutine if colour == "async" else blocking).options(id="a").start()
        with pytest.raises(ValueError, match="number 3") as caught:
            await handle.result()
        (note,) = caught.value.__notes__
        assert note.splitlines() == [
            "gave up after 3 attempts:",
            "  1. ValueError: number 1",
            "  2. ValueError: number 2",
            "  3. ValueError: number 3",
        ]
        (step,) = record(app, "a")
        assert (step.attempts, len(step.tried)) == (3, 3)
    assert tried == [1, 2, 3]


@pytest.mark.parametrize(
    ("policy", "attempts"),
    [
        (Retry(4), 4),
        (Retry(4, on=(ConnectionError,)), 1),
        (Retry(4, on=LookupError), 4),
        (Retry(4, on=(ConnectionError, KeyError)), 4),
        (Retry(4, unless=(KeyError,)), 1),
        (Retry(4, unless=ConnectionError), 4),
        (Retry(4, on=lambda error: "again" in str(error)), 4),
        (Retry(4, on=lambda error: "never" in str(error)), 1),
    ],
)
async def test_only_exceptions_that_the_policy_names_are_tried_again(policy: Retry, attempts: int) -> None:
    app, tried = App(), list[int]()

    @app.step(retry=policy)
    async def flaky() -> None:
        tried.append(1)
        raise KeyError("again")

    @app.workflow
    async def one() -> None:
        await flaky()

    async with world(app):
        with pytest.raises(KeyError):
            await one()
    assert len(tried) == attempts


async def test_a_test_of_exceptions_that_raises_is_the_outcome(store_url: str) -> None:
    app = App()

    def broken(error: BaseException) -> bool:
        raise ZeroDivisionError(f"while looking at {error}")

    @app.step(retry=Retry(5, on=broken))
    async def flaky() -> None:
        raise KeyError("x")

    @app.workflow
    async def one() -> None:
        await flaky()

    async with world(app, url=store_url):
        handle = await one.options(id="a").start()
        with pytest.raises(ZeroDivisionError, match="while looking at"):
            await handle.result()
        assert [step.attempts for step in record(app, "a")] == [1]


@pytest.mark.parametrize("colour", ["async", "def"])
@pytest.mark.parametrize("exit_", [SystemExit(3), asyncio.CancelledError("x"), GeneratorExit()])
async def test_a_test_of_exceptions_that_exits_or_cancels_ends_its_own_run_and_nothing_else(
    store_url: str, exit_: BaseException, colour: str
) -> None:
    app = App()

    def broken(error: BaseException) -> bool:
        raise exit_

    policy = Retry(5, on=broken)

    @app.step(retry=policy)
    async def flaky() -> None:
        raise KeyError("x")

    @app.workflow
    async def together() -> None:
        await asyncio.gather(flaky(), flaky())

    async def fails() -> None:
        raise KeyError("y")

    def fails_blocking() -> None:
        raise KeyError("y")

    workflow: Any = app.workflow(retry=policy)(fails if colour == "async" else fails_blocking)

    async with world(app, url=store_url):
        with pytest.raises(RuntimeError, match=f"Retry: on=.* raised {type(exit_).__name__}"):
            await (await together.start()).result()
        with pytest.raises(KeyError, match="y"):
            await (await workflow.start()).result()


async def test_the_attempt_count_survives_a_crash_between_two_attempts(store_url: str) -> None:
    app, tried = App(), list[float]()

    @app.step(retry=Retry(3, first="1h", factor=1))
    async def flaky() -> None:
        tried.extend(offsets([w.now]))
        raise ConnectionError(str(run.attempt))

    @app.workflow
    async def one() -> str:
        try:
            await flaky()
        except ConnectionError as error:
            return str(error)
        return "?"

    async with world(app, at=MIDNIGHT, url=store_url) as w:
        handle = await one.start()
        await w.advance("30m")
        await another_process(w)
        await w.advance("1h")
        await another_process(w)
        assert await handle.result() == "3"
    assert tried == [0, 3600, 7200]


async def test_jitter_adds_a_fraction_that_is_the_same_in_every_replay() -> None:
    policy = Retry(5, first=10, factor=1, jitter=0.5)
    error = ConnectionError()
    pauses = [policy.pause(1, error, f"run-{number}/0") for number in range(50)]
    assert pauses == [policy.pause(1, error, f"run-{number}/0") for number in range(50)]
    assert all(pause is not None and 10_000_000 <= pause < 15_000_000 for pause in pauses)
    assert len(set(pauses)) > 40


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts": 0},
        {"attempts": 2.5},
        {"attempts": True},
        {"factor": 0.5},
        {"factor": float("nan")},
        {"jitter": 2},
        {"first": -1},
        {"cap": "soon"},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        Retry(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [object(), "x" * 200_000, float("nan")])
async def test_a_result_that_cannot_be_stored_is_not_tried_again(store_url: str, bad: object) -> None:
    app, tried = App(settings=Settings(value_bytes=100_000)), list[int]()

    @app.step(retry=5)
    async def unstorable() -> object:
        tried.append(1)
        return bad

    @app.workflow
    async def one() -> str:
        try:
            await unstorable()
        except (NotSerializable, TooLarge) as error:
            return type(error).__name__
        return "?"

    async with world(app, url=store_url):
        assert await one.options(id="a")() in {"NotSerializable", "TooLarge"}
        put(app, one, "b", store_of(app).steps("a"))
        assert await app.handle("b").result() in {"NotSerializable", "TooLarge"}
    assert tried == [1]


async def test_an_attempt_that_a_crash_cuts_off_does_not_count(store_url: str) -> None:
    app, tried, began = App(), list[int](), asyncio.Event()

    @app.step(retry=Retry(2, first=1))
    async def flaky() -> str:
        tried.append(run.attempt)
        if len(tried) == 1:
            began.set()
            await asyncio.Event().wait()
        if len(tried) == 2:
            raise ConnectionError
        return "done"

    @app.workflow
    async def one() -> str:
        return await flaky()

    async with world(app, url=store_url) as w:
        handle = await one.start()
        await began.wait()
        await another_process(w)
        assert await handle.result() == "done"
    assert tried == [1, 1, 2]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"on": "ConnectionError"}, "on is a tuple of exceptions"),
        ({"on": (ConnectionError, "OSError")}, "on is a tuple of exceptions"),
        ({"on": int}, "on is a tuple of exceptions"),
        ({"unless": 5}, "unless is a tuple of exceptions"),
        ({"factor": "2"}, "factor is a number"),
        ({"factor": float("nan")}, "factor is a number"),
        ({"jitter": "much"}, "jitter is a fraction"),
        ({"attempts": 0}, "attempts is a whole number"),
        ({"first": -1}, "negative"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_where_it_is_written(given: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        Retry(**given)


async def _later(error: BaseException) -> bool:
    return isinstance(error, ConnectionError)


def _one_by_one(error: BaseException) -> Iterator[bool]:
    yield isinstance(error, ConnectionError)


async def _one_by_one_later(error: BaseException) -> AsyncIterator[bool]:
    yield isinstance(error, ConnectionError)


class _Object:
    async def __call__(self, error: BaseException) -> bool:
        return isinstance(error, ConnectionError)

    async def method(self, error: BaseException) -> bool:
        return isinstance(error, ConnectionError)


@pytest.mark.parametrize(
    "test",
    [
        _later,
        _one_by_one,
        _one_by_one_later,
        _Object(),
        _Object().method,
        functools.partial(_later),
        functools.partial(_Object()),
        functools.partial(functools.partial(_Object().method)),
    ],
)
def test_a_test_of_exceptions_that_has_to_be_awaited_is_refused(test: Any) -> None:
    with pytest.raises(InvalidInput, match=r"Retry: on is a function that answers True or False at once"):
        Retry(4, on=test)


async def test_a_test_of_exceptions_that_turns_out_to_be_awaited_is_no_yes(store_url: str) -> None:
    app, tried = App(), list[int]()

    def plain_to_look_at(error: BaseException) -> Any:
        return _later(error)

    @app.step(retry=Retry(4, first=0.01, on=plain_to_look_at))
    async def pay() -> None:
        tried.append(1)
        raise ValueError("declined")

    @app.workflow
    async def one() -> None:
        await pay()

    async with world(app, url=store_url):
        with pytest.raises(InvalidInput, match="something to await"):
            await one()
    assert tried == [1]
