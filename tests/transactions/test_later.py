"""Functions scheduled for later: what is accepted, when they run, what their records say, and what cancelling does."""

from __future__ import annotations

import asyncio
import logging
import math
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest

from mainspring import App, Client, Settings, State, Tx
from mainspring.errors import Interrupted, InvalidInput, NotFound, TooLarge, UnknownFunction
from mainspring.testing import world
from tests.transactions import bank

if TYPE_CHECKING:
    from mainspring.testing import World

app = App("sqlite://", settings=Settings(schedule_functions=20, schedule_bytes=2_000))
seen: list[object] = []


@app.step
async def note(what: Any) -> str:
    seen.append(what)
    return f"noted {what}"


@app.step
async def fail(what: str) -> None:
    raise LookupError(what)


@app.step(at_most_once=True)
async def once(what: str) -> None:
    seen.append(what)


@app.transaction
def enter(tx: Tx, entry: str) -> None:
    tx.execute("INSERT INTO ledger VALUES (?)", (entry,))
    if entry == "bad":
        raise ValueError(entry)


@app.transaction
def enter_and_schedule(tx: Tx, entry: str, *, good: bool) -> str:
    tx.execute("INSERT INTO ledger VALUES (?)", (entry,))
    handle = app.run_after.sync("1m", note.bind(entry))
    if not good:
        raise RuntimeError("rolled back")
    return handle.id


@app.transaction
def many(tx: Tx, count: int, size: int = 0) -> None:
    del tx
    for number in range(count):
        app.run_after.sync(0, note.bind("x" * size or number))


@app.step
async def schedules_then_fails(delay: str) -> None:
    await app.run_after(delay, note.bind("survives"))
    raise RuntimeError("too late to undo it")


@app.workflow
async def chain(left: int) -> int:
    seen.append(left)
    if left:
        await app.run_after("1h", chain.bind(left - 1))
    return left


async def state(handle_id: str) -> str:
    return (await app.scheduled_functions.get(handle_id)).state


# -- what is accepted --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("delay", [-1, -0.5, math.nan, math.inf, "six", True, None, timedelta(days=5 * 366 + 1), [1]])
async def test_a_bad_delay_is_refused_and_leaves_nothing(sqlite_url: str, delay: Any) -> None:
    async with world(app, url=sqlite_url):
        with pytest.raises(InvalidInput):
            await app.run_after(delay, note.bind(1))
        assert len(await app.scheduled_functions.list()) == 0


async def test_a_bad_time_is_refused(sqlite_url: str) -> None:
    async with world(app, url=sqlite_url) as w:
        year = timedelta(days=366)
        for when in (datetime(2026, 1, 1), w.now + 6 * year, w.now - 6 * year, math.nan, "tomorrow"):  # noqa: DTZ001
            with pytest.raises(InvalidInput):
                await app.run_at(cast("Any", when), note.bind(1))
        with pytest.raises(InvalidInput, match="bind"):
            await app.run_after(1, cast("Any", note))
        with pytest.raises(InvalidInput, match="say when"):
            await app.run_after(1, note.options(after=3).bind(1))


async def test_a_date_and_a_number_are_the_same_time_and_the_record_keeps_it(url: str) -> None:
    async with world(app, url=url) as w:
        when = w.now + timedelta(seconds=2)
        one = await app.run_at(when, note.bind("a"))
        two = await app.run_at(when.timestamp(), note.bind("b"))
        three = await app.run_after(2, note.bind("c"))
        for handle in (one, two, three):
            record = await app.scheduled_functions.get(handle.id)
            assert (record.scheduled_time, record.state, record.completed_time) == (when, "pending", None)
            assert record.created == w.now
        past = await app.run_at(w.now - timedelta(hours=1), note.bind("past"))
        assert await past.result() == "noted past"
        assert (await app.scheduled_functions.get(past.id)).scheduled_time == w.now - timedelta(hours=1)


async def test_arguments_of_any_shape_arrive_as_they_were(url: str) -> None:
    value = {"nested": [1, {"deep": None, "big": 2**60}], "text": "ünï"}
    async with world(app, url=url):
        handle = await app.run_after(0, note.bind(value))
        await handle.result()
        assert seen == [value]
        assert (await app.scheduled_functions.get(handle.id)).args == [{"what": value}]


