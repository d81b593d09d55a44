"""Specs in plain English, and what a careful colleague says about them."""

from __future__ import annotations

import warnings
from datetime import UTC, date, datetime
from typing import Any

import pytest

from mainspring.recurrence import AmbiguousCron, Calendar, Cron, Interval, Spec, lint

MUCH = (
    "Every day at 02:00, except Saturdays and Sundays, 24 December 2026 to 26 December 2026 and from 12:00 to 14:59, "
    "from 1 January 2026 01:00 on, until 1 January 2027 01:00, each up to 5 minutes later, "
    "not at times that the clocks jump over, twice where the clocks repeat a time, Europe/Paris"
)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            Spec(
                cron=["0 9,17 * * mon-fri"], exclude=[Calendar(month="12", day_of_month="25")], timezone="Europe/Paris"
            ),
            "Every weekday at 09:00 and 17:00, except 25 December, Europe/Paris",
        ),
        (Spec(), "No times of its own: it is started on request only"),
        (Spec(cron=["* * * * *"]), "Every minute, UTC"),
        (Spec(cron=["*/5 * * * *"]), "Every 5 minutes, UTC"),
        (Spec(cron=["5/15 * * * *"]), "Every 15 minutes from minute 5, UTC"),
        (Spec(cron=["*/7 * * * *"]), "At 0, 7, 14, 21, 28, 35, 42, 49 and 56 minutes past every hour, UTC"),
        (Spec(cron=["0 * * * *"]), "Every hour, UTC"),
        (Spec(cron=["30 * * * *"]), "Every hour at 30 minutes past, UTC"),
        (Spec(cron=["15 */2 * * *"]), "Every 2 hours from 00:15, UTC"),
        (Spec(cron=["30 8-18 * * mon-fri"]), "Every hour from 08:30 to 18:30 on weekdays, UTC"),
        (Spec(cron=["*/10 9-17 * * 1,3"]), "Every 10 minutes from 09:00 to 17:50 on Mondays and Wednesdays, UTC"),
        (Spec(cron=["0 0 1,15 * *"]), "On the 1st and 15th of every month at 00:00, UTC"),
        (Spec(cron=["0 0 29 2 *"]), "On 29 February at 00:00, UTC"),
        (Spec(cron=["0 0 1 1 * 2030"]), "On 1 January 2030 at 00:00, UTC"),
        (Spec(cron=["30 2 * * 1-5,7"]), "Every day but Saturday at 02:30, UTC"),
        (Spec(cron=["0 2 * * * # nightly"]), "Every day at 02:00 (nightly), UTC"),
        (Spec(cron=[Cron("0 0 13 * 5")]), "On the 13th of every month at 00:00, or every Friday at 00:00, UTC"),
        (Spec(cron=[Cron("0 0 13 * 5", "dbos")]), "At 00:00 on the 13th of every month if it is a Friday, UTC"),
        (Spec(cron=[Cron("*/10 * * * * *")]), "Every 10 seconds, UTC"),
        (Spec(cron=[Cron("0 9 L * *")]), "On the last day of every month at 09:00, UTC"),
        (Spec(cron=[Cron("0 9 * * fri#2")]), "On the second Friday of every month at 09:00, UTC"),
        (Spec(calendars=[Calendar(month="Jan,Apr", hour="11")]), "Every day in January and April at 11:00, UTC"),
        (Spec(calendars=[Calendar(hour=[])]), "Never, UTC"),
        (Spec(intervals=["90m"]), "Every 90 minutes"),
        (Spec(intervals=["6h/5h"]), "Every 6 hours from 05:00 UTC"),
        (Spec(intervals=["1d"]), "Every day"),
        (
            Spec(intervals=[Interval("2w", anchor=datetime(2026, 1, 5, 9, tzinfo=UTC))]),
            "Every 2 weeks, counted from 5 January 2026 09:00 UTC",
        ),
        (
            Spec(
                cron=["0 2 * * *"],
                exclude=[
                    Calendar(day_of_week="sat,sun"),
                    (date(2026, 12, 24), date(2026, 12, 26)),
                    Calendar(hour="12-14"),
                ],
                start=datetime(2026, 1, 1, tzinfo=UTC),
                end=datetime(2027, 1, 1, tzinfo=UTC),
                jitter="5m",
                timezone="Europe/Paris",
                gap="skip",
                fold="both",
            ),
            MUCH,
        ),
    ],
)
def test_words(spec: Spec, words: str) -> None:
    assert spec.describe() == words


@pytest.mark.parametrize(
    ("given", "codes"),
    [
        ({"cron": "17 3 * * *"}, []),
        ({}, []),
        ({"cron": "30 2 * * *", "timezone": "Europe/Berlin"}, ["gap", "fold"]),
        ({"cron": "30 1 * * *", "timezone": "America/New_York"}, ["fold"]),
        ({"cron": "30 * * * *", "timezone": "Europe/Berlin"}, []),
        ({"cron": "30 2 * * *", "timezone": "Asia/Tokyo"}, []),
        ({"cron": "17 0 30 2 *"}, ["never", "short-month"]),
        ({"cron": "* * * * *", "exclude": Calendar()}, ["never"]),
        ({"cron": "17 0 29 2 *"}, ["rare", "leap-day"]),
        ({"cron": "17 0 13 * 5"}, ["rare"]),
        ({"cron": "17 3 31 * *"}, ["short-month"]),
        ({"cron": "17 3 31 1,3 *"}, []),
        ({"cron": "*/7 * * * *"}, ["uneven"]),
        ({"cron": "7 */5 * * *"}, ["uneven"]),
        ({"cron": "0 9 * * *"}, ["top-of-hour"]),
        ({"cron": "0 9 * * *", "jitter": "5m"}, []),
        ({"intervals": "2h"}, ["top-of-hour"]),
        ({"intervals": "2h/7m"}, []),
    ],
)
def test_lint(given: dict[str, Any], codes: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AmbiguousCron)
        advice = lint(Spec(**given))
    assert [one.code for one in advice] == codes
    assert all(one.message for one in advice)


def test_lint_says_what_will_happen() -> None:
    gap, fold = lint(Spec(cron="30 2 * * *", timezone="Europe/Berlin", gap="skip", fold="both"))
    assert "it does not run that day (gap='skip')" in str(gap)
    assert "it runs twice (fold='both')" in str(fold)


@pytest.mark.parametrize(
    ("after", "gap", "fold"), [("2026-07-29", "2027-03-28", "2026-10-25"), ("2050-01-01", "2050-03-27", "2050-10-30")]
)
def test_lint_shows_the_next_change_of_the_clocks(after: str, gap: str, fold: str) -> None:
    spec = Spec(cron="30 2 * * *", timezone="Europe/Paris")
    found = {advice.code: advice.message for advice in lint(spec, datetime.fromisoformat(f"{after}T00:00Z"))}
    assert f"on {gap}" in found["gap"]
    assert f"on {fold}" in found["fold"]
