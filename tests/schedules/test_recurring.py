"""What people expect of recurring functions, whatever system they come from."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from mainspring import App, Spec
from mainspring.recurrence import Cron, Interval
from mainspring.testing import world

START = datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC)


def counting() -> tuple[App, list[datetime]]:
    app, seen = App("sqlite://"), list[datetime]()

    @app.scheduled(Spec(intervals=[Interval("1h")]))
    @app.workflow
    async def count(scheduled_at: datetime, started_at: datetime) -> None:
        del started_at
        seen.append(scheduled_at)

    return app, seen


async def test_an_interval_can_begin_at_once_and_goes_on_from_there(store_url: str) -> None:
    app = App("sqlite://")

    @app.workflow
    async def beat() -> None: ...

    async with world(app, url=store_url, at=START) as w:
        spec = Spec(intervals=[Interval("7m", anchor=START)])
        await app.schedules.create("beats", beat.bind(), spec, trigger=True)
        await w.advance("22m")
        ticks = [(tick.nominal, tick.outcome) for tick in (await app.schedules.ticks("beats")).ticks]
        assert ticks == [(START + timedelta(minutes=after), "fired") for after in (21, 14, 7, 0)]


async def test_a_schedule_that_is_deleted_while_it_fires_starts_nothing_afterwards(store_url: str) -> None:
    app = App("sqlite://")
    seen: list[int] = []

    @app.workflow
    async def beat(number: int) -> None:
        seen.append(number)

    async with world(app, url=store_url, at=START) as w:
        for number in range(10):
            await app.schedules.create(f"s{number}", beat.bind(number), Spec(intervals=[Interval("1m")]))
        going = asyncio.create_task(w.advance("30s"))
        await asyncio.gather(*[app.schedules.delete(f"s{number}") for number in range(10)])
        await going
        fired = sorted(seen)
        assert len(set(fired)) == len(fired)
        await w.advance("10m")
        assert sorted(seen) == fired


async def test_a_deploy_that_changes_nothing_disturbs_no_next_time(store_url: str) -> None:
    for minutes in (
        0,
        20,
        40,
    ):  # three processes, one after the other, none of them alive at the full hour but the last
        app, seen = counting()
        async with world(app, url=store_url, at=START + timedelta(minutes=minutes)) as w:
            (schedule,) = (await app.schedules.list()).schedules
            assert (schedule.next, schedule.revision) == (datetime(2026, 1, 1, 1, tzinfo=UTC), 1)
            await w.advance("5m")
            assert seen == []
            if minutes == 40:
                await w.advance("20m")
                assert seen == [datetime(2026, 1, 1, 1, tzinfo=UTC)]


def test_a_day_that_some_months_do_not_have_is_left_out_in_those() -> None:
    for dialect in ("vixie", "dbos", "temporal", "graphile"):
        spec = Spec(cron=[Cron("0 0 31 * *", dialect=dialect)])
        assert [time.month for time in spec.upcoming(START, 8)] == [1, 3, 5, 7, 8, 10, 12, 1]
