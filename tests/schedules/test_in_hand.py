"""A run that a schedule starts begins in the hand of the worker that acted on it, if there is room; else whoever has takes it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from mainspring import Overlap, Policy, Spec, State
from mainspring.errors import StoreUnavailable
from mainspring.testing import world
from tests.schedules.conftest import BEGIN, Bench, at

if TYPE_CHECKING:
    import pytest

    from mainspring.store.protocol import Claimed, ClaimRequest
    from mainspring.store.schedules import Decide, Passed, Plan, Situation

RUN = "s-2022-06-01T00:05:00Z"


def _store(bench: Bench) -> Any:
    return bench.app._runtime.connection().store


async def test_it_needs_no_claim(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    store = _store(bench)
    claim = store.claim
    taken: list[Any] = []

    def watched(request: ClaimRequest) -> Claimed:
        claimed: Claimed = claim(request)
        taken.extend(claimed.claims)
        return claimed

    monkeypatch.setattr(store, "claim", watched)
    call = bench.act.options(timeout="1h").bind()
    await bench.app.schedules.create("s", call, Spec(intervals=["5m"]))
    await bench.to("00:06")
    found = await bench.app.handle(RUN).describe()
    assert (found.state, found.started, found.schedule) == (State.SUCCEEDED, at("00:05"), "s")
    assert store.run(RUN).deadline == store.run(RUN).started + 3_600_000_000
    assert bench.starts == [("00:05", "00:05")]
    assert taken == []


async def test_a_worker_that_claims_nothing_takes_nothing_in_hand(bench: Bench) -> None:
    await bench.create("5m")
    bench.app.pause()
    await bench.to("00:06")
    assert (await bench.app.handle(RUN).describe()).state is State.QUEUED
    bench.app.resume()
    assert await bench.app.handle(RUN).result() == "00:05"


async def test_without_room_it_waits_to_be_claimed(store_url: str) -> None:
    bench = Bench(store_url, concurrency=1)
    gate = asyncio.Event()

    @bench.app.workflow
    async def hold() -> None:
        await gate.wait()

    async with world(bench.app, at=BEGIN, url=store_url) as bench.world:
        for name, call in (("holds", hold.bind()), ("s", bench.act.bind())):
            await bench.app.schedules.create(name, call, Spec(intervals=["5m"]), Policy(Overlap.ALLOW_ALL))
        await bench.to("00:05")
        states = sorted(str(each.state) for each in (await bench.app.runs.list()).runs)
        gate.set()
        assert await bench.app.handle(RUN).result() == "00:05"
    assert states == ["queued", "running"]


async def test_when_it_is_not_known_whether_it_was_stored_it_is_anybodys(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _store(bench)
    fire = store.schedules.fire
    deaf: list[Passed] = []

    def deafened(*given: Any) -> Passed:
        passed: Passed = fire(*given)
        if passed.owned and not deaf:
            deaf.append(passed)
            raise StoreUnavailable("the line broke")
        return passed

    await bench.create("5m")
    monkeypatch.setattr(store.schedules, "fire", deafened)
    await bench.to("00:11")
    assert len(deaf) == 1
    assert [nominal for nominal, _ in bench.starts] == ["00:05", "00:10"]
    assert (await bench.app.handle(RUN).describe()).state is State.SUCCEEDED
    assert bench.app._runtime.engine is not None
    assert bench.app._runtime.engine.local_starts.ids == set()


async def test_a_plan_that_is_made_again_holds_no_place_twice(bench: Bench) -> None:
    """A run has the id that the tick wants: the plan is made a second time, knowing that."""
    await bench.act.options(id=RUN, after="1d").start()
    await bench.create("5m", Overlap.ALLOW_ALL)
    await bench.to("00:11")
    assert [str(tick.outcome) for tick in await bench.ticks()] == ["start_failed", "fired"]
    engine = bench.app._runtime.engine
    assert engine is not None
    async with asyncio.timeout(60):  # a claim holds some for as long as it takes
        while engine.slots.free() != engine.settings.concurrency:  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_a_decision_inside_the_transaction_reserves_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slots are reserved before a transaction begins and given back after it: a plan only takes from those."""
    store = _store(bench)
    fire = store.schedules.fire
    engine = bench.app._runtime.engine
    assert engine is not None
    free: list[tuple[int, int]] = []

    def watched(now: int, limit: int, decide: Decide, *others: Any) -> Passed:
        def decided(situation: Situation) -> Plan:
            before = engine.slots.free()
            plan = decide(situation)
            free.append((before, engine.slots.free()))
            return plan

        passed: Passed = fire(now, limit, decided, *others)
        return passed

    monkeypatch.setattr(store.schedules, "fire", watched)
    await bench.create("5m")
    await bench.to("00:06")
    assert bench.starts == [("00:05", "00:05")]
    assert (await bench.app.handle(RUN).describe()).state is State.SUCCEEDED
    assert free
    assert all(before == after < engine.settings.concurrency for before, after in free)
