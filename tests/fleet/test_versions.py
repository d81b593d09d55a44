"""Two versions of an app on one database: who may continue a run, and what becomes of one that nobody may."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from mainspring import App, Settings, State
from mainspring.model.runs import RunFilter
from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainspring.model.runs import Run
    from mainspring.store.protocol import Store
    from tests.support.processes import Fleet, Process

pytestmark = pytest.mark.processes

HEAD = """
import asyncio
from tests.fleet.apps import App, gates, ledger, run

app = App()

@app.step
async def note(step: str) -> None:
    ledger.add(run.id, step)

@app.step
async def gate(name: str) -> None:
    ledger.add(run.id, f"gate-{name}")
    while not (gates / f"gate-{name}").exists():
        await asyncio.sleep(0.01)

@app.workflow
async def untouched() -> str:
    await note("one")
    await gate("middle")
    return "as ever"

@app.workflow
async def order() -> str:
"""
FIRST = """
    await note("one")
    await gate("middle")
    await note("three")
    return "first"
"""
LONGER = """
    await note("one")
    await gate("middle")
    await note("three")
    await note("four")
    return "longer"
"""
OTHER = """
    await gate("middle")
    return "other"
"""
ANOTHER = """
    await run.sleep(1)
    return "another"
"""


class Shop:
    """A client that knows the functions by name only: what they do is the workers' business."""

    def __init__(self, url: str) -> None:
        self.app = App(url, settings=Settings(work=False, poll=60))

        @self.app.workflow
        async def order() -> str:
            raise NotImplementedError

        @self.app.workflow
        async def untouched() -> str:
            raise NotImplementedError

        self.order, self.untouched = order, untouched


@pytest.fixture
def shop(store_url: str) -> Iterator[Shop]:
    made = Shop(store_url)
    yield made
    made.app.close()


def deploy(fleet: Fleet, body: str, **settings: object) -> Process:
    """A worker with this body of `order`."""
    script = fleet.folder / f"shop_{len(fleet.processes)}.py"
    script.write_text(HEAD + body)
    return fleet.worker(str(script), **settings)


def retire(worker: Process) -> None:
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0


async def test_a_deploy_strands_only_what_it_changes(fleet: Fleet, shop: Shop, store: Store) -> None:
    old = deploy(fleet, FIRST, grace=0.2)
    changed = await shop.order.options(id="changed").start()
    same = await shop.untouched.options(id="same").start()
    for run_id in ("changed", "same"):
        fleet.wait_for_step(run_id, "gate-middle")
    retire(old)
    fleet.open_gate("middle")

    deploy(fleet, LONGER)
    assert await same.result(timeout=10) == "as ever"
    assert fleet.ledger.steps("same").count("one") == 1
    assert await (await shop.order.start()).result(timeout=10) == "longer"

    eventually(lambda: [run.id for run in stranded(store)] == ["changed"], "the run is stranded, visibly")
    told = await changed.describe()
    assert told.state is State.QUEUED
    assert "the source of order has changed" in str(told.stranded)

    deploy(fleet, FIRST)  # the old code again, beside the new one: each does its own
    assert await changed.result(timeout=10) == "first"
    assert fleet.ledger.steps("changed") == ["one", "gate-middle", "gate-middle", "three"]
    assert stranded(store) == []


async def test_a_version_may_continue_what_its_replay_agrees_with(fleet: Fleet, shop: Shop, store: Store) -> None:
    old = deploy(fleet, FIRST, grace=0.2)
    handle = await shop.order.options(id="r").start()
    fleet.wait_for_step("r", "gate-middle")
    retire(old)
    fleet.open_gate("middle")
    deploy(fleet, LONGER, continue_on="compatible")
    assert await handle.result(timeout=10) == "longer"
    assert fleet.ledger.steps("r") == ["one", "gate-middle", "gate-middle", "three", "four"]


@pytest.mark.parametrize("versions", [[OTHER], [OTHER, ANOTHER]], ids=["one", "two"])
async def test_versions_that_disagree_leave_a_run_alone_after_trying_once(
    fleet: Fleet, shop: Shop, store: Store, versions: list[str]
) -> None:
    old = deploy(fleet, FIRST, grace=0.2)
    handle = await shop.order.options(id="r").start()
    fleet.wait_for_step("r", "gate-middle")
    retire(old)
    before = (await handle.describe()).epoch

    for body in versions:
        deploy(fleet, body, continue_on="compatible")
    eventually(lambda: all_tried(store, before + len(versions)), "every version has tried")
    tried = (await handle.describe()).epoch
    assert "at position 0 the record has step 'note'" in str((await handle.describe()).stranded)
    for _ in range(20):  # work that goes on gives everybody the chance to claim it again
        await (await shop.untouched.start()).describe()
    fleet.open_gate("middle")
    for _ in range(20):
        await (await shop.untouched.start()).result(timeout=10)
    assert (await handle.describe()).epoch == tried
    assert fleet.ledger.steps("r") == ["one", "gate-middle"]

    deploy(fleet, FIRST)
    assert await handle.result(timeout=10) == "first"


def stranded(store: Store) -> list[Run]:
    return store.runs(RunFilter(stranded=True))


def all_tried(store: Store, epoch: int) -> bool:
    found = store.run("r")
    return found is not None and found.epoch >= epoch and found.state is State.QUEUED
