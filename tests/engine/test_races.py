"""Races between branches come out as they did, from wherever the record breaks off, and nothing that is recorded is done again."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Literal

import pytest
import uvloop

from mainspring import AsyncFn
from mainspring.testing import World, crash, world
from tests.engine.lives import put, record, store_of
from tests.engine.shapes import RACES, RACES_WITH_WAITS, app, conductor
from tests.support.samples import calls, covering, of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mainspring.model.runs import Step

Shape = AsyncFn[[], list[str]]


def name_of(shape: Shape) -> str:
    return shape.name


@pytest.mark.sampled
@pytest.mark.parametrize("shape", RACES, ids=name_of)
async def test_a_race_comes_out_as_it_did_from_every_prefix_of_its_record(shape: Shape, store_url: str) -> None:
    async with world(app, url=store_url) as w, conductor.conducting(app):
        for seed in range(of(2, 1)) if store_url.startswith("sqlite") else (3,):
            await prove_every_prefix(w, shape, seed)


@pytest.mark.sampled
@pytest.mark.parametrize("shape", RACES, ids=name_of)
def test_a_race_comes_out_as_it_did_on_uvloop_too(shape: Shape, sqlite_url: str) -> None:
    async def prove() -> None:
        async with world(app, url=sqlite_url) as w, conductor.conducting(app):
            await prove_every_prefix(w, shape, 4)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(prove())


async def prove_every_prefix(w: World, shape: Shape, seed: int) -> None:
    conductor.seed = seed
    live = f"live-{seed}"
    handle = await shape.options(id=live).start()
    result = await handle.result()
    outcomes = [step for step in store_of(app).steps(live) if step.seq is not None]
    assert [step.seq for step in outcomes] == list(range(len(outcomes)))
    for length in range(seed % of(1, 2), len(outcomes) + 1, of(1, 2)):
        conductor.begun.clear()
        run_id = f"from-{length}-{seed}"
        put(app, shape, run_id, outcomes[:length])
        assert await app.handle(run_id).result() == result, length
        assert not repeated(outcomes[:length]), length
        assert positions(run_id) == positions(live), length


def repeated(outcomes: list[Step]) -> list[str]:
    """Steps that were begun again although their outcome is recorded. A step's output is its name."""
    return [name for step in outcomes if (name := str(step.output).strip('"')) in conductor.begun]


def positions(run_id: str) -> list[tuple[str, str]]:
    return [(step.position, step.name) for step in record(app, run_id)]


@covering
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("shape", RACES_WITH_WAITS, ids=name_of)
async def test_a_race_with_waits_comes_out_as_it_did_whenever_the_process_dies(
    shape: Shape, when: Literal["before", "after"], store_url: str
) -> None:
    conductor.seed = 5
    async with conductor.conducting(app):
        expected = (await crash(app, started(shape, "undisturbed"), at=None, url=store_url)).result
        for at in calls(when):
            outcome = await crash(app, started(shape, f"crash-{at}"), at=at, when=when, url=store_url)
            assert outcome.result == expected, at
            if not outcome.crashed:
                return
    pytest.fail("the workload never came to its end without a crash")


def started(shape: Shape, run_id: str) -> Callable[[], Awaitable[list[str]]]:
    async def start_and_wait() -> list[str]:
        before = store_of(app).steps(run_id) + store_of(app).steps(f"{run_id}/0")
        conductor.begun = Counter()
        handle = await shape.options(id=run_id).start()
        result = await handle.result()
        assert not repeated([step for step in before if step.seq is not None])
        return result

    return start_and_wait
