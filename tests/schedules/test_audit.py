"""Every time of a period is accounted for, and what is old is forgotten."""

from __future__ import annotations

import contextlib
import sqlite3
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg

from mainspring import Overlap, Policy
from tests.schedules.conftest import BEGIN, at, bench_at

if TYPE_CHECKING:
    from tests.schedules.conftest import Bench


async def test_an_audit_classifies_every_time_of_a_period(store_url: str) -> None:
    async with bench_at(store_url) as before:
        before.durations = {"00:10": "7m"}
        await before.create("5m", Policy(Overlap.BUFFER_ONE, catchup="12m"))
        await before.to("00:22")
        await before.app.schedules.skip("s")
        await before.app.schedules.trigger("s", Overlap.ALLOW_ALL)
        await before.to("00:31")
        await before.app.schedules.pause("s", until=at("00:41"))
    async with bench_at(store_url, at("01:12")) as after:
        await after.to("01:16")
        found = await after.app.schedules.audit("s", BEGIN)
    assert found.classes == {
        "delayed": 1,  # 00:15 waited for 00:10
        "late": 2,  # 01:00 and 01:05 were made up for
        "missed": 3,  # 00:45 to 00:55 were not
        "on_time": 5,
        "paused": 2,  # 00:35, 00:40
        "skipped_by_request": 1,
        "skipped_overlap": 1,  # 01:10 came up with these two
    }
    assert (found.manual, found.unaccounted, found.healthy) == (1, [], False)
    assert {str(tick.outcome) for tick in found.notable} == {"missed", "late"}
    assert found.lateness["worst"] == 12 * 60


async def test_a_quiet_period_is_healthy_and_one_that_nobody_acts_on_is_overdue(bench: Bench) -> None:
    await bench.create("5m")
    await bench.to("00:31")
    found = await bench.app.schedules.audit("s", BEGIN, at("00:30"))
    assert (found.classes, found.healthy) == ({"on_time": 6}, True)
    assert found.lateness == {"median": 0, "p99": 0, "worst": 0}
    await bench.app.schedules.pause("s")
    await bench.to("00:41")
    assert (await bench.app.schedules.audit("s", at("00:31"))).classes == {"paused": 2}


async def test_times_that_nobody_has_acted_on_are_overdue(store_url: str) -> None:
    async with bench_at(store_url) as before:
        await before.create("5m")
        await before.to("00:06")
    async with bench_at(store_url, at("00:21"), work=False) as idle:
        found = await idle.app.schedules.audit("s", BEGIN)
    assert (found.classes, found.healthy) == ({"on_time": 1, "overdue": 3}, False)


async def test_a_tick_that_has_vanished_is_noticed(bench: Bench, store_url: str) -> None:
    await bench.create("5m")
    await bench.to("00:31")
    query = "DELETE FROM {}ticks WHERE nominal = {}"
    nominal = int(at("00:15").timestamp() * 1_000_000)
    if store_url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(store_url.removeprefix("sqlite:///"))) as database, database:
            database.execute(query.format("mainspring_", nominal))
    else:
        with psycopg.connect(store_url) as connection:
            connection.execute(query.format("mainspring.", nominal).encode())
    found = await bench.app.schedules.audit("s", BEGIN)
    assert (found.unaccounted, found.unaccounted_count, found.healthy) == ([at("00:15")], 1, False)


async def test_old_ticks_are_forgotten_and_what_waits_is_kept(store_url: str) -> None:
    async with bench_at(store_url) as made:
        made.durations = {"*": "30d"}
        await made.create("1h", Policy(Overlap.BUFFER_ALL, buffer_limit=3))
        await made.to("12:01")
    async with bench_at(store_url, BEGIN + timedelta(hours=13)) as later:
        await later.world.drain()
        assert len(await later.ticks()) == 13
    half_past = BEGIN + timedelta(hours=13, minutes=30)
    async with bench_at(store_url, half_past, tick_retention="2h") as forgetful:
        await forgetful.world.drain()
        found = await forgetful.ticks()
        audit = await forgetful.app.schedules.audit("s", BEGIN)
    assert [(f"{tick.nominal:%H:%M}", str(tick.outcome)) for tick in found] == [
        ("02:00", "buffered"),
        ("03:00", "buffered"),
        ("04:00", "buffered"),
        ("12:00", "dropped"),
        ("13:00", "dropped"),
    ]
    assert audit.classes["dropped"] == 2
