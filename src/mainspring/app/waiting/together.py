"""Waiting for several coroutines at once, outside of runs and in them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from mainspring.engine.replay.branches import ours

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from mainspring.model.clock import Clock

    Works = Sequence[Coroutine[Any, Any, Any]]


@ours
async def gathered(works: Works, clock: Clock | None) -> list[Any]:
    """Return the results of all works, in order. Raise the first exception and cancel the other works."""
    with _Together(works, clock) as tasks:
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            await _give_up(tasks)


@ours
async def fastest(works: Works, clock: Clock | None) -> int:
    """Return the index of the work that is done first, and cancel the others."""
    with _Together(works, clock) as tasks:
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            number = next(number for number, task in enumerate(tasks) if task.done())
            tasks[number].result()
            return number
        finally:
            await _give_up(tasks)


async def _give_up(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """Cancel the remaining works. Inside a run the cancellation is recorded."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class _Together:
    """Several concurrent waits of one caller.

    A `def` run keeps wall-clock time from passing (`clock`) while it executes, and lets time pass in a wait. With several waits at
    once, each of them must let it pass.
    """

    def __init__(self, works: Works, clock: Clock | None) -> None:
        self._clock = clock
        self._works = works

    def __enter__(self) -> list[asyncio.Task[Any]]:
        """Return the works as tasks."""
        if self._clock is None:
            return [asyncio.ensure_future(work) for work in self._works]
        tasks: list[asyncio.Task[Any]] = []
        for work in self._works:
            self._clock.busy()
            tasks.append(asyncio.ensure_future(work))
            tasks[-1].add_done_callback(self._done)
        self._clock.idle()
        return tasks

    def _done(self, _: asyncio.Future[Any]) -> None:
        if self._clock is not None:
            self._clock.idle()

    def __exit__(self, *exc: object) -> None:
        if self._clock is not None:
            self._clock.busy()
