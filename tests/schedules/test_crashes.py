"""A worker dies at any word to the database: what becomes of each tick is what would have become of it anyway."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

import pytest

from mainspring import App, Overlap, Policy, Settings, Spec, run
from mainspring.testing import VirtualClock, crash
from tests.support.samples import of

STRIDE = of(1, 17)
"""1 tries every call."""


def _app() -> App:
    app = App("sqlite://", settings=Settings(poll=0.05))

    @app.workflow
    async def act(length: str) -> str:
        await run.sleep(length)
        return run.id

    for name, overlap, length in (
        ("skip", Overlap.SKIP, "7m"),
        ("one", Overlap.BUFFER_ONE, "7m"),
        ("all", Overlap.BUFFER_ALL, "7m"),
        ("cancel", Overlap.CANCEL_OTHER, "12m"),
        ("terminate", Overlap.TERMINATE_OTHER, "12m"),
        ("allow", Overlap.ALLOW_ALL, "12m"),
    ):
        app.schedule(name, act.bind(length), Spec(intervals=["5m"]), Policy(overlap, catchup=None))
    return app


async def _outcomes(app: App) -> dict[str, list[tuple[str, str, int]]]:
    found: dict[str, list[tuple[str, str, int]]] = {}
    for name in ("skip", "one", "all", "cancel", "terminate", "allow"):
        ticks = (await app.schedules.ticks(name, limit=1000)).ticks[::-1]
        found[name] = [(f"{tick.nominal:%H:%M}", tick.outcome, tick.count) for tick in ticks]
    return found


@pytest.mark.sampled
@pytest.mark.parametrize("when", ["before", "after"])
async def test_no_crash_changes_what_becomes_of_ticks(when: Literal["before", "after"]) -> None:
    expected: Any = None
    crashes = 0
    while True:
        app = _app()

        async def work(app: App = app) -> Any:
            clock = app._runtime.clock
            assert isinstance(clock, VirtualClock)
            await clock.advance_to(datetime(2026, 1, 1, 0, 31, tzinfo=UTC))
            return await _outcomes(app)

        at = None if expected is None else 1 + crashes * STRIDE
        outcome = await crash(app, work, at=at, when=when)
        if expected is None:
            expected = outcome.result
            assert {fate for ticks in expected.values() for _, fate, _ in ticks} >= {
                "fired",
                "late",
                "buffered",
                "skipped_overlap",
            }
            continue
        assert outcome.result == expected, f"after a crash at call {at}"
        if not outcome.crashed:
            break
        crashes += 1
    assert crashes > 3
