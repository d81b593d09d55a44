"""Schedules whose runs have a key that another run may have."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mainspring import App, Client, Overlap, Policy, Settings, Spec, Tx, run
from mainspring.store.verbs import planning
from mainspring.testing import world

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


async def fates(app: App, schedule: str) -> list[tuple[str, str, str | None]]:
    ticks = (await app.schedules.ticks(schedule)).ticks
    return [(f"{tick.nominal:%H:%M}", str(tick.outcome), tick.run) for tick in reversed(ticks)]


@pytest.mark.parametrize(
    ("mode", "outcome"),
    [
        ("return_existing", "skipped_overlap"),
        ("unsafe_dedupe", "skipped_overlap"),
        ("reject", "start_failed"),
    ],
)
async def test_a_tick_whose_key_is_held_starts_nothing_and_changes_nothing(
    store_url: str, mode: str, outcome: str
) -> None:
    app = App(settings=Settings(resident=0, park_after=0))

    @app.workflow
    async def work() -> list[str]:
        tick = run.tick
        assert tick is not None
        await run.sleep("150s")
        return [f"{tick.nominal:%H:%M}"]

    async with world(app, url=store_url, at=BEGIN) as w:
        call = work.options(key="one", key_mode=mode).bind()  # type: ignore[arg-type]
        await app.schedules.create("s", call, Spec(intervals=["1m"]), Policy(Overlap.ALLOW_ALL, limit=2))
        await w.advance("3m40s")
        first = "s-2026-01-01T00:01:00Z"
        assert await fates(app, "s") == [("00:01", "fired", first), ("00:02", outcome, None), ("00:03", outcome, None)]
        assert f"run {first} has the key 'one'" in str((await app.schedules.ticks("s")).ticks[0].reason)
        assert await app.handle(first).result() == ["00:01"]
        found = await app.schedules.describe("s")
        assert (found.starts, found.remaining, found.skipped) == (1, 1, 2 if outcome == "skipped_overlap" else 0)
        await w.advance("10m")
        assert (await app.schedules.describe("s")).starts == 2


async def test_of_several_ticks_with_one_key_that_are_caught_up_the_first_starts(store_url: str) -> None:
    app = App()

    @app.workflow
    async def work() -> None:
        await run.sleep("1h")

    async with world(app, url=store_url, at=BEGIN):
        call = work.options(key="one", key_mode="return_existing").bind()
        await app.schedules.create("s", call, Spec(intervals=["1m"]), Policy(Overlap.ALLOW_ALL, catchup="1h"))
    async with world(app, url=store_url, at=BEGIN + timedelta(minutes=3, seconds=30)) as w:
        await w.drain()
        assert [outcome for _, outcome, _ in await fates(app, "s")] == ["late", "skipped_overlap", "skipped_overlap"]


async def test_a_run_stays_with_the_schedule_that_started_it(store_url: str) -> None:
    app = App()

    @app.workflow
    async def first() -> None:
        await run.sleep("10m")
        raise ValueError("no")

    @app.workflow
    async def second() -> None: ...

    async with world(app, url=store_url, at=BEGIN) as w:
        for name, call in (("first", first), ("second", second)):
            bound = call.options(key="one", key_mode="return_existing").bind()
            await app.schedules.create(name, bound, Spec(), Policy(pause_on_failure=True))
        await app.schedules.trigger("first")
        await w.drain()
        assert await app.schedules.trigger("second") is None
        (held,) = (await app.schedules.describe("first")).running
        assert (await app.schedules.describe("second")).running == []
        await w.advance("11m")
        paused = [(await app.schedules.describe(name)).pause_note for name in ("first", "second")]
        assert held in str(paused[0])
        assert paused[1] is None


@pytest.mark.parametrize(
    ("mode", "outcome"),
    [
        ("return_existing", "skipped_overlap"),
        ("unsafe_dedupe", "skipped_overlap"),
        ("reject", "start_failed"),
    ],
)
async def test_a_trigger_in_a_transaction_whose_key_is_taken_at_the_same_moment_starts_nothing(
    store_url: str, mode: str, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On SQLite nobody can take the key while the transaction is open, so there it is taken before."""
    app = App(store_url)

    @app.workflow
    async def work() -> None:
        await run.sleep("1h")

    @app.transaction
    def trigger(_tx: Tx) -> bool:
        return app.schedules.trigger.sync("s") is not None

    client = Client(store_url)
    looked = planning._find_held_keys

    def take() -> None:
        taking = threading.Thread(target=client.options(id="holder", key="one").start.sync, args=("work",))
        taking.start()
        taking.join()

    def looked_a_moment_before(*args: Any) -> Any:
        found = yield from looked(*args)
        take()
        return found

    async with app:
        call = work.options(key="one", key_mode=mode).bind()  # type: ignore[arg-type]
        await app.schedules.create("s", call, Spec(intervals=["1h"]), Policy(Overlap.ALLOW_ALL))
        if store_url.startswith("sqlite"):
            await asyncio.to_thread(take)
        else:
            monkeypatch.setattr(planning, "_find_held_keys", looked_a_moment_before)
        assert await trigger.aio() is False
        (tick,) = (await app.schedules.ticks("s")).ticks
        assert (tick.outcome, tick.run, tick.reason) == (outcome, None, "run holder has the key 'one'")
        assert (await app.schedules.describe("s")).starts == 0
        assert [each.id for each in await app.runs.list(workflow="work")] == ["holder"]
    client.close()


async def test_a_tick_that_replaces_the_request_of_an_older_run_is_unfinished_with_it(store_url: str) -> None:
    """The run has another, earlier uid than the one that the tick would have started."""
    app = App()

    @app.workflow
    async def act() -> None:
        await run.sleep("10m")

    async with world(app, url=store_url, at=BEGIN) as w:
        keyed = act.options(key="one", key_mode="replace")
        older = await keyed.options(after="1h").start()
        await app.schedules.create("s", keyed.bind(), Spec(intervals=["30m"]), Policy(Overlap.SKIP))
        await w.advance("31m")
        described = await app.schedules.describe("s")
        assert (described.running, described.starts) == ([older.id], 1)
        assert (await app.schedules.trigger("s", overlap=Overlap.SKIP)) is None, "it is unfinished"
