"""`mainspring schedules preview` needs no database and marks what the clocks do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from mainspring.cli.schedules.preview import preview
from mainspring.recurrence import Spec
from mainspring.recurrence.zones.transitions import effects

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

BERLIN = ["--timezone", "Europe/Berlin"]


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(preview, list(arguments), input=stdin)


def test_the_words_the_list_and_the_month() -> None:
    result = run("30 2 * * *", *BERLIN, "--after", "2026-03-27T12:00Z", "--count", "3")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "Every day at 02:30, Europe/Berlin",
        "",
        "  Sat 2026-03-28 02:30:00 CET   2026-03-28T01:30:00Z",
        "! Sun 2026-03-29 03:00:00 CEST  2026-03-29T01:00:00Z  02:30 does not exist that day: moved to 03:00",
        "  Mon 2026-03-30 02:30:00 CEST  2026-03-30T00:30:00Z",
        "",
        "         March 2026",
        " Mo  Tu  We  Th  Fr  Sa  Su",
        "                          1",
        "  2   3   4   5   6   7   8",
        "  9  10  11  12  13  14  15",
        " 16  17  18  19  20  21  22",
        " 23  24  25  26  27 [28][29!",
        "[30] 31",
        "",
    ]
    assert "the clocks jump over 02:30" in result.stderr


@pytest.mark.parametrize(
    ("text", "options", "after", "mark"),
    [
        ("30 2 * * *", ["--gap", "skip"], "2026-03-28T12:00Z", "02:30 does not exist that day: skipped"),
        ("30 2 * * *", ["--gap", "shift"], "2026-03-28T12:00Z", "02:30 does not exist that day: moved to 03:30"),
        ("30 2 * * *", ["--fold", "both"], "2026-10-24T12:00Z", "02:30 happens twice that day: both count"),
        ("30 2 * * *", ["--fold", "second"], "2026-10-24T12:00Z", "02:30 happens twice that day: the second counts"),
        ("30 2 * * *", [], "2026-10-24T12:00Z", "02:30 happens twice that day: the first counts"),
        ("*/20 2 * * *", [], "2026-03-28T12:00Z", "02:00 (and 2 more) does not exist that day: moved to 03:00"),
    ],
)
def test_a_transition_is_marked(text: str, options: list[str], after: str, mark: str) -> None:
    result = run(text, *BERLIN, *options, "--after", after, "--count", "3")
    assert [line for line in result.stdout.splitlines() if line.startswith("!") and line.endswith(mark)]


def test_json_is_data_alone() -> None:
    result = run(
        "0 9 * * mon-fri", "--timezone", "Europe/Paris", "--after", "2026-03-27T00:00Z", "--count", "2", "-o", "json"
    )
    shown: dict[str, Any] = json.loads(result.stdout)
    assert shown["description"] == "Every weekday at 09:00, Europe/Paris"
    assert [time["utc"] for time in shown["times"]] == ["2026-03-27T08:00:00Z", "2026-03-30T07:00:00Z"]
    assert [advice["code"] for advice in shown["warnings"]] == ["top-of-hour"]
    assert Spec.from_dict(shown["spec"]).timezone == "Europe/Paris"


def test_a_spec_from_a_file_and_from_stdin(tmp_path: Path) -> None:
    file = tmp_path / "spec.json"
    file.write_text(json.dumps({"intervals": ["6h/5h"]}))
    until = ["--after", "2026-01-01T00:00Z", "--until", "2026-01-01T23:00Z", "-o", "json"]
    for result in (run("--spec", str(file), *until), run("--spec", "-", *until, stdin='{"intervals": ["6h/5h"]}')):
        times = json.loads(result.stdout)["times"]
        assert [time["utc"][11:13] for time in times] == ["05", "11", "17", "23"]


def test_no_times_is_an_answer() -> None:
    result = run("0 0 30 2 *")
    assert result.exit_code == 0
    assert "No times." in result.stdout
    assert "no time matches" in result.stderr


def test_a_local_time_is_in_the_zone_of_the_spec() -> None:
    result = run("0 9 * * *", "--timezone", "Asia/Tokyo", "--after", "2026-01-01T08:59", "--count", "1", "-o", "json")
    assert json.loads(result.stdout)["times"][0]["local"] == "2026-01-01T09:00:00+09:00"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["63 * * * *"], "minute: 63 is not between 0 and 59"),
        (["* * * * * *"], "For seconds write --dialect vixie"),
        (["0 9 * * *", "--after", "soon"], "--after: 'soon' is not a time"),
        (["0 9 * * *", "--timezone", "Mars"], "is not a time zone"),
        (["--spec", "/does/not/exist"], "No such file"),
        (["--spec", "-"], "line 1, column 1"),
        ([], "either an EXPRESSION or --spec FILE"),
        (["0 9 * * *", "--spec", "x"], "either an EXPRESSION or --spec FILE"),
        (["0 9 * * *", "--count", "0"], "--count"),
        (["0 9 * * *", "--dialect", "quartz"], "--dialect"),
    ],
)
def test_what_is_wrong_goes_to_stderr(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "error: " in result.stderr
    assert message in result.stderr


def test_a_dialect_says_what_six_fields_mean() -> None:
    result = run("*/10 * * * * *", "--dialect", "vixie", "--after", "2026-01-01T00:00Z", "--count", "1", "-o", "json")
    assert json.loads(result.stdout)["times"][0]["utc"] == "2026-01-01T00:00:10Z"


def test_an_hourly_pattern_is_dropped_and_repeated() -> None:
    spec = Spec(cron=["30 * * * *"], timezone="Europe/Berlin")
    skipped, repeated = effects(spec, 1_767_225_600, 1_798_761_600)
    assert (skipped.kind, skipped.at) == ("skipped", ())
    assert (repeated.kind, len(repeated.at)) == ("repeated", 2)
