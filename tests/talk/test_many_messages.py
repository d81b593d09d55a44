"""Many messages among many runs while processes die: each is received once, in order. `TALK_RUNS=1000` is the long form."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

from mainspring import App, Message, run
from mainspring.engine.engine import Engine
from mainspring.testing import world
from tests.engine.lives import another_process

if TYPE_CHECKING:
    import pytest

app = App("sqlite://")
RUNS = int(os.environ.get("TALK_RUNS", "40"))
EACH = int(os.environ.get("TALK_MESSAGES", "20"))
DEATHS = 4


@app.workflow
async def collect(count: int) -> list[int]:
    return [await run.receive("number") for _ in range(count)]


async def test_each_message_is_received_once_and_in_order_whoever_dies(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "patience", 0.02)
    chance = random.Random(7)
    async with world(app, url=store_url) as w:
        await app.start_many([collect.options(id=f"r{number}").bind(EACH) for number in range(RUNS)])
        left = {f"r{number}": 0 for number in range(RUNS)}
        rounds = 0
        while left:
            some = chance.sample(sorted(left), k=max(1, len(left) // 2))
            await app.send_many([Message(run_id, "number", left[run_id]) for run_id in some])
            for run_id in some:
                left[run_id] += 1
                if left[run_id] == EACH:
                    del left[run_id]
            rounds += 1
            if rounds % (2 * EACH // DEATHS) == 0:
                await another_process(w)
        for number in range(RUNS):
            assert await app.handle(f"r{number}").result() == list(range(EACH)), number
