"""Crontabs: entries that workers bring along, each time once, made up for as far as they say."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, Settings, run
from mainspring.errors import InvalidCron, InvalidInput
from mainspring.model.clock import to_micros
from mainspring.model.schedules import UNLISTED
from mainspring.operations.audit import Audit
from mainspring.operations.schedules import views
from mainspring.operations.schedules.crontabs import Crontabs
from mainspring.recurrence import CronItem, CronOptions, Spec, parse_crontab
from mainspring.store.open import open_store
from mainspring.testing import world
from tests.store.build import StoreSettings, worker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from mainspring.testing import World


class Shop:
    """An app with tasks that note what they were given."""

    def __init__(self, url: str) -> None:
        self.app = App(url, settings=Settings(poll=0.05))
        self.seen: list[dict[str, Any]] = []
        self.failures = 0
        self.attempts: list[int] = []
        self.world: World

        @self.app.workflow
        async def rollup(payload: dict[str, Any]) -> None:
            self.attempts.append(run.attempt)
            if self.failures:
                self.failures -= 1
                raise ValueError("not now")
            self.seen.append(payload)

        @self.app.step
        async def email(payload: dict[str, Any]) -> None:
            self.seen.append(payload)

    @property
    def times(self) -> list[str]:
        return [each["_cron"]["ts"][11:16] for each in self.seen]


@asynccontextmanager
async def at(url: str, crontab: str, when: str) -> AsyncGenerator[Shop]:
    shop = Shop(url)
    shop.app.crontab(text=crontab)
    async with world(shop.app, url=url, at=f"2021-01-01T{when}Z" if len(when) < 10 else when) as shop.world:
        yield shop


async def test_an_entry_fires_when_it_is_due_with_its_payload_and_time(store_url: str) -> None:
    async with at(store_url, "0 */4 * * * rollup {a: 1, _cron: 'mine'}", "03:59:00") as shop:
        await shop.world.advance("30s")
        assert shop.seen == []
        await shop.world.advance("9h")
    stamps = [{"ts": f"2021-01-01T{hour}:00:00.000Z", "backfilled": False} for hour in ("04", "08", "12")]
    assert shop.seen == [{"a": 1, "_cron": stamp} for stamp in stamps]


async def test_a_task_can_be_a_step_and_an_entry_can_have_an_id(store_url: str) -> None:
    async with at(store_url, "0 4 * * * email ?id=early\n30 4 * * * email ?id=late {x: 1}", "03:00:00") as shop:
        await shop.world.advance("2h")
        names = [each.id for each in (await shop.app.schedules.list()).schedules]
    assert names == ["early", "late"]
    assert [each.get("x") for each in shop.seen] == [None, 1]


async def test_downtime_is_made_up_for_within_fill_oldest_first(store_url: str) -> None:
    text = "0 */4 * * * rollup ?fill=1d"
    async with at(store_url, text, "01:00:00") as first:
        await first.world.advance("4h")
    async with at(store_url, text, "10:30:00") as shop:
        await shop.world.drain()
        await shop.world.advance("2h")
    assert first.times == ["04:00"]
    assert [(each["_cron"]["ts"][11:16], each["_cron"]["backfilled"]) for each in shop.seen] == [
        ("08:00", True),
        ("12:00", False),
    ]
    async with at(store_url, text, "2021-01-02T13:00:00Z") as later:
        await later.world.drain()
    assert later.times == ["16:00", "20:00", "00:00", "04:00", "08:00", "12:00"]


async def test_without_fill_and_for_new_entries_nothing_is_made_up_for(store_url: str) -> None:
    async with at(store_url, "0 * * * * rollup", "01:30:00") as first:
        await first.world.drain()
    async with at(store_url, "0 * * * * rollup\n0 * * * * email ?id=new&fill=1d", "05:30:00") as shop:
        await shop.world.drain()
    assert shop.seen == []


async def test_a_minute_late_is_in_time(store_url: str) -> None:
    async with at(store_url, "0 * * * * rollup", "01:30:00") as first:
        await first.world.drain()
    async with at(store_url, "0 * * * * rollup", "02:00:50") as shop:
        await shop.world.drain()
    assert [each["_cron"]["backfilled"] for each in shop.seen] == [False]


async def test_a_failing_job_backs_off_exponentially_up_to_its_attempts(store_url: str) -> None:
    async with at(store_url, "0 4 * * * rollup ?max=3", "03:59:00") as shop:
        shop.failures = 99
        await shop.world.advance("1h")
        assert shop.attempts == [1, 2, 3]
        (info,) = (await shop.app.runs.list()).runs
        assert (info.state, info.id) == ("failed", "rollup-2021-01-01T04:00:00Z")
    async with at(store_url, "0 4 * * * rollup", "2021-01-02T03:59:00Z") as shop:
        shop.failures = 2
        await shop.world.advance("62s")
        assert shop.attempts == [1]
        await shop.world.advance("1s")
        assert shop.attempts == [1, 2]
        await shop.world.advance("8s")
        assert shop.times == ["04:00"]


async def test_an_unknown_queue_is_made_serial_and_a_declared_one_stays(store_url: str) -> None:
    shop = Shop(store_url)
    shop.app.queue("declared", concurrency=7)
    shop.app.crontab(text="0 4 * * * rollup ?queue=made&priority=-3\n0 4 * * * email ?queue=declared")
    async with world(shop.app, url=store_url, at="2021-01-01T03:59:00Z") as w:
        await w.advance("2m")
        queues = {each.name: each.limits.concurrency for each in await shop.app.queues.list()}
        infos = {each.workflow: each for each in (await shop.app.runs.list()).runs}
    assert queues == {"declared": 7, "made": 1}
    assert (infos["rollup"].queue, infos["rollup"].priority, infos["email"].queue) == ("made", -3, "declared")


async def test_with_a_key_a_run_that_waits_is_replaced_and_both_ticks_point_to_it(store_url: str) -> None:
    async with at(store_url, "*/10 * * * * rollup ?jobKey=one&queue=q", "03:59:00") as shop:
        await shop.world.drain()
        await shop.app.queues.pause("q")
        await shop.world.advance("25m")
        ticks = (await shop.app.schedules.ticks("rollup")).ticks
        await shop.app.queues.resume("q")
        await shop.world.drain()
    assert len(ticks) == 3
    assert len({tick.run for tick in ticks}) == 1
    assert shop.times == ["04:20"]


async def test_four_workers_with_one_file_fire_each_time_once(store_url: str) -> None:
    text = "* * * * * rollup"
    shops = [Shop(store_url) for _ in range(4)]
    for shop in shops:
        shop.app.crontab(text=text)
    first, *others = shops
    async with world(first.app, url=store_url, at="2021-01-01T00:00:30Z") as w:
        for other in others:
            other.app._runtime.clock = w.clock
        async with others[0].app, others[1].app, others[2].app:
            await w.advance("5m")
            await w.drain()
    together = sorted(stamp for shop in shops for stamp in shop.times)
    assert together == ["00:01", "00:02", "00:03", "00:04", "00:05"]


async def test_one_identifier_with_two_patterns_fires_for_both_with_a_warning(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = Shop(store_url), Shop(store_url)
    first.app.crontab(text="*/2 * * * * rollup")
    second.app.crontab(text="*/3 * * * * rollup")
    async with world(first.app, url=store_url, at="2021-01-01T00:00:30Z") as w:
        second.app._runtime.clock = w.clock
        with caplog.at_level(logging.WARNING):
            async with second.app:
                await w.advance("6m")
                await w.drain()
    assert sorted(first.times + second.times) == ["00:02", "00:03", "00:04", "00:06"]
    assert "several patterns" in caplog.text


async def test_a_file_that_changes_is_taken_over_and_a_bad_one_is_not(
    store_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "crontab"
    file.write_text("0 4 * * * rollup\n")
    shop = Shop(store_url)
    shop.app.crontab(file=file)

    async def replaced(text: str, number: int) -> None:
        file.write_text(text)
        os.utime(file, ns=(number, number))
        worker: Any = shop.app._worker
        worker._crontab.review(worker._me.id)

    async with world(shop.app, url=store_url, at="2021-01-01T03:00:00Z") as w:
        await replaced("nonsense\n0 5 * * * unknown\n", 1)
        assert "line 1" in caplog.text
        await replaced("0 5 * * * unknown\n", 2)
        assert "no function is registered as 'unknown'" in caplog.text
        await replaced("0 5 * * * rollup\n0 0 30 2 * email\n", 3)
        assert "line 2: identifier: 'email' never fires" in caplog.text
        await replaced("0 5 * * * rollup {a: " + "[" * 60 + "]" * 60 + "}\n", 4)
        assert "nested too deeply" in caplog.text
        await w.advance("61m")
        assert shop.times == ["04:00"]
        await replaced("30 4 * * * rollup\n", 5)
        await w.advance("30m")
    assert shop.times == ["04:00", "04:30"]


async def test_a_worker_that_begins_again_has_the_entries_of_the_last_good_file(store_url: str, tmp_path: Path) -> None:
    file = tmp_path / "crontab"
    file.write_text("0 4 * * * rollup\n")
    shop = Shop(store_url)
    shop.app.crontab(file=file)
    again = asyncio.Event()
    async with world(shop.app, url=store_url, at="2021-01-01T03:00:00Z") as w:
        worker: Any = shop.app._worker
        file.write_text("0 5 * * * unknown\n")
        os.utime(file, ns=(1, 1))
        worker._crontab.review(worker._me.id)
        shop.app.on("worker.started", lambda _: again.set())
        worker._crontab._store.retire(worker._me.id, to_micros(w.now), None, {})
        worker._heartbeat.run_once()
        async with asyncio.timeout(30):
            await again.wait()
        await w.advance("61m")
    assert shop.times == ["04:00"]


async def test_an_entry_that_no_live_worker_lists_is_stopped_and_goes_on_when_one_does(store_url: str) -> None:
    first, second = Shop(store_url), Shop(store_url)
    first.app.crontab(text="* * * * * rollup")
    async with world(second.app, url=store_url, at="2021-01-01T00:00:30Z") as w:
        first.app._runtime.clock = w.clock
        async with first.app:
            await w.advance("1m")
        worker: Any = second.app._worker
        crontabs = worker._crontab._crontabs()
        crontabs.review()
        crontabs._unlisted["rollup"] -= 61
        crontabs.review()
        info = await second.app.schedules.describe("rollup")
        assert info.stopped is not None
        assert "no live worker lists it" in info.stopped
        async with first.app:
            assert (await second.app.schedules.describe("rollup")).stopped is None


MINUTELY = "* * * * * rollup ?fill=1d"


@pytest.mark.parametrize("left", ["", "* * * * * rollup ?id=renamed&fill=1d", "0 0 * * * email"])
async def test_an_entry_that_was_taken_out_fires_nothing_and_makes_up_nothing_from_the_first_pass_on(
    store_url: str, left: str
) -> None:
    async with at(store_url, MINUTELY, "00:00:30") as shop:
        await shop.world.advance("1m")
    assert shop.times == ["00:01"]
    async with at(store_url, left, "05:00:30") as shop:
        await shop.world.advance("90s")
        assert "no live worker lists it" in str((await shop.app.schedules.describe("rollup")).stopped)
        assert [tick.nominal.minute for tick in await shop.app.schedules.ticks("rollup")] == [1]
        assert set(shop.times) <= {"05:01", "05:02"}  # of the one that was renamed
        handle = await shop.app.schedules.trigger("rollup")  # what is asked for happens
        assert handle is not None
        await handle.result()


async def test_an_entry_of_a_worker_that_was_killed_elsewhere_makes_up_nothing(store_url: str) -> None:
    """Its row is there until its lease has lapsed, but it has been silent for hours."""
    async with at(store_url, MINUTELY, "00:00:30") as shop:
        await shop.world.advance("1m")
        listed = shop.app._worker._me.crontab  # type: ignore[union-attr]
    store = open_store(store_url, StoreSettings())
    store.open()
    store.register(worker("gone", host="elsewhere", crontab=listed, seen=to_micros(datetime(2021, 1, 1, tzinfo=UTC))))
    store.close()
    async with at(store_url, "0 0 * * * email", "05:00:30") as shop:
        await shop.world.advance("90s")
        assert [tick.nominal.minute for tick in await shop.app.schedules.ticks("rollup")] == [1]
    assert shop.times == []


async def test_a_worker_that_was_taken_for_dead_lists_its_entries_again(store_url: str) -> None:
    async with at(store_url, "* * * * * rollup", "00:00:30") as shop:
        me: Any = shop.app._worker
        store = shop.app._runtime.connection().store
        await asyncio.to_thread(store.list_crontab, me._me.id, "{}")
        await shop.world.advance("40s")
        assert shop.times == []
        await asyncio.to_thread(me._round)
        await shop.world.advance("50s")
    assert shop.times == ["00:01", "00:02"]


async def test_a_list_says_at_once_that_no_live_worker_lists_an_entry(store_url: str) -> None:
    first, second = Shop(store_url), Shop(store_url)
    first.app.crontab(text="* * * * * rollup")

    async def seen() -> tuple[list[Any], int]:
        (listed,) = await second.app.schedules.list()
        due = await second.app.schedules.list(due_before=datetime(2021, 1, 1, 0, 2, tzinfo=UTC))
        return [listed.next, listed.stopped], len(due)

    async with world(second.app, url=store_url, at="2021-01-01T00:00:30Z") as w:
        first.app._runtime.clock = w.clock
        async with first.app:
            (when, stopped), due = await seen()
            assert (str(when), stopped, due) == ("2021-01-01 00:01:00+00:00", None, 1)
        assert await seen() == ([None, UNLISTED], 0)


async def test_an_entry_that_is_listed_again_is_made_up_for_within_its_fill(store_url: str) -> None:
    """Workers that do not list it were there meanwhile: that is as if no worker had been there for it."""
    hourly = "0 * * * * rollup ?fill=2h"
    async with at(store_url, hourly, "00:30:00"):
        pass
    async with at(store_url, "", "04:30:00") as shop:
        Crontabs(shop.app._runtime.connection().store, shop.world.clock, shop.app._runtime.ids)._declaring.update(
            "rollup", {"stopped": UNLISTED}
        )
    async with at(store_url, hourly, "04:31:00") as shop:
        await shop.world.drain()
        outcomes = [str(tick.outcome) for tick in await shop.app.schedules.ticks("rollup")]
    assert shop.times == ["03:00", "04:00"]
    assert outcomes == ["late", "late", "missed", "missed"]


@pytest.mark.parametrize(
    ("line", "made_up", "later"),
    [
        ("0 6 * * * rollup ?fill=1d {line: 2}", [], ["06:00"]),
        ("30 * * * * rollup ?fill=2h {line: 2}", ["03:30", "04:30"], ["05:30"]),
        ("*/20 * * * * rollup {line: 2}", ["05:00"], ["05:20", "05:40", "06:00"]),
        ("*/20 * * * * rollup ?fill=1h {line: 2}", ["04:20", "04:40", "05:00"], ["05:20", "05:40", "06:00"]),
    ],
)
async def test_a_line_that_changed_while_no_worker_listed_it_decides_alone_about_missed_times(
    store_url: str, line: str, made_up: list[str], later: list[str]
) -> None:
    async with at(store_url, "*/20 * * * * rollup ?fill=1d {line: 1}", "00:00:30") as shop:
        await shop.world.advance("20m")
    async with at(store_url, line, "05:00:30") as shop:
        await shop.world.drain()
        assert shop.times == made_up
        await shop.world.advance("1h")
    assert shop.times == [*made_up, *later]
    assert {each["line"] for each in shop.seen} == {2}


@pytest.mark.parametrize("ended_by", ["resume", "until"])
async def test_the_time_of_a_pause_that_ended_while_no_worker_listed_the_entry_is_not_made_up(
    store_url: str, ended_by: str
) -> None:
    hourly = "0 * * * * rollup ?fill=1d"
    async with at(store_url, hourly, "00:30:00") as shop:
        until = datetime(2021, 1, 1, 2, 30, tzinfo=UTC) if ended_by == "until" else None
        await shop.app.schedules.pause("rollup", until=until)
    async with at(store_url, "", "02:30:00") as shop:
        if ended_by == "resume":
            await shop.app.schedules.resume("rollup")
        else:
            await shop.app.schedules.trigger("rollup")
        assert not (await shop.app.schedules.describe("rollup")).paused
        await shop.world.drain()
    async with at(store_url, hourly, "04:30:00") as shop:
        await shop.world.drain()
        found = {f"{tick.nominal:%H:%M}": str(tick.outcome) for tick in await shop.app.schedules.ticks("rollup")}
    assert shop.times == ["03:00", "04:00"]
    assert {time: found[time] for time in sorted(found) if time.endswith(":00")} == {
        "01:00": "paused",
        "02:00": "paused",
        "03:00": "late",
        "04:00": "late",
    }


async def test_an_entry_fires_late_when_the_only_worker_that_lists_it_was_away_for_a_moment(store_url: str) -> None:
    first, second = Shop(store_url), Shop(store_url)
    first.app.crontab(text="* * * * * rollup")
    async with world(second.app, url=store_url, at="2021-01-01T00:00:30Z") as w:
        first.app._runtime.clock = w.clock
        async with first.app:
            pass
        await w.advance("40s")  # 00:01 has come, and nobody lists it
        assert (first.times, second.times) == ([], [])
        async with first.app:
            await w.drain()
            await w.advance("1m")
    assert sorted([*first.times, *second.times]) == ["00:01", "00:02"]
    assert not any(each["_cron"]["backfilled"] for each in (*first.seen, *second.seen))


async def test_what_an_operator_changed_on_an_entry_stays_until_its_line_changes(store_url: str) -> None:
    async with at(store_url, "* * * * * rollup", "00:00:30") as shop:
        await shop.app.schedules.update("rollup", spec=Spec(cron=["*/5 * * * *"]))
        worker: Any = shop.app._worker
        worker._crontab.review(worker._me.id)
    async with at(store_url, "* * * * * rollup", "00:02:00") as shop:
        found = await shop.app.schedules.describe("rollup")
        assert (found.spec["cron"], found.differs) == (["*/5 * * * *"], ["spec"])
        assert (await shop.app.schedules.reset("rollup")).differs == []
        await shop.app.schedules.update("rollup", spec=Spec(cron=["*/5 * * * *"]))
    async with at(store_url, "*/2 * * * * rollup", "00:03:00") as shop:
        found = await shop.app.schedules.describe("rollup")
        assert ([each["cron"] for each in found.spec["cron"]], found.differs) == (["*/2 * * * *"], [])
        store = shop.app._runtime.connection().store
        (entry,) = (await asyncio.to_thread(Audit(store, shop.world.clock, shop.app._runtime.ids).list)).entries
    assert (entry.who, entry.action, entry.details["overridden"]) == ("crontab", "schedules.declare", ["spec"])


async def test_a_review_looks_at_all_entries_however_many(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "AT_ONCE", 2)
    first, second = Shop(store_url), Shop(store_url)
    entries = [f"e{number}" for number in range(5)]
    first.app.crontab(text="\n".join(f"* * * * * rollup ?id={entry}" for entry in entries))
    async with world(second.app, url=store_url, at="2021-01-01T00:00:30Z") as w:
        first.app._runtime.clock = w.clock
        async with first.app:
            await w.advance("1m")
        worker: Any = second.app._worker
        crontabs = worker._crontab._crontabs()
        crontabs.review()
        assert sorted(crontabs._unlisted) == entries
        crontabs._unlisted = {entry: since - 61 for entry, since in crontabs._unlisted.items()}
        crontabs.review()
        stopped = [each.id for each in await second.app.schedules.list() if each.stopped is not None]
        assert stopped == entries


async def test_what_workers_wrote_over_each_other_is_put_right_by_the_next_review(store_url: str) -> None:
    first, second = Shop(store_url), Shop(store_url)
    first.app.crontab(text="*/2 * * * * rollup")
    second.app.crontab(text="*/3 * * * * rollup")
    async with world(first.app, url=store_url, at="2021-01-01T00:00:30Z") as w:
        second.app._runtime.clock = w.clock
        async with second.app:
            worker: Any = first.app._worker
            crontabs, store = worker._crontab._crontabs(), first.app._runtime.connection().store
            (alone,) = worker._crontab._definitions()
            crontabs._bring(alone)  # as it was before it arrived of the other
            crontabs._declaring.update("rollup", {"stopped": UNLISTED})  # and as somebody else saw it
            crontabs.review()
            row = store.schedules.get("rollup")
            assert row is not None
            assert row.stopped is None
            assert [each["cron"] for each in json.loads(row.spec)["cron"]] == ["*/2 * * * *", "*/3 * * * *"]
            revision = row.revision
            crontabs.review()
            again = store.schedules.get("rollup")
            assert again is not None
            assert again.revision == revision


def test_exactly_one_source_is_given_and_its_faults_are_all_told(tmp_path: Path) -> None:
    app = App("sqlite://")
    with pytest.raises(InvalidInput, match="exactly one"):
        app.crontab()
    with pytest.raises(InvalidInput, match="exactly one"):
        app.crontab(text="", items=[])
    with pytest.raises(InvalidCron) as caught:
        app.crontab(text="61 * * * * a\n* * * * * b ?max=0")
    assert [fault.line for fault in caught.value.faults] == [1, 2]
    with pytest.raises(InvalidInput, match="cannot be read"):
        app.crontab(file=tmp_path / "nowhere")
    never = r"line 2: identifier: 'b' never fires: 0 0 31 4,6 \*"
    with pytest.raises(InvalidCron, match=never):
        app.crontab(text="0 0 29 2 * a\n0 0 31 4,6 * b")
    with pytest.raises(InvalidCron, match="'a' never fires"):
        app.crontab(items=[CronItem("a", "0 0 30 2 *")])


async def test_an_unknown_task_or_a_wrong_signature_refuses_all_of_it() -> None:
    app = App("sqlite://", settings=Settings(poll=0.05))

    @app.workflow
    async def two(a: int, b: int) -> int:
        return a + b

    @app.workflow
    async def number(a: int) -> int:
        return a

    @app.step(at_most_once=True)
    async def once(payload: dict[str, Any]) -> None: ...

    app.crontab(text="* * * * * two\n* * * * * number\n* * * * * nobody\n* * * * * once ?max=2")
    with pytest.raises(InvalidCron) as caught:
        async with app:
            pass
    found = [(fault.line, fault.field) for fault in caught.value.faults]
    assert found == [(1, "two"), (2, "number"), (3, "nobody"), (4, "once")]
    assert "so max cannot be 2" in str(caught.value)


async def test_items_made_in_code_are_entries_too(store_url: str) -> None:
    shop = Shop(store_url)
    shop.app.crontab(items=[CronItem("rollup", "0 4 * * *", CronOptions(max_attempts=2), {"n": 1}, identifier="mine")])
    async with world(shop.app, url=store_url, at="2021-01-01T03:59:00Z") as w:
        await w.advance("2m")
    assert [each["n"] for each in shop.seen] == [1]
    shop.app.crontab(items=parse_crontab("0 4 * * * rollup"))


def test_listings_are_json() -> None:
    shop = Shop("sqlite://")
    shop.app.crontab(text="0 4 * * * rollup")
    crontab = shop.app._runtime.crontab
    assert crontab is not None
    (definition,) = crontab.definitions(shop.app._runtime.registry)
    assert json.loads(definition.columns()["action"])["cron"] == "payload"


async def test_a_clock_that_goes_back_fires_nothing_twice(store_url: str) -> None:
    text = "0 * * * * rollup ?fill=1d"
    async with at(store_url, text, "03:30:00") as first:
        await first.world.advance("90m")
    for when in ("04:59:59", "04:30:00", "03:59:00", "04:59:30"):
        async with at(store_url, text, when) as back:
            await back.world.advance("20s")
        assert back.times == []
    async with at(store_url, text, "05:30:00") as onwards:
        await onwards.world.advance("40m")
    assert (first.times, onwards.times) == (["04:00", "05:00"], ["06:00"])


async def test_the_first_start_only_makes_entries_known(store_url: str) -> None:
    async with at(store_url, "* * * * * rollup ?fill=1w\n0 0 1 1 * email", "10:30:30") as shop:
        await shop.world.drain()
        assert [each.id for each in (await shop.app.schedules.list()).schedules] == ["email", "rollup"]
        assert [(await shop.app.schedules.ticks(name)).ticks for name in ("email", "rollup")] == [[], []]
        assert (await shop.app.runs.list()).runs == []
