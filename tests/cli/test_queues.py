"""`mainspring queues` shows and steers queues."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.cli import shop

if TYPE_CHECKING:
    from mainspring import App
    from tests.cli.conftest import Mainspring


async def test_queues_are_made_shown_changed_paused_and_deleted(
    mainspring: Mainspring, client: App, store_url: str
) -> None:
    url = ("--url", store_url)
    await shop.checkout.options(queue="waiting").start(1)
    made = mainspring("queues", "set", "emails", "--concurrency", "5", "--rate", "100/1m", *url)
    assert (made.exit_code, "concurrency 5, rate 100/60s" in made.stdout) == (0, True)
    assert mainspring("queues", "list", "-o", "ids", *url).stdout.split() == ["emails", "waiting"]
    assert "does not exist" in mainspring("queues", "list", *url).stdout
    mainspring("queues", "set", "emails", "--concurrency", "none", *url)
    mainspring("queues", "set", "emails", "--partition", "acme", "--partition-concurrency", "2", *url)
    mainspring("queues", "pause", "emails", *url)
    shown = json.loads(mainspring("queues", "show", "emails", "-o", "json", *url).stdout)
    assert (shown["paused"], shown["limits"]["concurrency"], shown["limits"]["rate"]["limit"]) == (True, None, 100)
    assert shown["partitions"]["acme"]["limits"]["partition_concurrency"] == 2
    assert "paused" in mainspring("queues", "show", "emails", *url).stdout
    mainspring("queues", "resume", "emails", *url)
    assert mainspring("queues", "delete", "emails", *url).exit_code == 0
    assert mainspring("queues", "show", "emails", *url).exit_code == 4
    assert mainspring("queues", "pause", "emails", *url).exit_code == 4
    await client.runs.cancel()


def test_a_wrong_limit_is_wrong_usage(mainspring: Mainspring, history: str) -> None:
    for limit in (("--concurrency", "0"), ("--rate", "many"), ("--rate", "5/never")):
        assert mainspring("queues", "set", "q", *limit, "--url", history).exit_code == 2
