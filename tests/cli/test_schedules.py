"""`mainspring schedules` makes, changes, shows and accounts for schedules."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import Retry, Spec
from mainspring.app.declarations.schedules import define
from mainspring.operations.schedules.declared import Declared
from tests.cli import shop
from tests.support.processes import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from mainspring import App
    from tests.cli.conftest import Mainspring

NIGHTLY = ("--workflow", "doomed", "--arg", '"x"', "--cron", "0 2 * * *", "--timezone", "Europe/Paris")
HOURLY = {"id": "hourly", "workflow": "ship", "input": {"order": 1}, "spec": {"intervals": ["1h"]}}


class Shell:
    """The command on one database."""

    def __init__(self, mainspring: Mainspring, url: str) -> None:
        self._mainspring = mainspring
        self._env = {"MAINSPRING_URL": url}

    def __call__(self, *arguments: str, stdin: str | None = None, exits: int = 0) -> str:
        result = self._mainspring("schedules", *arguments, stdin=stdin, env=self._env)
        assert result.exit_code == exits, result.stderr
        self.stderr = result.stderr
        return result.stdout

    def json(self, *arguments: str, stdin: str | None = None) -> Any:
        return json.loads(self(*arguments, "-o", "json", stdin=stdin))


@pytest.fixture
def shell(mainspring: Mainspring, client: App, store_url: str) -> Shell:
    client._runtime.connection()
    return Shell(mainspring, store_url)


def test_a_schedule_made_by_flags_is_shown_with_everything(shell: Shell) -> None:
    page = shell(
        "create", "nightly", *NIGHTLY, "--overlap", "BufferOne", "--catchup", "10m", "--note", "for the office"
    )
    assert page.startswith("nightly  doomed  active\n")
    assert "Every day at 02:00, Europe/Paris" in page
    assert "for the office" in page
    shown = shell.json("show", "nightly")
    assert shown["action"]["input"] == {"*": ["x"]}
    assert (shown["policy"]["overlap"], shown["policy"]["catchup"]) == ("buffer_one", "10m")
    assert len(shown["upcoming"]) == 10


def test_every_part_of_a_spec_and_policy_has_its_flag(shell: Shell) -> None:
    shell(
        *("create", "s", "--workflow", "ship", "--input", '{"order": 7}', "--interval", "6h/5h"),
        *("--calendar", '{"month": "1,4", "hour": "11-14"}', "--exclude", '{"month": 12, "dayOfMonth": 25}'),
        *("--exclude", "2027-01-01", "--start", "2026-01-01T00:00:00Z", "--end", "2099-01-01T00:00:00Z"),
        *("--jitter", "5m", "--gap", "skip", "--fold", "both", "--pause-on-failure", "3", "--limit", "100"),
        *("--max-running", "2", "--buffer-limit", "5", "--coalesce", "--catchup", "none", "--overlap", "buffer_all"),
        *("--run-id", "shipping", "--timeout", "1h", "--run-attribute", "tenant=acme", "--version", "v1"),
    )
    shown = shell.json("show", "s")
    assert shown["spec"]["intervals"] == [{"every": "6h", "offset": "5h"}]
    assert {"month": "1,4", "hour": "11-14"} in shown["spec"]["calendars"]
    assert len(shown["spec"]["exclude"]) == 2
    assert (shown["spec"]["jitter"], shown["spec"]["gap"], shown["spec"]["fold"]) == ("5m", "skip", "both")
    assert shown["policy"] == {
        "overlap": "buffer_all",
        "catchup": None,
        "pauseOnFailure": 3,
        "limit": 100,
        "maxRunning": 2,
        "bufferLimit": 5,
        "coalesce": True,
        "whenActive": False,
    }
    action = shown["action"]
    assert (action["id"], action["timeout"], action["attributes"]) == ("shipping", 3600, {"tenant": "acme"})
    assert (action["version"], action["input"]["order"]) == ("v1", 7)


def test_an_update_changes_what_it_names(shell: Shell) -> None:
    shell("create", "nightly", *NIGHTLY, "--overlap", "buffer_one", "--timeout", "1h")
    before = shell.json("show", "nightly")
    after = shell.json("update", "nightly", "--interval", "2h", "--max-running", "2", "--run-attribute", "a=1")
    assert "cron" not in after["spec"]
    assert after["spec"]["timezone"] == "Europe/Paris"
    assert after["policy"] == before["policy"] | {"maxRunning": 2}
    assert after["action"] == before["action"] | {"attributes": {"a": 1}}
    assert after["revision"] == before["revision"] + 1
    shell("update", "nightly", "--cron", "0 3 * * *", "--revision", "1", exits=1)
    assert "revision 2, not 1" in shell.stderr
    shell("update", "nightly", exits=2)
    assert shell.json("show", "nightly")["revision"] == 2


def test_pausing_on_failure_needs_no_number(shell: Shell) -> None:
    shell("create", "nightly", *NIGHTLY, "--pause-on-failure", "--note", "x")
    assert shell.json("show", "nightly")["policy"]["pauseOnFailure"] == 1
    shell("update", "nightly", "--pause-on-failure", "3")
    assert shell.json("show", "nightly")["policy"]["pauseOnFailure"] == 3


async def test_an_update_keeps_what_only_code_can_say(shell: Shell, client: App) -> None:
    call = shop.ship.options(retry=Retry(4, first=2), key="one", key_mode="preserve_run_at").bind(1)
    await client.schedules.create("hourly", call, Spec(intervals=["1h"]))
    before = (await client.schedules.describe("hourly")).action
    await asyncio.to_thread(shell, "update", "hourly", "--priority", "3", "--timeout", "5m")
    after = (await client.schedules.describe("hourly")).action
    assert after == {**before, "priority": 3, "timeout": 300.0}
    assert after["retry"] is not None


def test_a_file_of_schedules_is_applied_and_pruned(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "schedules.json"
    file.write_text(json.dumps([HOURLY, HOURLY | {"id": "other"}]))
    assert shell.json("apply", str(file)) == {"hourly": "created", "other": "created"}
    assert shell.json("apply", str(file)) == {"hourly": "unchanged", "other": "unchanged"}
    shell("pause", "hourly", "--reason", "holidays")
    changed = {"schedules": [HOURLY | {"policy": {"overlap": "allow_all"}}]}
    assert shell.json("apply", "-", "--prune", stdin=json.dumps(changed)) == {"hourly": "updated", "other": "deleted"}
    shown = shell.json("show", "hourly")
    assert (shown["paused"], shown["note"], shown["policy"]["overlap"]) == (True, "holidays", "allow_all")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"spec": {"cron": ["99 * * * *"]}}, "99"),
        ({"policy": {"overlap": "sometimes"}}, "no overlap policy 'sometimes'"),
        ({"spec": {"timezone": "Mars/Base", "cron": ["0 0 * * *"]}}, "Mars/Base"),
        ({"spec": {"end": "2020-01-01T00:00:00Z", "intervals": ["1h"]}}, "no time after"),
        ({"who": "me"}, "there is no who"),
        ({"options": {"timeout": "-1s"}}, "negative"),
        ({"id": "a/b"}, "'/'"),
    ],
)
def test_a_file_with_a_fault_says_where_and_changes_nothing(shell: Shell, wrong: dict[str, Any], says: str) -> None:
    text = json.dumps([HOURLY | {"id": "good"}, HOURLY | wrong])
    shell("apply", "-", stdin=text, exits=2)
    assert says in shell.stderr
    assert shell.json("list")["schedules"] == []


def test_the_faults_of_all_schedules_of_a_file_are_listed(shell: Shell) -> None:
    wrong = [HOURLY | {"id": "a", "spec": {"cron": ["99 * * * *"]}}, HOURLY | {"id": "b"}, {"id": "c"}, 5]
    shell("apply", "-", stdin=json.dumps(wrong), exits=2)
    for says in (
        "'a': spec: column 1: cron[0].minute: 99",
        "'c': workflow, spec must be given",
        "a JSON object, not 5",
    ):
        assert says in shell.stderr


def test_schedules_are_listed_by_filters_and_in_pages(shell: Shell) -> None:
    shell("create", "a-1", "--workflow", "ship", "--interval", "1h", "--attribute", "tenant=acme")
    shell("create", "a-2", "--workflow", "doomed", "--interval", "1h", "--attribute", "tenant=other", "--paused")
    shell("create", "b-1", *NIGHTLY)
    listed = shell("list").splitlines()
    assert [line.split()[:3] for line in listed[1:]] == [
        ["a-1", "ship", "active"],
        ["a-2", "doomed", "paused"],
        ["b-1", "doomed", "active"],
    ]
    for filters, found in (
        (["--id-prefix", "a-"], ["a-1", "a-2"]),
        (["--paused"], ["a-2"]),
        (["--active"], ["a-1", "b-1"]),
        (["--workflow", "ship"], ["a-1"]),
        (["--attribute", "tenant=acme"], ["a-1"]),
        (["--due-before", "61m", "--active", "--id-prefix", "a"], ["a-1"]),
        (["--limit", "1", "--after", "a-1"], ["a-2"]),
    ):
        assert shell("list", "-o", "ids", *filters).split() == found, filters
    shell("list", "--limit", "2")
    assert "--after a-2" in shell.stderr


async def test_what_a_trigger_started_is_seen_in_ticks_and_audit(shell: Shell, client: App) -> None:
    shell("create", "daily", "--workflow", "ship", "--arg", "1", "--cron", "@daily", "--paused")
    run_id = shell("trigger", "daily").strip()
    shell("trigger", "daily", exits=1)
    assert "daily started nothing: run " in shell.stderr
    assert shell("ticks", "daily", "-o", "ids").split() == [run_id]
    ticks = shell.json("ticks", "daily", "--outcome", "skipped_overlap")["ticks"]
    assert [(tick["source"], tick["run"]) for tick in ticks] == [("trigger", None)]
    assert f"run {run_id} was unfinished" in shell("ticks", "daily")
    async with client:
        assert await client.handle(run_id).result() == "parcel 1"
    assert shell.json("audit", "daily", "--since", "1h")["manual"] == 2


def test_a_schedule_is_paused_for_a_while_and_resumed(shell: Shell) -> None:
    shell("create", "nightly", *NIGHTLY)
    assert shell("pause", "nightly", "--reason", "release", "--until", "2h") == "nightly\tpaused\n"
    shown = shell.json("show", "nightly")
    assert (shown["paused"], shown["pause_note"], len(shown["upcoming"])) == (True, "release", 10)
    assert shown["resume_at"] is not None
    assert shown["upcoming"][0] >= shown["resume_at"]
    assert "paused       release" in shell("show", "nightly")
    assert shell("resume", "-", stdin="nightly\n") == "nightly\tactive\n"
    shell("pause", "nightly", "--until", "2020-01-01T00:00:00Z", exits=2)


def test_what_differs_from_the_code_is_said_and_goes_back(shell: Shell, client: App) -> None:
    definition = define("declared", shop.ship.bind(1), Spec(intervals=["1h"]), None, note="for the office")
    declared = Declared(
        client._runtime.connection().store, client._runtime.clock, client._runtime.ids, app="shop", version="v1"
    )
    declared.apply([definition], alone=True)
    assert shell("reset", "declared") == "declared\tas declared\n"
    shell("update", "declared", "--interval", "2h")
    shell("pause", "declared", "--reason", "holidays")
    page = shell("show", "declared")
    assert "note         for the office" in page
    assert "paused       holidays" in page
    assert "when resumed" in page
    assert "from the code, in spec; `mainspring schedules reset declared` undoes that" in page
    assert shell("reset", "declared", "--reason", "enough") == "declared\tas declared again: spec\n"
    assert shell.json("show", "declared")["spec"]["intervals"] == [{"every": "1h"}]
    shell("create", "own", *NIGHTLY)
    shell("reset", "own", exits=2)
    assert "made at run time" in shell.stderr


def test_the_next_tick_is_skipped_and_taken_back(shell: Shell) -> None:
    shell("create", "nightly", *NIGHTLY)
    first, second = shell.json("show", "nightly")["upcoming"][:2]
    assert shell("skip", "nightly").split("\t")[0] == first.replace("+00:00", "Z")
    assert shell.json("show", "nightly")["upcoming"][0] == second
    assert "not skipped" in shell("skip", "nightly", "--undo", "--at", first)
    assert shell.json("show", "nightly")["skips"] == []


async def test_a_backfill_is_asked_for_watched_and_stopped(shell: Shell, client: App) -> None:
    shell("create", "nightly", "--workflow", "ship", "--arg", "2", "--cron", "0 2 * * *")
    (made,) = shell.json("backfill", "nightly", "--start", "2026-01-01T02:00:00Z", "--end", "2026-01-03T02:00:00Z")
    assert made["state"] == "running"
    async with client:
        await asyncio.to_thread(
            eventually, lambda: len(shell("ticks", "nightly", "-o", "ids").split()) == 3, "three runs"
        )
    (done,) = shell.json("backfill", "nightly")
    assert (done["state"], done["started"]) == ("done", 3)
    more = shell("backfill", "nightly", "--start", "2025-01-01T00:00:00Z", "-o", "ids").strip()
    assert shell.json("backfill", "nightly", "--stop", more)[0]["state"] == "stopped"
    shell("backfill", "nightly", "--start", "2026-01-02T00:00:00Z", "--end", "2026-01-01T00:00:00Z", exits=2)


def test_a_date_is_the_midnight_at_which_it_begins(shell: Shell) -> None:
    """In UTC, which is what commands print; what belongs to the spec is in its own zone."""
    shell("create", "nightly", *NIGHTLY, "--start", "2026-11-01", "--end", "2099-01-01T09:00", "--paused")
    spec = shell.json("show", "nightly")["spec"]
    assert (spec["start"], spec["end"]) == ("2026-11-01T00:00:00+01:00", "2099-01-01T09:00:00+01:00")
    shell("update", "nightly", "--start", "2026-07-01", "--timezone", "America/New_York")
    spec = shell.json("show", "nightly")["spec"]
    assert (spec["start"], spec["timezone"]) == ("2026-07-01T00:00:00-04:00", "America/New_York")
    audit = shell.json("audit", "nightly", "--since", "2020-11-01", "--until", "2020-11-02T12:30")
    assert (audit["since"], audit["until"]) == ("2020-11-01T00:00:00Z", "2020-11-02T12:30:00Z")
    (made,) = shell.json("backfill", "nightly", "--start", "2026-07-03", "--end", "2026-07-04")
    assert (made["start"], made["end"]) == ("2026-07-03T00:00:00Z", "2026-07-04T00:00:00Z")
    assert shell("ticks", "nightly", "--since", "2020-11-01", "--until", "2020-11-02") == ""
    shell("pause", "nightly", "--until", "2090-01-01")
    assert shell.json("show", "nightly")["resume_at"] == "2090-01-01T00:00:00Z"
    assert shell("list", "--due-before", "2020-01-01", "-o", "ids") == ""


def test_what_is_no_time_is_refused_with_an_example(shell: Shell) -> None:
    shell("create", "nightly", *NIGHTLY)
    flags = {"audit": "--since", "ticks": "--until", "pause": "--until", "skip": "--at", "update": "--start"}
    for verb, flag in flags.items():
        for time in ("tomorrow", "2026-13-01", "2026-11-31"):
            shell(verb, "nightly", flag, time, exits=2)
            assert f"{flag}: {time!r} is not a time; write it like 2027-01-31" in shell.stderr


def test_a_time_too_long_ago_is_told_in_words(shell: Shell) -> None:
    shell("create", "nightly", *NIGHTLY)
    shell("audit", "nightly", "--since", "999999d", exits=2)
    assert "--since: '999999d' is longer than 365,000 days" in shell.stderr


def test_a_schedule_is_deleted_after_asking(shell: Shell) -> None:
    shell("create", "nightly", *NIGHTLY)
    shell("delete", "nightly", stdin="n\n", exits=1)
    assert shell("list", "-o", "ids") == "nightly\n"
    assert shell("delete", "nightly", "--yes") == "nightly\tdeleted\n"
    shell("show", "nightly", exits=4)
    assert "schedule 'nightly' not found" in shell.stderr
    for verb in ("pause", "resume", "trigger", "skip", "ticks", "audit", "backfill"):
        shell(verb, "nightly", exits=4)


def test_the_same_id_twice_and_bad_flags_are_refused(shell: Shell) -> None:
    shell("create", "nightly", *NIGHTLY)
    shell("create", "nightly", *NIGHTLY, exits=1)
    assert "there is a schedule 'nightly' already" in shell.stderr
    shell("create", "n", "--interval", "1h", exits=2)
    shell("create", "n", *NIGHTLY, "--calendar", "{", exits=2)
    shell("create", "n", *NIGHTLY, "--attribute", "tenant", exits=2)
    shell("create", "n", *NIGHTLY, "--limit", "many", exits=2)
    shell("create", "n", *NIGHTLY, "--backfill", "yesterday", exits=2)
    assert shell("list", "-o", "ids") == "nightly\n"


async def test_a_name_that_no_worker_knows_is_remarked_on(shell: Shell, client: App) -> None:
    async with client:
        shell("create", "a", "--workflow", shop.ship.name, "--arg", "1", "--interval", "1h")
        assert shell.stderr == ""
        shell("create", "b", "--workflow", "shipp", "--interval", "1h")
        assert "no live worker knows 'shipp'" in shell.stderr
