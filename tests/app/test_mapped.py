"""A coroutine whose result goes through a function behaves as one coroutine."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from mainspring.app.coroutines import Mapped


async def number() -> int:
    await asyncio.sleep(0)
    return 3


async def fails() -> int:
    await asyncio.sleep(0)
    raise KeyError("a")


def double(found: int) -> int:
    return 2 * found


async def test_it_can_be_awaited_and_be_a_task() -> None:
    assert await Mapped(number(), double) == 6
    assert await asyncio.create_task(Mapped(number(), double)) == 6
    assert await Mapped(Mapped(number(), double), str) == "6"
    found: Any = await asyncio.gather(Mapped(number(), double), Mapped(number(), str))
    assert found == [6, "3"]
    with pytest.raises(KeyError):
        await Mapped(fails(), double)
    with pytest.raises(KeyError):
        await asyncio.create_task(Mapped(fails(), double))


async def test_an_attribute_of_the_result_is_an_error_that_says_await() -> None:
    waits = Mapped(number(), double)
    with pytest.raises(AttributeError, match="no attribute 'result'; write `await`"):
        _ = waits.result
    assert not hasattr(waits, "cr_code")
    assert await waits == 6


@pytest.mark.parametrize("turns", range(3))
async def test_given_up_at_any_moment_it_leaves_nothing_behind(turns: int) -> None:
    task: asyncio.Task[int] = asyncio.create_task(Mapped(number(), double))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled() or task.result() == 6
    Mapped(number(), double).close()
    gc.collect()  # a coroutine that was never awaited would be an error here
