"""A year with both changes of the clocks, on the virtual clock, against what a calendar on the wall says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest

from mainspring import Overlap, Policy, Spec
from tests.schedules.conftest import bench_at

if TYPE_CHECKING:
    from datetime import date

    from mainspring.recurrence.search.search import Fold, Gap

PARIS = ZoneInfo("Europe/Paris")
YEAR = datetime(2026, 1, 1, tzinfo=PARIS)


def _walls(days: int, hour: int, minute: int, gap: Gap, fold: Fold) -> list[datetime]:
    """By hand: what a daily time of the wall is in UTC, with 29 March without 02:30 and 25 October with two of them."""
    found: list[datetime] = []
    for number in range(days):
        day: date = (YEAR + timedelta(days=number)).date()
        wall = datetime(day.year, day.month, day.day, hour, minute, tzinfo=PARIS)
        first, second = wall.astimezone(UTC), wall.replace(fold=1).astimezone(UTC)
        if first > second:  # it does not exist
            found += {"after": [datetime(2026, 3, 29, 1, tzinfo=UTC)], "skip": [], "shift": [first]}[gap]
        elif first < second:
            found += {"first": [first], "second": [second], "both": [first, second]}[fold]
        else:
            found.append(first)
    return found


@pytest.mark.parametrize(("gap", "fold"), [("after", "first"), ("skip", "both"), ("shift", "second")])
async def test_a_daily_time_of_the_wall_through_a_year(sqlite_url: str, gap: Gap, fold: Fold) -> None:
    begin = YEAR.astimezone(UTC) - timedelta(seconds=1)
    spec = Spec(cron=["30 2 * * *"], timezone="Europe/Paris", gap=gap, fold=fold)
    async with bench_at(sqlite_url, begin, tick_retention=None) as bench:
        await bench.create(spec, Policy(Overlap.ALLOW_ALL))
        await bench.world.advance_to(begin + timedelta(days=365))
        ticks = await bench.ticks()
    assert [tick.nominal for tick in ticks] == _walls(365, 2, 30, gap, fold)
    assert {str(tick.outcome) for tick in ticks} == {"fired"}
    assert [moment for _, moment in bench.started] == [tick.nominal for tick in ticks]


async def test_both_weeks_in_which_the_clocks_change(store_url: str) -> None:
    """Every hour of the wall that exists, each time it exists, is one tick; intervals do not notice."""
    for first in (datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 10, 24, 12, tzinfo=UTC)):
        async with bench_at(store_url, first, tick_retention=None) as bench:
            hourly = Spec(cron=["0 * * * *"], timezone="Europe/Paris")
            await bench.create(hourly, Policy(Overlap.ALLOW_ALL), name=f"cron-{first:%m}")
            await bench.create("1h", Policy(Overlap.ALLOW_ALL), name=f"interval-{first:%m}")
            await bench.world.advance("36h")
            for kind in ("cron", "interval"):
                ticks = await bench.ticks(f"{kind}-{first:%m}")
                assert [tick.nominal for tick in ticks] == [first + timedelta(hours=n) for n in range(1, 37)]
            for name in (f"cron-{first:%m}", f"interval-{first:%m}"):
                await bench.app.schedules.delete(name)
