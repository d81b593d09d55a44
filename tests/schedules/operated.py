"""The app whose schedules operators change at random: see `operators.py`. How long a run takes and how it ends is in its id."""

from __future__ import annotations

import random

from mainspring import App, run

app = App()


@app.workflow
async def job() -> str:
    chance = random.Random(run.id)
    await run.sleep(chance.choice([0, 0, 0, 0.1, 0.4, 1.5]))
    if chance.random() < 0.1:
        raise ValueError("not this time")
    return "done"
