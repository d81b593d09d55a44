"""`mainspring runs` lets runs go on, forks, deletes, exports, loads and counts them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click
import pytest

from mainspring import Settings
from mainspring.cli.main import main as cli
from mainspring.operations.connect import connect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.conftest import Mainspring


def test_failed_runs_are_retried_from_a_list(mainspring: Mainspring, history: str) -> None:
    ids = mainspring("runs", "list", "--state", "failed", "-o", "ids", "--url", history).stdout
    assert mainspring("runs", "retry", "-", "--url", history, stdin=ids).stdout.split() == ["bad-1"]
    again = mainspring("runs", "retry", "bad-1", "--url", history)
    assert (again.exit_code, again.stdout, again.stderr) == (1, "", "bad-1 has not failed\n")
    assert mainspring("runs", "retry", "nobody", "--url", history).exit_code == 4


def test_cancelled_runs_are_resumed(mainspring: Mainspring, history: str) -> None:
    mainspring("runs", "cancel", "order-3", "--url", history)
    assert mainspring("runs", "resume", "order-3", "--url", history).stdout == "order-3\n"
    assert "nothing to resume" in mainspring("runs", "resume", "order-3", "--url", history).stderr


def test_a_run_is_forked(mainspring: Mainspring, history: str) -> None:
    made = mainspring("runs", "fork", "order-1", "--step", "pack", "--id", "again", "--timeout", "1h", "--url", history)
    assert made.stdout == "again\n"
    page = json.loads(mainspring("runs", "show", "again", "-o", "json", "--url", history).stdout)
    assert [step["name"] for step in page["steps"]] == ["charge"]
    assert (page["run"]["forked_from"], page["run"]["timeout"]) == ("order-1", 3600)
    assert mainspring("runs", "fork", "bad-1", "--failed", "--url", history).exit_code == 0
    assert mainspring("runs", "fork", "order-1", "--failed", "--step", "pack", "--url", history).exit_code == 2
    assert mainspring("runs", "list", "--forked-from", "order-1", "-o", "ids", "--url", history).stdout == "again\n"


def test_forks_of_several_runs_are_made_together_or_not_at_all(mainspring: Mainspring, history: str) -> None:
    lost = mainspring("runs", "fork", "order-1", "unknown", "--url", history)
    assert (lost.exit_code, lost.stderr) == (4, "error: run 'unknown' not found; nothing was done\n")
    assert mainspring("runs", "list", "--forked-from", "order-1", "-o", "ids", "--url", history).stdout == ""
    assert len(mainspring("runs", "fork", "order-1", "bad-1", "--url", history).stdout.split()) == 2


def test_runs_are_exported_deleted_and_loaded(mainspring: Mainspring, history: str, tmp_path: Path) -> None:
    lines = mainspring("runs", "export", "order-1", "--url", history).stdout
    file = tmp_path / "export.jsonl"
    file.write_text(lines)
    assert mainspring("runs", "delete", "order-1", "--url", history, stdin="n\n").exit_code == 1
    assert mainspring("runs", "delete", "-", "--url", history, stdin="order-1\n").exit_code == 2
    assert mainspring("runs", "delete", "order-1", "--yes", "--url", history).stdout == "order-1\n"
    assert mainspring("runs", "show", "order-1", "--url", history).exit_code == 4
    gone = mainspring("runs", "delete", "order-1", "--yes", "--url", history)
    assert (gone.exit_code, gone.stderr) == (4, "error: run 'order-1' not found\n")
    assert mainspring("runs", "load", str(file), "--url", history).stderr == "2 runs loaded\n"
    assert mainspring("runs", "export", "order-1", "--url", history).stdout == lines
    live = mainspring("runs", "delete", "order-3", "--yes", "--url", history)
    assert (live.exit_code, "order-3 (queued)" in live.stderr) == (1, True)


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (["--attribute", "tenant=acme"], ["order-1"]),
        (["--attribute", "tenant=other"], []),
        (["--parent", "order-1"], ["order-1/2"]),
        (["--queue", "slow"], []),
        (["--created-before", "2020-01-01"], []),
        (["--created-after", "2020-01-01", "--state", "failed"], ["bad-1"]),
    ],
)
def test_runs_are_found(mainspring: Mainspring, history: str, filters: list[str], found: list[str]) -> None:
    assert mainspring("runs", "list", "--url", history, "-o", "ids", *filters).stdout.split() == found


def test_wrong_filters_say_what_would_be_right(mainspring: Mainspring, history: str) -> None:
    assert "2027-01-31" in mainspring("runs", "list", "--url", history, "--created-after", "noon").stderr
    assert "NAME=VALUE" in mainspring("runs", "list", "--url", history, "--attribute", "tenant").stderr


def test_runs_are_counted(mainspring: Mainspring, history: str) -> None:
    table = mainspring("runs", "count", "--by", "workflow", "--by", "state", "--url", history).stdout
    assert [line.split()[:3] for line in table.splitlines()] == [
        ["WORKFLOW", "STATE", "RUNS"],
        ["checkout", "queued", "1"],
        ["checkout", "scheduled", "1"],
        ["checkout", "succeeded", "1"],
        ["doomed", "failed", "1"],
        ["ship", "succeeded", "1"],
    ]
    spans = json.loads(mainspring("runs", "count", "--bucket", "1d", "-o", "json", "--url", history).stdout)
    assert sum(each["count"] for each in spans) == 5


def test_runs_are_acted_on_by_what_they_are_with_a_reason(mainspring: Mainspring, history: str) -> None:
    assert mainspring("runs", "fail", "--workflow", "checkout", "--url", history, stdin="n\n").exit_code == 1
    refused = mainspring("runs", "fail", "order-2", "--workflow", "checkout", "--url", history)
    assert (refused.exit_code, "not both" in refused.stderr) == (2, True)
    assert mainspring("runs", "fail", "--url", history).exit_code == 2
    ended = mainspring("runs", "fail", "--workflow", "checkout", "--reason", "sold out", "--yes", "--url", history)
    assert set(ended.stdout.split()) == {"order-2", "order-3"}
    page = json.loads(mainspring("runs", "show", "order-2", "-o", "json", "--url", history).stdout)
    assert (page["run"]["state"], page["run"]["reason"]) == ("failed", "sold out")
    again = mainspring("runs", "retry", "--state", "failed", "--reason", "more came", "--yes", "--url", history)
    assert set(again.stdout.split()) == {"order-2", "order-3", "bad-1"}
    assert mainspring("runs", "retry", "--state", "failed", "--yes", "--url", history).stderr == "no runs\n"
    with connect(history, Settings()) as operations:
        entries = operations.audit.list().entries
    assert [(entry.action, entry.reason, entry.outcome) for entry in entries[1:]] == [
        ("runs.retry", "more came", {"changed": 3}),
        ("runs.fail", "sold out", {"changed": 2}),
    ]


def test_a_run_is_completed_with_a_result_and_moved(mainspring: Mainspring, history: str) -> None:
    assert mainspring("runs", "reschedule", "order-2", "--url", history).exit_code == 2
    assert mainspring("runs", "reschedule", "order-2", "--after", "1h", "--url", history).stdout == "order-2\n"
    assert mainspring("runs", "complete", "order-2", "--result", "{no", "--url", history).exit_code == 2
    done = mainspring(
        "runs", "complete", "order-2", "order-1", "--result", '"parcel 2"', "--reason", "ü", "--url", history
    )
    assert (done.stdout, "order-1 has ended" in done.stderr) == ("order-2\n", True)
    page = json.loads(mainspring("runs", "show", "order-2", "-o", "json", "--url", history).stdout)
    assert (page["run"]["output"], page["run"]["reason"]) == ("parcel 2", "ü")


def test_failed_runs_are_marked_retried_later_and_completed(mainspring: Mainspring, history: str) -> None:
    def shown() -> tuple[str, str | None, object]:
        run = json.loads(mainspring("runs", "show", "bad-1", "-o", "json", "--url", history).stdout)["run"]
        return run["state"], run["reason"], run["output"]

    assert mainspring("runs", "fail", "bad-1", "--reason", "refunded", "--url", history).stdout == "bad-1\n"
    assert shown() == ("failed", "refunded", None)
    none = mainspring("runs", "reschedule", "--workflow", "doomed", "--after", "1h", "--yes", "--url", history)
    assert (none.stdout, none.stderr) == ("", "no runs\n")
    assert mainspring(
        "runs", "reschedule", "--workflow", "doomed", "--state", "failed", "--after", "1h", "--yes", "--url", history
    ).stdout == "bad-1\n"  # fmt: skip
    assert shown() == ("scheduled", None, None)
    assert mainspring("runs", "complete", "bad-1", "--result", "[1]", "--url", history).stdout == "bad-1\n"
    assert shown() == ("succeeded", "completed on request", [1])


def test_every_command_that_changes_something_takes_a_reason_and_yes() -> None:
    def changing(group: click.Group, path: str) -> Iterator[tuple[str, set[str]]]:
        for name, command in group.commands.items():
            if isinstance(command, click.Group):
                yield from changing(command, f"{path} {name}")
            elif "reason" in (names := {str(param.name) for param in command.params}):
                yield f"{path} {name}", names

    found = dict(changing(cli, "mainspring"))
    assert {"mainspring runs cancel", "mainspring schedules pause", "mainspring queues set"} <= found.keys()
    assert [path for path, names in found.items() if "yes" not in names] == []


def test_a_script_may_say_yes_to_a_command_that_does_not_ask(mainspring: Mainspring, history: str) -> None:
    assert mainspring("runs", "cancel", "order-3", "--yes", "--reason", "no", "--url", history).exit_code == 0
