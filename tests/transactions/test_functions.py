"""More of what is promised of scheduled functions: who may be scheduled, limits, room, pauses, restarts, chains, records."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from dataclasses import fields
from typing import Any, cast

import pytest

from mainspring import App, Settings, Spec, State, Tx, run
from mainspring.errors import Endless, InvalidInput, TooLarge, UnknownFunction
from mainspring.model.ids import LONGEST_ID
from mainspring.operations.runs.info import Runs
from mainspring.operations.scheduled_functions import ScheduledFunction
from mainspring.testing import world
from tests.transactions import bank

app = App("sqlite://", settings=Settings(concurrency=2))
tight = App("sqlite://", settings=Settings(schedule_bytes=2_000))
stranger = App("sqlite://")
seen: list[Any] = []
gate: dict[str, Any] = {}


@app.step
async def note(what: Any) -> Any:
    seen.append(what)
    return what


@app.step
async def own_id() -> str:
    return run.id


@stranger.step
async def unheard_of() -> None: ...


# -- who may be scheduled, and how much ----------------------------------------------------------------------------------
async def test_a_function_of_another_app_is_refused_at_the_call(url: str) -> None:
    for entered in (True, False):
        app._runtime.url = url
        async with world(app, url=url) if entered else _left():
            for refused in (
                lambda: app.run_after(0, unheard_of.bind()),
                lambda: app.run_at(1, unheard_of.bind()),
                lambda: app.start_many([note.bind(1), unheard_of.bind()]),
            ):
                with pytest.raises((UnknownFunction, InvalidInput)):
                    await cast("Any", refused)()
            assert (await app.runs.list()).runs == []


class _left:  # noqa: N801
    """An app that is used without being entered."""

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(app.close)


@app.transaction
def schedules(tx: Tx, count: int) -> None:
    del tx
    for number in range(count):
        app.run_after.sync("1h", note.bind(number))


async def test_by_default_a_thousand_functions_and_eight_mebibytes_are_the_limit(url: str) -> None:
    assert (Settings().schedule_functions, Settings().schedule_bytes) == (1_000, 8 * 1024 * 1024)
    async with world(app, url=url):
        with pytest.raises(TooLarge, match="1,000"):
            await schedules.aio(1_001)
        assert len(await app.scheduled_functions.list()) == 0
        await asyncio.to_thread(schedules, 1_000)
        assert bank.count_runs(url, "note") == 1_000


@tight.step
async def large(what: str) -> None: ...


@tight.transaction
def schedules_large(tx: Tx, size: int) -> None:
    del tx
    tight.run_after.sync("1h", large.bind("x" * size))


async def test_just_below_the_limit_of_arguments_there_is_a_warning(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async with world(tight, url=url):
        with caplog.at_level(logging.WARNING, "mainspring.app"):
            await schedules_large.aio(1_800)
            assert not [each for each in caplog.records if each.name == "mainspring.app"]
            await schedules_large.aio(1_950)
        assert len([each for each in caplog.records if each.name == "mainspring.app"]) == 1
        with pytest.raises(TooLarge, match="2,000"):
            await schedules_large.aio(2_000)


# -- transactions ----------------------------------------------------------------------------------------------------------
@app.transaction
def look(tx: Tx) -> list[str]:
    return [row[0] for row in tx.execute("SELECT entry FROM ledger").fetchall()]


@app.transaction
def enter_and_look(tx: Tx) -> str:
    handle = app.run_after.sync(0, look.bind())
    tx.execute("INSERT INTO ledger VALUES ('written')")
    return handle.id


@app.transaction
def outer(tx: Tx) -> str:
    del tx
    return enter_and_look()


@app.workflow
async def outermost() -> str:
    return await outer.aio()


async def test_what_a_transaction_schedules_sees_what_it_wrote_and_is_nobodys_child(url: str) -> None:
    async with world(app, url=url):
        for fn in (enter_and_look.aio, outer.aio, outermost):
            handle = app.handle(await fn())
            assert set(cast("list[str]", await handle.result())) == {"written"}
            info = await handle.describe()
            assert (info.kind, info.parent) == ("transaction", None)


@app.transaction
def cancels(tx: Tx, which: str, *, good: bool) -> None:
    del tx
    assert app.handle(which).cancel.sync()
    assert app.scheduled_functions.get.sync(which).state == "canceled"
    if not good:
        raise RuntimeError("rolled back")


@app.step
async def cancels_in_a_step(which: str) -> bool:
    return await app.handle(which).cancel()


async def test_a_cancel_that_is_rolled_back_never_was_and_one_from_a_step_is_at_once(url: str) -> None:
    async with world(app, url=url) as w:
        kept, gone, stopped = [await app.run_after("1m", note.bind(name)) for name in ("kept", "gone", "stopped")]
        with pytest.raises(RuntimeError):
            await cancels.aio(kept.id, good=False)
        await cancels.aio(gone.id, good=True)
        assert await (await cancels_in_a_step.start(stopped.id)).result()
        await w.advance("2m")
        assert seen == ["kept"]


async def test_cancelling_what_has_ended_or_was_never_there_is_harmless_and_no_id_is_an_error(url: str) -> None:
    async with world(app, url=url) as w:
        handle = await app.run_after(0, note.bind("done"))
        await handle.result()
        before = await app.scheduled_functions.get(handle.id)
        await w.advance("1m")
        assert not await handle.cancel()
        assert not await app.handle("vanished").cancel()
        assert await app.scheduled_functions.get(handle.id) == before
        for wrong in (5, None):
            with pytest.raises(InvalidInput, match=r"string|text"):
                await app.handle(cast("Any", wrong)).cancel()
            with pytest.raises(InvalidInput, match=r"string|text"):
                await app.scheduled_functions.get(cast("Any", wrong))


caller: contextvars.ContextVar[str] = contextvars.ContextVar("caller", default="nobody")


@app.step
async def who() -> str:
    return caller.get()


@app.transaction
def who_in_a_transaction(tx: Tx) -> str:
    del tx
    return caller.get()


@app.workflow
def who_in_a_workflow() -> str:
    return caller.get()


@app.transaction
def schedules_all(tx: Tx) -> list[str]:
    del tx
    caller.set("the transaction")
    made = (who.bind(), who_in_a_transaction.bind(), who_in_a_workflow.bind())
    return [app.run_after.sync(0, call).id for call in made]


async def test_who_schedules_is_not_passed_on(url: str) -> None:
    async with world(app, url=url):
        caller.set("ada")
        ids = [
            *await schedules_all.aio(),
            (await app.run_after(0, who.bind())).id,
            (await who_in_a_workflow.start()).id,
        ]
        assert [await app.handle(each).result() for each in ids] == ["nobody"] * 5


# -- room, pauses, restarts --------------------------------------------------------------------------------------------------
@app.step
async def takes_a_place() -> None:
    gate["now"] += 1
    gate["most"] = max(gate["most"], gate["now"])
    gate["full"].set()
    await gate["open"].wait()
    gate["now"] -= 1


async def test_no_more_run_at_once_than_there_is_room_for_and_the_wait_can_be_seen(url: str) -> None:
    gate.update(now=0, most=0, open=asyncio.Event(), full=asyncio.Event())
    async with world(app, url=url) as w:
        handles = [await app.run_after(0, takes_a_place.bind()) for _ in range(5)]
        while gate["now"] < 2:
            gate["full"].clear()
            await asyncio.wait_for(gate["full"].wait(), 60)
        assert len(await app.scheduled_functions.list(state="in_progress")) == 2
        assert len(await app.scheduled_functions.list(state="pending")) == 3
        w.clock.set(w.now.replace(hour=w.now.hour + 1))
        connection = app._runtime.connection()
        assert await asyncio.to_thread(Runs(connection.store, app._runtime.clock).lag) == 3_600
        gate["open"].set()
        for handle in handles:
            await handle.result()
        assert gate["most"] == 2


async def test_while_it_is_paused_nothing_runs_and_nothing_is_lost(url: str) -> None:
    async with world(app, url=url) as w:
        app.pause()
        for number in range(3):
            await app.run_after(number * 60, note.bind(number))
        await w.advance("1h")
        assert seen == []
        assert {each.state for each in await app.scheduled_functions.list()} == {"pending"}
        app.resume()
        await w.drain()
        assert seen == [0, 1, 2]


async def test_what_became_due_while_nobody_worked_runs_when_somebody_does(url: str) -> None:
    async with world(app, url=url, at="2026-01-01T00:00Z"):
        handles = [await app.run_after(f"{hours}h", note.bind(hours)) for hours in (3, 1, 48)]
    async with world(app, url=url, at="2026-01-02T00:00Z") as w:
        await w.drain()
        assert seen == [1, 3]
        assert (await app.handle(handles[2].id).describe()).state is State.SCHEDULED


# -- chains --------------------------------------------------------------------------------------------------------------------
@app.step
async def again(left: int) -> None:
    seen.append(len(run.id))
    if left:
        await app.run_after(60, again.bind(left - 1))


@app.step
async def for_ever() -> None:
    await app.run_after(0, for_ever.bind())


async def test_in_a_long_chain_the_ids_do_not_grow_for_ever(url: str) -> None:
    async with world(app, url=url) as w:
        await app.run_after(0, again.options(id="x" * 400).bind(60))
        await w.advance("2h")
        assert len(seen) == 61
        assert max(seen) <= LONGEST_ID
        assert seen[-1] < 400


async def test_an_endless_chain_is_an_error_in_a_test(sqlite_url: str) -> None:
    async with world(app, url=sqlite_url) as w:
        await app.run_after(0, for_ever.bind())
        with pytest.raises(Endless, match="for_ever"):
            await w.drain()
        with pytest.raises(Endless):
            await w.advance("1d")


# -- records ---------------------------------------------------------------------------------------------------------------------
async def test_the_record_has_exactly_these_fields_and_a_function_knows_its_own(url: str) -> None:
    names = ["id", "created", "name", "args", "scheduled_time", "completed_time", "state", "error"]
    assert [each.name for each in fields(ScheduledFunction)] == names
    view = "scheduled_functions" if bank.is_sqlite(url) else "mainspring.scheduled_functions"
    async with world(app, url=url):
        handle = await app.run_after(0, own_id.bind())
        assert await handle.result() == handle.id
    with bank.database(url) as db:
        assert [each[0] for each in db.execute(f"SELECT * FROM {view}").description] == names


async def test_a_later_failure_of_another_changes_no_record(url: str) -> None:
    @app.step
    async def bad() -> None:
        raise LookupError("later")

    async with world(app, url=url) as w:
        good = await app.run_after(0, note.bind("good"))
        await good.result()
        before = await app.scheduled_functions.get(good.id)
        assert before.completed_time is not None
        await app.run_after(60, bad.bind())
        await w.advance("2m")
        assert await app.scheduled_functions.get(good.id) == before
        (failed,) = await app.scheduled_functions.list(state="failed")
        assert (failed.name.rpartition(".")[2], failed.error) == ("bad", "later")


# -- ids that are used again ---------------------------------------------------------------------------------------------------
again_app = App("sqlite://")


@again_app.step
async def leaf(what: str) -> None:
    seen.append(what)


@again_app.transaction
def in_a_transaction(tx: Tx, what: str) -> None:
    del tx
    again_app.run_after.sync(1, leaf.bind(f"{what} from a transaction"))


@again_app.step
async def in_a_step(what: str) -> None:
    await again_app.run_after(1, leaf.bind(f"{what} from a step"))
    await leaf.options(detached=True).start(f"{what} detached from a step")
    await again_app.schedules.trigger("by hand")


@again_app.workflow
async def named(what: str) -> None:
    await again_app.run_after(1, leaf.bind(f"{what} from a workflow"))
    await leaf.options(detached=True).start(f"{what} detached")
    await in_a_step(what)
    await in_a_transaction.aio(what)


async def test_a_run_whose_id_was_used_before_schedules_functions_of_its_own(url: str) -> None:
    async with world(again_app, url=url) as w:
        await again_app.schedules.create("by hand", leaf.bind("triggered"), Spec())
        for what in ("first", "second"):
            seen.clear()
            handle = await named.options(id="same").start(what)
            await handle.result()
            await w.advance("1m")
            assert sorted(seen) == [
                f"{what} detached",
                f"{what} detached from a step",
                f"{what} from a step",
                f"{what} from a transaction",
                f"{what} from a workflow",
                "triggered",
            ]
            await again_app.runs.delete("same")