# -- limits ------------------------------------------------------------------------------------------------------------
async def test_one_execution_schedules_so_many_and_no_more(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async with world(app, url=url):
        with caplog.at_level(logging.WARNING, "mainspring.app"):
            await many.aio(18)
            assert not [each for each in caplog.records if each.name == "mainspring.app"]
            await many.aio(20)
        assert len([each for each in caplog.records if each.name == "mainspring.app"]) == 1
        with pytest.raises(TooLarge, match="20"):
            await many.aio(21)
        with pytest.raises(TooLarge, match="2,000"):
            await many.aio(3, 800)
        assert len(await app.scheduled_functions.list(limit=100)) == 38
        for number in range(25):  # each is its own
            await app.run_after("1h", note.bind(number))


# -- when they run -----------------------------------------------------------------------------------------------------
async def test_only_what_is_due_runs_and_in_order_of_due_time(url: str) -> None:
    async with world(app, url=url) as w:
        for minutes in (3, 1, 2, 60):
            await app.run_after(minutes * 60, note.bind(minutes))
        await w.advance("5m")
        assert seen == [1, 2, 3]
        assert [record.args[0]["what"] for record in await app.scheduled_functions.list(state="pending")] == [60]


async def test_a_transaction_schedules_if_and_only_if_it_commits(url: str) -> None:
    async with world(app, url=url) as w:
        run_id = await enter_and_schedule.aio("good", good=True)
        with pytest.raises(RuntimeError):
            await enter_and_schedule.aio("bad", good=False)
        assert [record.id for record in await app.scheduled_functions.list()] == [run_id]
        await w.advance("2m")
        assert seen == ["good"]


async def test_what_a_step_scheduled_survives_its_failure_and_is_scheduled_once(url: str) -> None:
    async with world(app, url=url) as w:
        handle = await app.run_after(0, schedules_then_fails.bind("1m"))
        with pytest.raises(RuntimeError):
            await handle.result()
        await w.advance("2m")
        assert seen == ["survives"]


async def test_a_function_that_schedules_itself_makes_a_chain(url: str) -> None:
    async with world(app, url=url) as w:
        await app.run_after(0, chain.bind(3))
        await w.advance("5h")
        assert seen == [3, 2, 1, 0]


@app.transaction
def sees_its_own(tx: Tx, *, good: bool) -> list[str]:
    del tx
    handle = app.run_after.sync("1h", note.options(id=f"own {good}").bind("own"))
    other = app.run_after.sync("1h", note.options(id=f"other {good}").bind("other"))
    handle.cancel.sync()
    states = [app.scheduled_functions.get.sync(each.id).state for each in (handle, other)]
    assert len(app.scheduled_functions.list.sync(name="note", state="pending")) == 1
    if not good:
        raise RuntimeError(",".join(states))
    return states


async def test_a_transaction_sees_what_it_has_scheduled_and_cancelled_itself(url: str) -> None:
    async with world(app, url=url):
        with pytest.raises(RuntimeError, match="canceled,pending"):
            await sees_its_own.aio(good=False)
        assert len(await app.scheduled_functions.list()) == 0
        assert await sees_its_own.aio(good=True) == ["canceled", "pending"]


async def test_of_a_cancel_and_a_start_that_race_one_wins(url: str) -> None:
    """Each is either canceled without effect, or has run."""
    async with world(app, url=url) as w:
        handles = [await app.run_after(0.001, note.bind(number)) for number in range(12)]
        going = asyncio.create_task(w.advance(1))
        cancelled = await asyncio.gather(*[handle.cancel() for handle in handles])
        await going
        for number, (handle, stopped) in enumerate(zip(handles, cancelled, strict=True)):
            found = await state(handle.id)
            assert found == ("canceled" if stopped else "success")
            assert seen.count(number) <= 1
            assert stopped or number in seen


# -- records -----------------------------------------------------------------------------------------------------------
async def test_the_record_tells_how_it_ended(url: str) -> None:
    async with world(app, url=url) as w:
        good = await app.run_after(0, enter.bind("good"))
        bad = await app.run_after(0, enter.bind("bad"))
        ugly = await app.run_after(0, fail.bind("ugly"))
        await w.drain()
        assert await state(good.id) == "success"
        failed = await app.scheduled_functions.get(bad.id)
        assert (failed.state, failed.error, failed.completed_time) == ("failed", "bad", w.now)
        assert (await app.scheduled_functions.get(ugly.id)).error == "ugly"
        assert bank.rows(url, "SELECT entry FROM ledger") == [("good",)]
        with pytest.raises(NotFound):
            await app.scheduled_functions.get("nobody")
        plain = await note.start("not scheduled")
        with pytest.raises(NotFound):
            await app.scheduled_functions.get(plain.id)


async def test_the_view_has_the_same_in_milliseconds(url: str) -> None:
    async with world(app, url=url) as w:
        handle = await app.run_after(2, note.bind("x"))
        await w.advance(3)
        view = "scheduled_functions" if bank.is_sqlite(url) else "mainspring.scheduled_functions"
        columns = "id, name, created, scheduled_time, completed_time, state, error"
        (row,) = bank.rows(url, f"SELECT {columns} FROM {view}")
        start = (w.now - timedelta(seconds=3)).timestamp() * 1000
        assert row[:2] == (handle.id, "note")
        assert [float(each) for each in row[2:5]] == [start, start + 2000, start + 2000]
        assert row[5:] == ("success", None)


async def test_lists_by_name_state_and_due_time(url: str) -> None:
    async with world(app, url=url) as w:
        for number in range(4):
            await app.run_after(number * 60, note.bind(number))
        await app.run_after(30, chain.bind(0))
        await w.advance(90)
        functions = app.scheduled_functions
        assert [each.args[0]["what"] for each in await functions.list(name="note", state="success")] == [0, 1]
        assert [each.name for each in await functions.list(due_before=w.now)] == ["note", "chain", "note"]
        assert len(await functions.list(limit=2)) == 2
        with pytest.raises(InvalidInput, match="pending"):
            await functions.list(state="cancelled")


# -- cancelling --------------------------------------------------------------------------------------------------------
async def test_a_pending_function_that_is_cancelled_never_runs(url: str) -> None:
    async with world(app, url=url) as w:
        handle = await app.run_after("1m", note.bind("never"))
        assert await handle.cancel()
        assert not await handle.cancel()
        record = await app.scheduled_functions.get(handle.id)
        assert (record.state, record.completed_time) == ("canceled", w.now)
        await w.advance("2m")
        assert seen == []
        assert not await app.handle("unknown").cancel()


async def test_cancel_all_takes_one_name_and_a_span_of_time(url: str) -> None:
    async with world(app, url=url) as w:
        for minutes in range(1, 6):
            await app.run_after(minutes * 60, note.bind(minutes))
        await app.run_after("2m", chain.bind(0))
        since, until = w.now + timedelta(minutes=2), w.now + timedelta(minutes=4)
        assert await app.scheduled_functions.cancel_all(name="note", after=since, before=until, reason="why") == 2
        await w.advance("10m")
        assert seen == [1, 0, 4, 5]


# -- at most once ------------------------------------------------------------------------------------------------------
async def test_an_at_most_once_function_that_was_cut_off_is_not_started_again(url: str) -> None:
    cut = App("sqlite://")
    begun = asyncio.Event()

    @cut.step(at_most_once=True)
    async def stuck() -> None:
        seen.append("stuck")
        begun.set()
        await asyncio.Event().wait()

    async with world(cut, url=url) as w:
        handle = await cut.run_after(0, stuck.bind())
        await asyncio.wait_for(begun.wait(), 60)
        await another_process(w)
        with pytest.raises(Interrupted):
            await handle.result()
        info = await handle.describe()
        assert (info.state, info.reason) == (State.FAILED, "interrupted")
        assert seen == ["stuck"]


async def another_process(w: World) -> None:
    await w.app._vanish()
    await w.app.__aenter__()
    engine, store = w.app._runtime.engine, w.app._runtime.connection().store
    assert engine is not None
    for worker in store.workers():
        if worker.id != engine.worker_id:
            store.retire(worker.id, w.app._runtime.clock.now(), None)


# -- functions that nobody knows -----------------------------------------------------------------------------------------
async def test_a_function_that_no_worker_knows_waits_visibly_and_fails_with_the_reason(url: str) -> None:
    hour, minute = 3_600_000_000, 60_000_000
    async with world(app, url=url) as w, Client(url, clock=app._runtime.clock) as client:
        lost = await client.options(id="lost").start("removed", 1)
        known = await client.options(id="known").start("note", what="by name")
        assert await known.result() == "noted by name"
        await w.drain()
        store, now = app._runtime.connection().store, app._runtime.clock.now()

        def review(later: int) -> tuple[int, int]:
            found = store.unknown.review(now + later, hour)
            return found.marked, found.failed

        assert await asyncio.to_thread(review, 0) == (1, 0)
        stranded = (await lost.describe()).stranded
        assert stranded == "no live worker knows 'removed'; if it was renamed, declare it with name='removed'"
        assert await asyncio.to_thread(review, 59 * minute) == (0, 0)
        assert await asyncio.to_thread(review, 61 * minute) == (0, 1)
        with pytest.raises(UnknownFunction, match="removed"):
            await lost.result()
        assert (await lost.describe()).reason == stranded.replace("live ", "")


async def test_a_worker_that_comes_to_know_it_executes_it_after_all(url: str) -> None:
    late = App("sqlite://")
    async with world(app, url=url), Client(url, clock=app._runtime.clock) as client:
        await client.options(id="early").start("deployed_later")
        await asyncio.to_thread(app._runtime.connection().store.unknown.review, app._runtime.clock.now(), 0)
        assert (await client.handle("early").describe()).stranded is not None

    @late.workflow
    async def deployed_later() -> str:
        return "at last"

    async with world(late, url=url):
        assert await late.handle("early").result() == "at last"
