"""Whatever a command changes is written down: who, what, why, and what came of it."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING

import click
import pytest

from mainspring import Settings
from mainspring.cli.main import main
from mainspring.operations.connect import connect

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Mainspring

CHANGES = {
    "runs": (
        *(
            "cancel",
            "terminate",
            "resume",
            "retry",
            "complete",
            "fail",
            "reschedule",
            "set-attributes",
            "fork",
            "delete",
        ),
        "load",
    ),
    "schedules": ("create", "update", "reset", "apply", "pause", "resume", "trigger", "backfill", "skip", "delete"),
    "queues": ("set", "pause", "resume", "delete"),
    "versions": ("force", "set-newest"),
    "db": ("prune", "empty"),
}


@pytest.mark.parametrize(("noun", "verb"), [(noun, verb) for noun, verbs in CHANGES.items() for verb in verbs])
def test_every_command_that_changes_something_takes_a_reason(noun: str, verb: str) -> None:
    group = main.get_command(click.Context(main), noun)
    assert isinstance(group, click.Group)
    command = group.get_command(click.Context(group), verb)
    assert command is not None
    assert "--reason" in [name for option in command.params for name in option.opts]


def test_commands_leave_who_did_what_and_why(mainspring: Mainspring, history: str, tmp_path: Path) -> None:
    def do(*words: str) -> None:
        done = mainspring(*words, "--url", history, "--reason", f"for {words[1]}")
        assert done.exit_code == 0, done.stderr

    do("runs", "cancel", "order-3")
    do("runs", "fork", "order-1", "--step", "pack", "--id", "again")
    lines = tmp_path / "export.jsonl"
    lines.write_text(mainspring("runs", "export", "order-1", "--url", history).stdout)
    do("runs", "delete", "order-1", "--yes")
    do("runs", "load", str(lines))
    do("queues", "set", "lane", "--concurrency", "2")
    do("queues", "pause", "lane")
    do("queues", "delete", "lane")
    do("schedules", "create", "nightly", "--workflow", "checkout", "--arg", "1", "--cron", "0 2 * * *")
    do("schedules", "pause", "nightly")
    do("schedules", "delete", "nightly", "--yes")
    do("db", "prune", "--older-than", "30d")
    failed = mainspring("queues", "pause", "nowhere", "--url", history)
    assert failed.exit_code == 4

    with connect(history, Settings()) as operations:
        entries = operations.audit.list().entries[::-1]
    assert {entry.who for entry in entries} == {f"{getpass.getuser()} (command)"}
    assert [(entry.action, entry.subject, entry.reason) for entry in entries] == [
        ("runs.cancel", ["order-3"], "for cancel"),
        ("runs.fork", ["order-1"], "for fork"),
        ("runs.delete", ["order-1"], "for delete"),
        ("runs.load", [], "for load"),
        ("queues.set", ["lane"], "for set"),
        ("queues.pause", ["lane"], "for pause"),
        ("queues.delete", ["lane"], "for delete"),
        ("schedules.create", ["nightly"], "for create"),
        ("schedules.pause", ["nightly"], "for pause"),
        ("schedules.delete", ["nightly"], "for delete"),
        ("db.prune", [], "for prune"),
        ("queues.pause", ["nowhere"], None),
    ]
    assert (entries[0].outcome, entries[1].outcome, entries[1].details) == (
        {"order-3": True},
        ["again"],
        {"step": "pack"},
    )
    assert "nowhere" in entries[-1].outcome["error"]
