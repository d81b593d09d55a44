"""`mainspring run`, and the commands about what it scheduled."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from tests.cli import shop

if TYPE_CHECKING:
    from pathlib import Path

    from mainspring import App
    from tests.cli.conftest import Mainspring

pytestmark = pytest.mark.usefixtures("client")
TARGET = "tests.cli.shop:app"


def test_a_function_is_scheduled_and_its_id_printed(mainspring: Mainspring, store_url: str) -> None:
    run_id = mainspring(
        "run", TARGET, "ship", "--after", "3d", "--args", '{"order": 7}', "--url", store_url
    ).stdout.strip()
    shown = json.loads(mainspring("runs", "show", run_id, "--url", store_url, "-o", "json").stdout)["run"]
    assert (shown["workflow"], shown["state"], shown["input"]) == ("ship", "scheduled", {"order": 7})
    again = mainspring(
        "run", TARGET, "ship", "--at", "2027-01-31T12:00+01:00", "--args", "[8]", "--id", "a", "--url", store_url
    )
    assert (again.exit_code, again.stdout) == (0, "a\n")
    shown = json.loads(mainspring("runs", "show", "a", "--url", store_url, "-o", "json").stdout)["run"]
    assert (shown["due"], shown["input"]) == ("2027-01-31T11:00:00Z", {"order": 8})


LABELS = """
from mainspring import App

app = App()

@app.workflow
async def label(order: int, **others: str) -> str:
    return f"{order} {others}"
"""


def test_arguments_by_name_reach_a_function_that_takes_any_name(
    mainspring: Mainspring, store_url: str, tmp_path: Path
) -> None:
    target = tmp_path / f"{tmp_path.name}.py"  # a name of its own: the tests of one process share the imported modules
    target.write_text(LABELS)
    given = '{"order": 7, "colour": "red"}'
    run_id = mainspring("run", str(target), "label", "--args", given, "--url", store_url).stdout.strip()
    shown = json.loads(mainspring("runs", "show", run_id, "--url", store_url, "-o", "json").stdout)["run"]
    assert shown["input"] == {"order": 7, "**others": {"colour": "red"}}


@pytest.mark.parametrize(("after", "state"), [("0", "queued"), ("0s", "queued"), ("3600", "scheduled")])
def test_a_delay_without_a_unit_is_seconds(mainspring: Mainspring, store_url: str, after: str, state: str) -> None:
    words = ("ship", "--after", after, "--args", "[8]", "--id", "a", "--url", store_url)
    assert mainspring("run", TARGET, *words).exit_code == 0
    shown = json.loads(mainspring("runs", "show", "a", "--url", store_url, "-o", "json").stdout)["run"]
    assert shown["state"] == state


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nothing",), "no function is registered as 'nothing'"),
        (("ship",), "order"),
        (("ship", "--args", "{"), "not JSON"),
        (("ship", "--args", "7"), "object"),
        (("ship", "--args", '{"order": "x"}'), "order"),
        (("ship", "--args", '{"colour": 1}'), "colour"),
        (("ship", "--args", "[1]", "--after", "six"), "six"),
        (("ship", "--args", "[1]", "--after", "-1"), "negative"),
        (("ship", "--args", "[1]", "--after", "1d", "--at", "2027-01-01"), "not both"),
        (("ship", "--args", "[1]", "--at", "tomorrow"), "tomorrow"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_stored(
    mainspring: Mainspring, store_url: str, words: tuple[str, ...], said: str
) -> None:
    result = mainspring("run", TARGET, *words, "--url", store_url)
    assert result.exit_code == 2
    assert said in result.stderr
    assert not mainspring("db", "migrate", "--url", store_url).exit_code
    assert mainspring("runs", "list", "--url", store_url, "-o", "ids").stdout == ""


async def test_the_result_can_be_waited_for(mainspring: Mainspring, client: App, store_url: str) -> None:
    async with client:  # this is the worker; the command is a client of its own
        other = shop.app._runtime.url
        assert other == store_url
        handle = await shop.ship.options(id="seen").start(1)
        await handle.result()

    def wait() -> tuple[int, list[str]]:
        found = mainspring("run", TARGET, "ship", "--args", "[7]", "--id", "seen", "--wait", "--url", store_url)
        assert found.stderr == "seen\n"
        return found.exit_code, found.stdout.splitlines()

    assert await asyncio.to_thread(wait) == (0, ['"parcel 1"'])  # what a program reads is JSON and nothing else


def test_pending_functions_are_listed_and_cancelled_by_name_and_due_time(
    mainspring: Mainspring, store_url: str
) -> None:
    for number, after in enumerate(("1h", "2h", "3h")):
        mainspring(
            "run", TARGET, "ship", "--after", after, "--args", f"[{number}]", "--id", f"r{number}", "--url", store_url
        )
    mainspring("run", TARGET, "slow", "--after", "1h", "--args", "[9]", "--id", "other", "--url", store_url)
    soon = (datetime.now(UTC) + timedelta(minutes=90)).isoformat()

    def listed(*words: str) -> list[str]:
        return sorted(mainspring("runs", "list", "--url", store_url, "-o", "ids", *words).stdout.split())

    assert listed("--due-before", soon) == ["other", "r0"]
    assert listed("--due-before", soon, "--name", "ship") == ["r0"]
    assert listed("--due-after", soon) == ["r1", "r2"]
    assert listed("--due-before", soon, "--state", "succeeded") == []
    words = ("--functions", "--name", "ship", "--due-after", soon, "--reason", "no", "--url", store_url)
    assert mainspring("runs", "cancel", *words).stdout == "2\n"
    assert listed("--state", "cancelled") == ["r1", "r2"]
    assert mainspring("runs", "cancel", "--functions", "--url", store_url).stdout == "2\n"
    for wrong in (("r1", "--functions"), ("--functions", "--queue", "q"), ("r1", "--name", "ship"), ()):
        assert mainspring("runs", "cancel", *wrong, "--url", store_url).exit_code == 2


@pytest.mark.parametrize(
    "words", [("list",), ("list", "--state", "failed"), ("show", "order-7"), ("cancel", "order-7", "--reason", "late")]
)
def test_a_verb_of_runs_is_suggested_to_who_left_out_a_letter(mainspring: Mainspring, words: tuple[str, ...]) -> None:
    found = mainspring("run", *words)
    assert found.exit_code == 2
    assert f"Did you mean `mainspring runs {words[0]}`?" in found.stderr


def test_a_module_may_have_the_name_of_a_verb_of_runs(
    mainspring: Mainspring, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "watch.py").write_text(LABELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "watch", raising=False)
    found = mainspring("run", "watch:app", "label", "--args", "[7]", "--id", "a", "--url", store_url)
    assert (found.exit_code, found.stdout) == (0, "a\n"), found.stderr
    assert "Did you mean" not in mainspring("run", "watch", "nothing").stderr
    monkeypatch.delitem(sys.modules, "watch")
