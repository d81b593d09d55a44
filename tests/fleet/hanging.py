"""An app in which something hangs: `HANGING` says what."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING

from mainspring import App

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

app = App()
what = os.environ.get("HANGING", "")


async def hang() -> None:
    await asyncio.Event().wait()


def hang_blocking() -> None:
    threading.Event().wait()


@app.resource
async def awaited() -> AsyncGenerator[int]:
    print("opening", flush=True)  # noqa: T201
    if what == "opening, async":
        await hang()
    yield 1
    if what == "closing, async":
        await hang()


@app.resource
def blocking() -> Generator[int]:
    if what == "opening, def":
        hang_blocking()
    yield 1
    if what == "closing, def":
        hang_blocking()


@app.step
async def stubborn() -> None:
    """Does not care to be cancelled."""
    print("under way", flush=True)  # noqa: T201
    while True:
        try:
            await hang()
        except asyncio.CancelledError:
            continue


@app.workflow
async def stands() -> None:
    await stubborn()
