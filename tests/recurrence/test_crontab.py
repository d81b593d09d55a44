"""Crontab files and items: what they hold when they are right, and where they are wrong when they are not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mainspring.errors import InvalidCron
from mainspring.recurrence import CronItem, CronOptions, parse_cron_items, parse_crontab


def only(text: str) -> Any:
    (item,) = parse_crontab(text)
    return item


def test_a_file_of_everything() -> None:
    text = """
# a comment
   # an indented one

30 4 * * 1 send_weekly_email ?fill=2d&max=10 {onboarding:false}
\t*/10,7,56-59\t*\t*\t*\t*\ttask_tab\t
0 */4 * * * rollup ?id=four-hourly
1 2 3 4 7 nested/folder/task ?id=x&fill=1h&max=3&queue=q-1_a:b&jobKey=a%20key&jobKeyMode=preserve_run_at&priority=-5 {a:1}
"""
    email, tab, rollup, nested = parse_crontab(text)
    assert (email.task, email.identifier, email.line) == ("send_weekly_email", "send_weekly_email", 5)
    assert email.options == CronOptions(backfill_period=timedelta(days=2), max_attempts=10)
    assert email.payload == {"onboarding": False}
    assert (email.minutes, email.hours, email.dows) == ((30,), (4,), (1,))
    assert email.dates == tuple(range(1, 32))
    assert tab.minutes == (0, 7, 10, 20, 30, 40, 50, 56, 57, 58, 59)
    assert tab.payload is None
    assert (rollup.identifier, rollup.hours) == ("four-hourly", (0, 4, 8, 12, 16, 20))
    assert (nested.dates, nested.months, nested.dows) == ((3,), (4,), (0,))
    assert nested.options == CronOptions(timedelta(hours=1), 3, "q-1_a:b", "a key", "preserve_run_at", -5)
    assert nested.backfill_period == timedelta(hours=1)


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment", "\ufeff# with a mark of its encoding\r\n\r\n"])
def test_a_file_may_hold_no_entries(text: str) -> None:
    assert parse_crontab(text) == []


@pytest.mark.parametrize(
    ("payload", "value"),
    [
        ("{}", {}),
        ("{hex:0xFF,lead:.5,trail:5.,plus:+1,neg:-2}", {"hex": 255, "lead": 0.5, "trail": 5, "plus": 1, "neg": -2}),
        ("{nested:{a:{b:[{c:null},true,false]}}}", {"nested": {"a": {"b": [{"c": None}, True, False]}}}),
        ("{'single':'quotes', // no\n", None),
        ('{"a": "# not a comment"}', {"a": "# not a comment"}),
        ("{a: 1, /* a comment */ b: 2,}", {"a": 1, "b": 2}),
        ("{_cron:{mine:1}}", {"_cron": {"mine": 1}}),
    ],
)
def test_payloads_are_json5(payload: str, value: dict[str, Any] | None) -> None:
    if value is None:
        with pytest.raises(InvalidCron):
            parse_crontab(f"* * * * * t {payload}")
    else:
        assert only(f"* * * * * t {payload}").payload == value


def test_a_key_alone_means_replace() -> None:
    assert only("* * * * * t ?jobKey=k").options.job_key_mode == "replace"
    assert only("* * * * * t ?&").options == CronOptions()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("* * * * *", "line 1, column 9: 5 of six parts are there"),
        ("@daily t", "line 1, column 1: '@daily' is not known here"),
        ("* * * * * two tasks", "column 15: 'tasks' is out of place"),
        ("* * * * * t # comment", "comments have lines of their own"),
        ("60 * * * * t", "column 1: minute: 60 is not between 0 and 59"),
        ("* * * * 8 t", "day of week: 8 is not between 0 and 6"),
        ("  1-10/2 * * * * t", "column 3: minute: '1-10/2' is not a number, range or wildcard"),
        ("* * * * MON t", "names are not known here"),
        ("* * * * * ta.sk", "column 11: task: 'ta.sk' is not the name of a task"),
        ("* * * * * t ?", "there are no options"),
        ("* * * * * t ?unknown=3", "column 14: unknown: is not an option (there are id, fill"),
        ("* * * * * t ?id=a&id=b", "column 19: id: is given twice"),
        ("* * * * * t ?id=9a", "id: '9a' is not an identifier"),
        ("* * * * * t ?id=a:b", "id: 'a:b' is not an identifier"),
        ("* * * * * t ?fill=1.5h", "fill: '1.5h' is not a time phrase"),
        ("* * * * * t ?fill", "fill: '' is not a time phrase"),
        ("* * * * * t ?max=0", "max: 0 is not between 1 and 32767"),
        ("* * * * * t ?max=99999", "max: 99999 is not between 1 and 32767"),
        ("* * * * * t ?max=2.5", "max: '2.5' is not a whole number"),
        ("* * * * * t ?priority=99999", "priority: 99999 is not between -32768 and 32767"),
        ("* * * * * t ?queue=a%20b", "queue: 'a b' is not a queue"),
        ("* * * * * t ?jobKey=", "jobKey: a key has 1 to 512 characters"),
        ("* * * * * t ?jobKey=k&jobKeyMode=unsafe_dedupe", "jobKeyMode: 'unsafe_dedupe' is not a mode"),
        ("* * * * * t {a:1} ?id=x", "'{a:1}' is out of place"),
        ("* * * * * t {a:1} {b:2}", "column 19: payload: Unexpected"),
        ("* * * * * t {a:1", "is out of place"),
        ("* * * * * t {a:NaN}", "payload: "),
        ("* * * * * t {a:1,\r b:2}", "line 1, column 18: payload: there is a carriage return in it"),
        (
            '* * * * * t\n* * * * * t ?id=x {"a":\r1}\r\n',
            "line 2, column 24: payload: there is a carriage return in it",
        ),
        (
            f"* * * * * {'t' * 100_000}",
            f"line 1, column 11: task: '{'t' * 20}'… has 100000 characters; the limit is 400",
        ),
        (
            f"* * * * * {'t' * 513} ?id=x",
            f"line 1, column 11: task: '{'t' * 20}'… has 513 characters; the limit is 512",
        ),
        (f"* * * * * t ?id={'i' * 401}", f"line 1, column 14: id: '{'i' * 20}'… has 401 characters; the limit is 400"),
        (f"* * * * * t ?queue={'q' * 201}", f"column 14: queue: '{'q' * 20}'… has 201 characters; the limit is 200"),
        ("* * * * * t {a:'\\ud800'}", r"payload: '\ud800' is a lone surrogate"),
        ('* * * * * t {"a":"\\ud800"}', r"payload: '\ud800' is a lone surrogate"),
        ("* * * * * t " + "{a:" * 33 + "1" + "}" * 33, "payload: it is nested too deeply, 32 levels are the most"),
        ('* * * * * t {"a":' + "[" * 64 + "]" * 64 + "}", "payload: it is nested too deeply, 64 levels are the most"),
        ("* * * * * t ?max=99999999999999999999", "max: 99999999999999999999 is not between 1 and 32767"),
        ("* * * * * a\n* * * * * a", "line 2: identifier: 'a' is there twice, first in line 1"),
        ("* * * * * a ?id=x\n\n* * * * * b ?id=x", "line 3: identifier: 'x' is there twice"),
    ],
)
def test_a_bad_line_refuses_the_file_and_says_where(text: str, fault: str) -> None:
    with pytest.raises(InvalidCron) as caught:
        parse_crontab(text)
    assert fault in str(caught.value)


def test_all_faults_of_a_file_are_told_at_once() -> None:
    with pytest.raises(InvalidCron) as caught:
        parse_crontab("61 25 * * * a b\n\n* * * * * c ?max=0&x=1")
    assert [(fault.line, fault.column) for fault in caught.value.faults] == [(1, 1), (1, 4), (1, 15), (3, 14), (3, 20)]


def test_items_are_checked_as_lines_are() -> None:
    (item,) = parse_cron_items([CronItem("task", "*/20 9-10 * * 1-5", CronOptions(backfill_period="1h"), {"a": 1})])
    assert (item.identifier, item.payload, item.backfill_period) == ("task", {"a": 1}, timedelta(hours=1))
    assert parse_cron_items([CronItem("task", "* * * * *")])[0].payload == {}
    with pytest.raises(InvalidCron) as caught:
        parse_cron_items(
            [
                CronItem("ta sk", "61 * * * *", CronOptions(max_attempts=0, job_key="", backfill_period=-1)),
                CronItem("t", 5),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            ]
        )
    assert [fault.field for fault in caught.value.faults] == [
        "items[0].match.minute",
        "items[0].task",
        "items[0].options.fill",
        "items[0].options.max",
        "items[0].options.jobKey",
        "items[1].match",
    ]
    with pytest.raises(InvalidCron) as caught:
        parse_cron_items(
            [
                CronItem("t" * 401, "* * * * *"),
                CronItem("t" * 513, "* * * * *", CronOptions(queue_name="q" * 201), identifier="i" * 401),
            ]
        )
    assert [(fault.field, fault.message.split("… ")[1]) for fault in caught.value.faults] == [
        ("items[0].task", "has 401 characters; the limit is 400"),
        ("items[1].task", "has 513 characters; the limit is 512"),
        ("items[1].identifier", "has 401 characters; the limit is 400"),
        ("items[1].options.queue", "has 201 characters; the limit is 200"),
    ]
    longest = CronItem("t" * 512, "* * * * *", CronOptions(queue_name="q" * 200), identifier="i" * 400)
    assert parse_cron_items([longest])[0].task == longest.task
    for payload, reason in (
        ({"a": [{1: 2}]}, "the key 1 is not a text"),
        ({"a": "\ud800"}, "is a lone surrogate"),
        ({"a": {1}}, "is not JSON serializable"),
    ):
        with pytest.raises(InvalidCron, match=rf"items\[0\].payload: .* is not JSON: .*{reason}"):
            parse_cron_items([CronItem("t", "* * * * *", payload=payload)])
    with pytest.raises(InvalidCron, match="is there twice"):
        parse_cron_items([CronItem("t", "* * * * *"), CronItem("t", "0 * * * *")])


def test_the_spec_of_an_entry_is_in_utc_and_lets_either_day_match() -> None:
    spec = only("0 0 13 * 5 t").spec()
    assert spec.timezone == "UTC"
    times = spec.upcoming(datetime(2024, 10, 8, tzinfo=UTC), 3)
    assert [when.day for when in times] == [11, 13, 18]
