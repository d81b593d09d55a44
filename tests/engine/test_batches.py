"""Batch functions: one call for many inputs, each with a record, a retry and an end of its own."""

from __future__ import annotations

import asyncio
import itertools
import threading
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

import pytest

from mainspring import App, Client, Retry, State, run
from mainspring.errors import BatchMismatch, Interrupted, InvalidInput, NotInRun, StepTimedOut
from mainspring.testing import crash, world

if TYPE_CHECKING:
    from collections.abc import Sequence

app = App("sqlite://")
jobs = app.queue("jobs")
calls: list[list[Any]] = []


@pytest.fixture(autouse=True)
def no_calls() -> None:
    calls.clear()


@app.step(batch=3)
async def doubled(numbers: list[int]) -> list[int | Exception]:
    calls.append(numbers)
    return [ValueError("unlucky") if number == 13 else number * 2 for number in numbers]


@app.step(batch=100)
def doubled_on_a_thread(numbers: list[int]) -> list[int]:
    calls.append(numbers)
    assert threading.current_thread() is not threading.main_thread()
    return [number * 2 for number in numbers]


@app.step(batch=10, retry=Retry(3, first=1))
async def flaky(numbers: list[int]) -> Sequence[int | ConnectionError]:
    calls.append(numbers)
    return [ConnectionError("busy") if number % 2 and len(calls) < 3 else number for number in numbers]


@app.workflow
async def parallel(numbers: list[int]) -> list[int]:
    return await asyncio.gather(*(doubled(number) for number in numbers))


@app.workflow
def in_order(number: int) -> int:
    return doubled_on_a_thread(doubled.sync(number))


async def test_calls_that_are_made_at_once_share_batches_and_are_steps_of_their_own(store_url: str) -> None:
    async with world(app, url=store_url):
        handle = await parallel.start([1, 2, 3, 4])
        assert await handle.result() == [2, 4, 6, 8]
        assert calls == [[1, 2, 3], [4]]
        steps = await app.runs.steps(handle.id)
        assert [(step.name, step.output) for step in steps] == [("doubled", value) for value in (2, 4, 6, 8)]


async def test_jobs_that_are_claimed_together_share_a_batch(store_url: str) -> None:
    async with world(app, url=store_url) as w:
        app.pause()
        calls_made = [
            doubled_on_a_thread.options(queue="jobs", id=f"job-{number}").bind(number) for number in range(20)
        ]
        handles = await app.start_many(calls_made)
        app.resume()
        await w.drain()
        assert sorted(await app.gather(*handles)) == [number * 2 for number in range(20)]
        assert len(calls) < 20
        assert sorted(number for batch in calls for number in batch) == list(range(20))
        described = await app.runs.get("job-3")
        assert (described.state, described.kind, described.output) == (State.SUCCEEDED, "step", 6)


async def test_each_input_fails_or_succeeds_by_itself(store_url: str) -> None:
    async with world(app, url=store_url) as w:
        handles = await app.start_many(doubled.bind(number) for number in (1, 13, 2))
        await w.drain()
        assert await handles[0].result() == 2
        assert await handles[2].result() == 4
        with pytest.raises(ValueError, match="unlucky"):
            await handles[1].result()


async def test_only_inputs_that_failed_are_retried(store_url: str) -> None:
    async with world(app, url=store_url) as w:
        handles = await app.start_many(flaky.bind(number) for number in (1, 2, 3))
        await w.advance("1h")
        assert await app.gather(*handles) == [1, 2, 3]
        assert sorted(number for batch in calls for number in batch if number == 2) == [2]
        assert all(2 not in batch for batch in calls[1:])


async def test_blocking_workflows_and_plain_code_call_with_one_input(store_url: str) -> None:
    async with world(app, url=store_url):
        assert await (await in_order.start(5)).result() == 20
        assert await doubled(4) == 8
        assert await doubled_on_a_thread.aio(4) == 8
        with pytest.raises(ValueError, match="unlucky"):
            await doubled(13)


@app.step(batch=10)
async def short(numbers: list[int]) -> list[int]:
    return numbers[1:]


@app.step(batch=10)
async def no_list(numbers: list[int]) -> list[int]:
    return len(numbers)  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


@app.step(batch=10)
async def breaks(numbers: list[int]) -> list[int]:
    raise OSError(f"no answer for {numbers}")


@app.step(batch=10, timeout=0.05)
async def slow(numbers: list[int]) -> list[int]:
    await asyncio.sleep(30)
    return numbers


@app.step(batch=10)
async def looks_for_its_run(numbers: list[int]) -> list[str]:
    with pytest.raises(NotInRun):
        _ = run.id
    return [str(number) for number in numbers]


