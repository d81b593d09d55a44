"""Two other libraries read the same expressions. Where they disagree, docs/cron-differences.md says why.

Each difference has its rule here, so that a new one fails: cronsim keeps real time for every expression whose minute or
hour begins with a star, croniter fires twice at repeated times. With the policy that corresponds, all times are equal.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter
from cronsim import CronSim

from mainspring.recurrence import Cron, Fold, Gap
from tests.recurrence.brute import transitions
from tests.recurrence.corpus import CORPUS

if TYPE_CHECKING:
    from collections.abc import Callable

TICKS = 16
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "America/Havana", "Australia/Sydney"]

MIDNIGHT_GAPS = ["America/Havana"]
"""Where the clocks jump at midnight, cronsim keeps real time on some days of the week and not on others."""


def starts(key: str) -> list[datetime]:
    """The beginning of two years, and a day and a half before each transition in them."""
    zone = ZoneInfo(key)
    before = [datetime.fromtimestamp(at, zone) - timedelta(hours=36) for at in transitions(key, 2026, 2028)]
    return [datetime(2026, 1, 1, tzinfo=zone), *before]


def times(cron: Cron, after: datetime, key: str, gap: Gap, fold: Fold) -> list[datetime]:
    found: list[datetime] = []
    while len(found) < TICKS and (when := cron.next(after, key, gap=gap, fold=fold)) is not None:
        found.append(when.astimezone(UTC))
        after = when
    return found


def disagreements(
    key: str, policy: Callable[[str], tuple[Gap, Fold]], other: Callable[[str, datetime, int], list[datetime]]
) -> list[str]:
    found: list[str] = []
    for text in CORPUS:
        if keeps_real_time(text) and key in MIDNIGHT_GAPS:
            continue
        cron, (gap, fold) = Cron(text), policy(text)
        for start in starts(key):
            expected = times(cron, start, key, gap, fold)
            if expected != other(text, start, len(expected)):
                found.append(f"{text} after {start}")
    return found


def keeps_real_time(text: str) -> bool:
    minute, hour = text.split()[:2]
    return minute.startswith("*") or hour.startswith("*")


@pytest.mark.parametrize("key", ZONES)
def test_cronsim_finds_the_same_times(key: str) -> None:
    def cronsim(text: str, start: datetime, count: int) -> list[datetime]:
        walk = CronSim(text, start)
        return [next(walk).astimezone(UTC) for _ in range(count)]

    assert (
        disagreements(key, lambda text: ("skip", "both") if keeps_real_time(text) else ("after", "first"), cronsim)
        == []
    )


@pytest.mark.parametrize("key", ZONES[:2])
def test_croniter_finds_the_same_times(key: str) -> None:
    def walk_croniter(text: str, start: datetime, count: int) -> list[datetime]:
        walk = croniter(text, start)
        return [walk.get_next(datetime).astimezone(UTC) for _ in range(count)]

    assert disagreements(key, lambda _: ("after", "both"), walk_croniter) == []


@pytest.mark.parametrize(
    ("text", "ours", "theirs"),
    [
        ("0 0 */2 * 1", "2026-01-05", "2026-01-03"),  # a day field that begins with a star is no restriction
        ("0 0 * * 1/2", "2026-01-02", "2026-01-02"),
    ],
)
def test_croniter_reads_some_expressions_otherwise(text: str, ours: str, theirs: str) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    when = Cron(text).next(start)
    assert when is not None
    assert when.date().isoformat() == ours
    assert croniter(text, start).get_next(datetime).date().isoformat() == theirs


def test_half_hour_transitions_are_where_others_go_wrong() -> None:
    """After Lord Howe's half-hour jump, cronsim is half an hour late with hour 3, croniter fires hour 0-23 in the gap."""
    start = datetime(2026, 10, 2, 14, tzinfo=ZoneInfo("Australia/Lord_Howe"))
    sunday_three = Cron("* 3 * * 0").next(start, "Australia/Lord_Howe")
    assert sunday_three is not None
    assert sunday_three.isoformat() == "2026-10-04T03:00:00+11:00"
    assert next(CronSim("* 3 * * 0", start)).isoformat() == "2026-10-04T03:30:00+11:00"
