"""Watching runs, lists as lines of JSON, and the times of schedules, in a terminal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

    from tests.cli.conftest import Mainspring


def test_runs_are_watched_until_they_have_ended(mainspring: Mainspring, history: str) -> None:
    well = mainspring("runs", "watch", "order-1", "--url", history)
    assert (well.exit_code, "succeeded  checkout  order-1" in well.stdout) == (0, True)
    badly = mainspring("runs", "watch", "order-1", "bad-1", "-o", "jsonl", "--url", history)
    assert badly.exit_code == 1
    assert {(each["id"], each["state"]) for each in map(json.loads, badly.stdout.splitlines())} == {
        ("order-1", "succeeded"),
        ("bad-1", "failed"),
    }
    assert mainspring("runs", "watch", "nobody", "--url", history).exit_code == 4
    assert mainspring("runs", "watch", "order-1", "--state", "failed", "--url", history).exit_code == 2


def test_lists_are_lines_of_json_and_long_tables(mainspring: Mainspring, history: str) -> None:
    lines = mainspring("runs", "list", "-o", "jsonl", "--url", history).stdout.splitlines()
    ids = mainspring("runs", "list", "-o", "ids", "--url", history).stdout.split()
    assert [json.loads(line)["id"] for line in lines] == ids
    head = mainspring("runs", "list", "--long", "--url", history).stdout.splitlines()[0]
    assert {"QUEUE", "SCHEDULE", "VERSION", "PARENT", "ATTRIBUTES"} <= set(head.split())
    recent = mainspring("runs", "list", "--created-after", "1h", "-o", "ids", "--url", history).stdout.split()
    assert recent == ids


def test_schedules_are_counted_and_their_times_are_listed(mainspring: Mainspring, history: str) -> None:
    url = ("--url", history)
    for name, more in (("a", ()), ("b", ("--paused",))):
        made = mainspring(
            "schedules", "create", name, "--workflow", "ship", "--arg", "1", "--cron", "0 6 * * *", *more, *url
        )
        assert made.exit_code == 0, made.stderr
    counted = json.loads(mainspring("schedules", "count", "-o", "json", *url).stdout)
    assert counted == {"active": 1, "paused": 1, "stopped": 0, "exhausted": 0, "failed": 0, "failing": 0}
    assert json.loads(mainspring("schedules", "count", "--paused", "-o", "json", *url).stdout)["active"] == 0
    span = ("--after", "2027-01-01", "--until", "2027-01-03T06:00")
    times = mainspring("schedules", "times", "b", *span, *url).stdout.split()
    assert times == ["2027-01-01T06:00:00+00:00", "2027-01-02T06:00:00+00:00", "2027-01-03T06:00:00+00:00"]
    assert (
        mainspring("schedules", "times", "b", *span, "--count", "1", "-o", "jsonl", *url).stdout
        == '"2027-01-01T06:00:00Z"\n'
    )
    assert mainspring("schedules", "times", "none", *url).exit_code == 4
    assert mainspring("schedules", "times", "a", "--after", "2027-01-02", "--until", "2027-01-01", *url).exit_code == 2
    assert [
        json.loads(line)["id"] for line in mainspring("schedules", "list", "-o", "jsonl", *url).stdout.splitlines()
    ] == ["a", "b"]


def test_runs_of_a_filter_are_watched_from_now_on(
    mainspring: Mainspring, history: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []

    def pause(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) > 1:
            raise KeyboardInterrupt
        assert mainspring("runs", "cancel", "order-3", "--url", history).exit_code == 0

    monkeypatch.setattr("mainspring.cli.runs.listing.sleep", pause)
    watched = mainspring("runs", "watch", "--workflow", "checkout", "-o", "jsonl", "--url", history)
    assert [(each["id"], each["state"]) for each in map(json.loads, watched.stdout.splitlines())] == [
        ("order-3", "cancelled")
    ]
