"""Detect a test that waits for an event that can never come: nothing is due, in progress or committed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mainspring.errors import Endless
from mainspring.operations.runs.info import Runs

if TYPE_CHECKING:
    from mainspring.app.connection import Connection
    from mainspring.store.changes import Signal
    from mainspring.testing.clock import VirtualClock


class Standstill:
    """Raises `Endless` in the calls of a test that wait for a run, once nothing can end the run any more."""

    def __init__(self, connection: Connection, clock: VirtualClock) -> None:
        self._connection = connection
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        connection.on_signal(self._committed)
        clock.on_standstill = self._begin

    def _committed(self, _: Signal) -> None:
        self._clock.progress()

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._end_waits())

    async def _end_waits(self) -> None:
        watched = self._connection.endings.watched
        if watched:
            words = await asyncio.to_thread(self._describe, watched[0])
            self._connection.endings.fail(
                Endless(
                    f"{words}; nothing is due and nothing is in progress, so the wait has no end. Send or answer it in another task of "
                    "the test, or give the wait a timeout"
                )
            )

    def _describe(self, run_id: str) -> str:
        runs = Runs(self._connection.store, self._clock)
        waits = [f"{step.kind} {step.name!r}" for step in runs.steps(run_id) if step.completed is None]
        state = runs.get(run_id)
        what = f" for {', '.join(waits)}" if waits else f" ({state.state})"
        return f"this test waits for run {run_id!r} of {state.workflow!r}, which waits{what}"

    async def aclose(self) -> None:
        self._clock.on_standstill = None
        self._connection.off_signal(self._committed)
        if self._task is not None:
            await asyncio.wait({self._task})
