"""Exceptions with messages that not every database can store as they are."""

from __future__ import annotations

import pytest

from mainspring import App, Retry, Settings


class Mute(Exception):
    """Cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


ODD = {
    "zero": ValueError("before\0after"),
    "half a pair": ValueError("\ud800 alone"),
    "mute": Mute(),
    "long": ValueError("x" * 9_000),
}


async def test_a_run_that_fails_with_an_odd_message_ends_and_holds_nobody_up(store_url: str) -> None:
    app = App(store_url, settings=Settings(poll=0.05))

    @app.step(retry=Retry(2, first=0.01))
    async def tries(what: str) -> None:
        raise ODD[what]

    @app.workflow
    async def fails(what: str) -> None:
        raise ODD[what]

    @app.workflow
    async def fails_inside(what: str) -> None:
        await tries(what)

    @app.workflow
    async def fine() -> str:
        return "fine"

    async with app:
        for what, error in ODD.items():
            for number, workflow in enumerate((fails, fails_inside)):
                with pytest.raises(type(error)):
                    await workflow.options(id=f"{what} {number}")(what)
                found = await app.runs.get(f"{what} {number}")
                assert (found.state, (found.reason or "").split(":")[0]) == ("failed", type(error).__name__)
            assert await fine() == "fine"
