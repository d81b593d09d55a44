"""The app that the commands are tried on. Its steps leave marks in a folder, and some wait there for a file to appear."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from mainspring import App, Retry, run

app = App()
folder = Path(os.environ.get("SHOP_FOLDER", "."))


def mark(step: str) -> None:
    with (folder / "marks").open("a") as marks:
        marks.write(f"{run.id} {step}\n")


@app.step(retry=Retry(3, first=0.01))
async def charge(order: int) -> str:
    if run.attempt == 1:
        raise ConnectionError("the bank does not answer")
    mark("charge")
    return f"receipt {order}"


@app.step
async def pack(order: int) -> None:
    """Waits for the file `packed`."""
    mark("pack")
    while not (folder / "packed").exists():  # noqa: ASYNC110  (another process makes it)
        await asyncio.sleep(0.01)


@app.step
def hang() -> None:
    """Waits for the file `packed`, on a thread."""
    mark("hang")
    while not (folder / "packed").exists():
        time.sleep(0.01)


@app.workflow
async def ship(order: int) -> str:
    return f"parcel {order}"


@app.workflow
async def checkout(order: int) -> str:
    """Charges, waits for the packing, ships."""
    receipt = await charge(order)
    await pack(order)
    return f"{receipt}, {await ship(order)}"


@app.workflow
async def slow(order: int) -> str:
    """Charges, then sleeps for a second."""
    receipt = await charge(order)
    await run.sleep(1)
    return receipt


@app.workflow
async def stuck() -> None:
    await hang.aio()


@app.workflow
async def doomed(article: str) -> None:
    raise ValueError(f"no such article: {article}")