@pytest.mark.parametrize(
    ("step", "error", "words"),
    [
        (short, BatchMismatch, "got 2 inputs and returned 1"),
        (no_list, BatchMismatch, "returned a int"),
        (breaks, OSError, r"no answer for \[1, 2\]"),
        (slow, StepTimedOut, "timeout of 0.05 s for 2 inputs"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
async def test_what_is_wrong_with_a_batch_is_the_error_of_each_input(
    step: Any, error: type[Exception], words: str
) -> None:
    async with world(app) as w:
        handles = await app.start_many(step.bind(number) for number in (1, 2))
        await w.drain()
        for handle in handles:
            with pytest.raises(error, match=words):
                await handle.result()


async def test_a_batch_belongs_to_no_run() -> None:
    async with world(app):
        assert await (await looks_for_its_run.start(1)).result() == "1"


@dataclass
class Order:
    id: int
    price: Decimal


@app.step(batch=10)
async def price(orders: list[Order]) -> list[Decimal | KeyError]:
    return [order.price * 2 for order in orders]


async def test_inputs_and_outcomes_are_typed_by_the_elements_of_the_lists(store_url: str) -> None:
    async with world(app, url=store_url):
        assert await (await price.start(Order(1, Decimal("2.50")))).result() == Decimal("5.00")
        with pytest.raises(InvalidInput):
            await price.start({"id": "x"})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def test_a_client_starts_one_input(store_url: str) -> None:
    mine = App(store_url)

    @mine.step(batch=10)
    async def tripled(numbers: list[int]) -> list[int]:
        return [number * 3 for number in numbers]

    async with mine, Client(store_url) as client:
        assert tripled.name == "tripled"
        assert await (await client.options(queue="x").start("price", 1)).describe() is not None
        by_name = await mine.start("tripled", 7)
        assert await by_name.result(timeout=20) == 21


class Gate:
    """Lets a test look while a batch is being executed."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.open = asyncio.Event()


gate = Gate()


@app.step(batch=10)
async def again(numbers: list[int]) -> list[int]:
    calls.append(numbers)
    gate.entered.set()
    if len(calls) == 1:
        await gate.open.wait()
    return numbers


@app.step(batch=10, at_most_once=True)
async def once(numbers: list[int]) -> list[int]:
    calls.append(numbers)
    return numbers


@pytest.mark.parametrize("when", ["before", "after"])
async def test_no_crash_changes_what_a_batch_comes_to(store_url: str, when: Literal["before", "after"]) -> None:
    async def work() -> list[int]:
        batch = [doubled.options(id=f"{at}-{number}").bind(number) for number in (1, 2)]
        return await app.gather(*await app.start_many(batch))

    at = 0
    for at in itertools.count(1):
        outcome = await crash(app, work, at=at, when=when, url=store_url)
        assert outcome.result == [2, 4]
        if not outcome.crashed:
            break
    assert at > 3


async def test_no_crash_executes_an_input_twice_that_runs_at_most_once(store_url: str) -> None:
    async def work() -> list[int | str]:
        batch = [once.options(id=f"{at}-{number}").bind(number) for number in (1, 2)]
        found: list[int | str] = []
        for handle in await app.start_many(batch):
            try:
                found.append(await handle.result())
            except Interrupted:
                found.append("interrupted")
        return found

    for at in itertools.count(1):
        calls.clear()
        outcome = await crash(app, work, at=at, when="after", url=store_url)
        assert sorted(number for batch in calls for number in batch) in ([], [1], [2], [1, 2])
        assert all(value in (number, "interrupted") for number, value in zip((1, 2), outcome.result, strict=True))
        if not outcome.crashed:
            break


async def test_a_cancelled_input_leaves_its_neighbours_alone(store_url: str) -> None:
    gate.__init__()  # type: ignore[misc]
    async with world(app, url=store_url) as w:
        handles = await app.start_many(again.options(id=f"r{number}").bind(number) for number in (1, 2))
        await gate.entered.wait()
        assert await app.runs.cancel("r1")
        gate.open.set()
        await w.drain()
        assert (await app.runs.get("r1")).state is State.CANCELLED
        assert await handles[1].result() == 2


@pytest.mark.parametrize("size", [0, -1, True, "x"])
def test_the_size_of_a_batch_is_a_number_of_inputs(size: Any) -> None:
    with pytest.raises(InvalidInput, match="batch is the largest number"):
        App("sqlite://").step(batch=size)(lambda numbers: numbers)


def test_a_batch_function_takes_one_list_and_returns_one() -> None:
    other = App("sqlite://")

    async def two(numbers: list[int], more: int) -> list[int]:
        return [*numbers, more]

    async def nothing(numbers: list[int]) -> None:
        del numbers

    wrong: Any
    for wrong, words in ((two, "one parameter"), (nothing, "returns a list")):
        with pytest.raises(InvalidInput, match=words):
            other.step(batch=5)(wrong)
