"""The agent on the night shift: in virtual time, and in a process that is killed again and again."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from examples import agent as example
from mainspring import Client
from mainspring.testing import world
from tests.engine.lives import another_process
from tests.support.processes import PROJECT, eventually

if TYPE_CHECKING:
    from pathlib import Path

ANSWER = "Dear customer, 20 euros are on their way."
ONCE = [*(f"model request {number}" for number in range(1, 5)), "find order-7", "refund order-7 20"]


async def test_it_sleeps_for_eight_hours_and_is_approved_in_the_morning(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with world(example.app, at="2026-01-01T22:00Z", url=store_url) as w:
        handle = await example.handle_case.options(id=example.CASE).start("?", "8h")
        await w.advance("7h")
        await another_process(w)
        assert "model request 3" not in (tmp_path / "agent-ledger.txt").read_text()
        await w.advance("3h")
        await example.approve()
        assert await handle.result() == ANSWER
    assert Counter((tmp_path / "agent-ledger.txt").read_text().splitlines()) == dict.fromkeys(ONCE, 1)


@pytest.mark.processes
def test_it_survives_kill_9_and_sends_each_request_once(tmp_path: Path) -> None:
    said, ledger = tmp_path / "said", tmp_path / "agent-ledger.txt"

    def start() -> subprocess.Popen[bytes]:
        command = [sys.executable, str(PROJECT / "examples" / "agent.py"), "--night", "1s"]
        with said.open("ab") as out:
            return subprocess.Popen(command, cwd=tmp_path, stdout=out, stderr=out)

    process = start()
    try:
        eventually(lambda: said.exists() and "sleeping" in said.read_text(), "it sleeps")
        process.kill()  # in the night
        process.wait(30)
        process = start()
        with Client(f"sqlite:///{tmp_path / 'agent.db'}") as client:
            eventually(lambda: bool(client.get_events.sync(example.CASE).get("support.pending")), "it asks", within=90)
        process.kill()  # while it waits for a person
        process.wait(30)
        subprocess.run(
            [sys.executable, str(PROJECT / "examples" / "agent.py"), "approve"], cwd=tmp_path, check=True, timeout=60
        )
        process = start()
        assert process.wait(90) == 0
    finally:
        process.kill()
        process.wait(30)
    assert said.read_text().splitlines()[-1] == ANSWER
    assert Counter(ledger.read_text().splitlines()) == dict.fromkeys(ONCE, 1)
