"""`mainspring runs` shows what happened and stops what is going on."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from mainspring import App, run, testing
from tests.cli import shop
from tests.cli.conftest import marks
from tests.support.processes import eventually

if TYPE_CHECKING:
    from tests.cli.conftest import Mainspring


def test_runs_are_listed_newest_first_with_state_and_error(mainspring: Mainspring, history: str) -> None:
    result = mainspring("runs", "list", "--url", history)
    assert result.exit_code == 0
    assert [line.split()[:3] for line in result.stdout.splitlines()] == [
        ["ID", "WORKFLOW", "STATE"],
        ["order-3", "checkout", "queued"],
        ["order-2", "checkout", "scheduled"],
        ["bad-1", "doomed", "failed"],
        ["order-1/2", "ship", "succeeded"],
        ["order-1", "checkout", "succeeded"],
    ]
    assert "ValueError: no such article: unicorn" in result.stdout
    assert "starts in 23 h 59 min" in result.stdout


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (["--state", "failed"], ["bad-1"]),
        (["--state", "queued", "--state", "scheduled"], ["order-3", "order-2"]),
        (["--workflow", "ship"], ["order-1/2"]),
        (["--id-prefix", "order-1"], ["order-1/2", "order-1"]),
        (["--stranded"], []),
        (["--created-after", "2020-01-31", "--due-before", "2020-01-31T12:00"], []),
        (["--created-after", "2020-01-31", "--created-before", "2099-01-31", "--state", "failed"], ["bad-1"]),
    ],
)
def test_runs_are_found_by_filters(mainspring: Mainspring, history: str, filters: list[str], found: list[str]) -> None:
    assert mainspring("runs", "list", "--url", history, "-o", "ids", *filters).stdout.split() == found


def test_a_long_list_comes_in_pages(mainspring: Mainspring, history: str) -> None:
    seen: list[str] = []
    cursor: list[str] = []
    for _ in range(3):
        page = json.loads(mainspring("runs", "list", "--url", history, "--limit", "2", "-o", "json", *cursor).stdout)
        seen += [run["id"] for run in page["runs"]]
        cursor = ["--after", page["next"]] if page["next"] else []
    assert seen == ["order-3", "order-2", "bad-1", "order-1/2", "order-1"]
    assert not cursor
    assert "--after" in mainspring("runs", "list", "--url", history, "--limit", "2").stderr


def test_a_run_is_shown_on_a_page(mainspring: Mainspring, history: str) -> None:
    page = mainspring("runs", "show", "order-1", "--url", history).stdout
    assert page.startswith("order-1  checkout  succeeded\n")
    assert 'input       {"order": 1}' in page
    assert 'output      "receipt 1, parcel 1"' in page
    assert 'attributes  {"tenant": "acme"}' in page
    steps = [line.split() for line in page.splitlines() if line[:1].isdigit()]
    assert [(step[0], step[1], step[2]) for step in steps] == [
        ("0", "step", "charge"),
        ("1", "step", "pack"),
        ("2", "call", "ship"),
    ]
    assert "(before: ConnectionError: the bank does not answer)" in page
    assert "order-1/2  ship      succeeded" in page


def test_a_failed_run_is_shown_with_the_users_lines_of_its_traceback(mainspring: Mainspring, history: str) -> None:
    page = mainspring("runs", "show", "bad-1", "--url", history).stdout
    assert "ValueError: no such article: unicorn" in page
    assert 'raise ValueError(f"no such article: {article}")' in page
    assert "engine/runner.py" not in page


def test_a_run_is_shown_as_json(mainspring: Mainspring, history: str) -> None:
    shown = json.loads(mainspring("runs", "show", "order-1", "--url", history, "-o", "json").stdout)
    assert shown["run"]["output"] == "receipt 1, parcel 1"
    assert [(step["name"], step["attempts"]) for step in shown["steps"]] == [("charge", 2), ("pack", 1), ("ship", 0)]
    assert shown["children"] == ["order-1/2"]


def test_an_unknown_run_is_exit_code_4(mainspring: Mainspring, history: str) -> None:
    result = mainspring("runs", "show", "order-99", "--url", history)
    assert (result.exit_code, result.stdout) == (4, "")
    assert "run 'order-99' not found" in result.stderr


def test_runs_are_cancelled_with_a_reason(mainspring: Mainspring, history: str) -> None:
    result = mainspring("runs", "cancel", "order-2", "order-3", "--url", history, "--reason", "sold out")
    assert (result.exit_code, result.stdout) == (0, "order-2\tcancelled\norder-3\tcancelled\n")
    assert "cancelled: sold out" in mainspring("runs", "show", "order-3", "--url", history).stdout


async def test_what_a_cancelled_run_left_unfinished_does_not_wake(mainspring: Mainspring, store_url: str) -> None:
    local = App(store_url)

    @local.workflow
    async def nap() -> None:
        await run.sleep("1d")

    async with testing.world(local, url=store_url) as w:
        handle = await nap.options(id="cut").start()
        await w.advance("1m")
        assert "wakes" in mainspring("runs", "show", "cut", "--url", store_url).stdout
        assert await handle.cancel()
        await w.drain()
    shown = mainspring("runs", "show", "cut", "--url", store_url).stdout
    assert "wakes" not in shown
    assert "the run ended before it" in shown


def test_ids_to_cancel_are_read_from_stdin(mainspring: Mainspring, history: str) -> None:
    ids = mainspring("runs", "list", "--url", history, "--state", "queued", "--state", "scheduled", "-o", "ids").stdout
    assert mainspring("runs", "cancel", "-", "--url", history, stdin=ids).exit_code == 0
    assert not mainspring("runs", "list", "--url", history, "--state", "queued", "-o", "ids").stdout


def test_cancelling_what_has_ended_says_so_and_changes_nothing(mainspring: Mainspring, history: str) -> None:
    result = mainspring("runs", "cancel", "order-1", "--url", history)
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "order-1 had ended before\n")


def test_cancelling_an_unknown_run_is_exit_code_4_after_the_others(mainspring: Mainspring, history: str) -> None:
    result = mainspring("runs", "cancel", "nobody", "order-3", "--url", history)
    assert (result.exit_code, result.stdout) == (4, "order-3\tcancelled\n")
    assert "nobody" in result.stderr


async def test_terminating_ends_a_run_that_a_worker_has_in_hand(
    mainspring: Mainspring, client: App, store_url: str
) -> None:
    async with client:
        handle = await shop.checkout.options(id="order-1").start(1)
        await asyncio.to_thread(eventually, lambda: "pack" in marks("order-1"), "order-1 is being packed")
        result = await asyncio.to_thread(mainspring, "runs", "cancel", "order-1", "--terminate", "--url", store_url)
        assert result.stdout == "order-1\tcancelled\n"
        assert (await handle.describe()).state == "cancelled"


async def test_a_queued_run_shows_its_priority_and_partition(
    mainspring: Mainspring, client: App, store_url: str
) -> None:
    del client
    await shop.checkout.options(id="a", queue="mails", priority=5, partition="acme").start(1)
    assert (
        "queue       mails, priority 5, partition acme\n" in mainspring("runs", "show", "a", "--url", store_url).stdout
    )
