# pyright: reportPrivateUsage=false
"""Waiting for several runs: `app.gather(*handles)` for all of them, `app.first(*handles)` for whichever ends first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.app.transacting import refuse_waiting
from mainspring.app.verb import Future, Verb
from mainspring.engine import flows
from mainspring.engine.branches import ours
from mainspring.engine.context import Line, current
from mainspring.engine.drivers import drive
from mainspring.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.app.handle import Handle
    from mainspring.app.runtime import Runtime
    from mainspring.engine.execution import Execution

T = TypeVar("T")


class Gather(Verb):
    """The results of runs, in the order of the handles. The first exception is raised; the other runs go on."""

    name = "gather"

    def __call__(self, *handles: Handle[T]) -> Future[list[T]]:
        self._ready()
        return _gather(self._talk.runtime, handles)

    def sync(self, *handles: Handle[T]) -> list[T]:
        self._may_block()
        return self._wait(_gather(self._talk.runtime, handles))


class First(Verb):
    """The handle of the run that ends first, however it ends. The others go on."""

    name = "first"

    def __call__(self, *handles: Handle[T]) -> Future[Handle[T]]:
        self._ready()
        return _first(self._talk.runtime, handles)

    def sync(self, *handles: Handle[T]) -> Handle[T]:
        self._may_block()
        return self._wait(_first(self._talk.runtime, handles))


def _gather(runtime: Runtime, handles: tuple[Handle[T], ...]) -> Future[list[T]]:
    where = current.get()
    if not isinstance(where, Line):
        refuse_waiting("gather(…)")
        return _all([runtime.results.of(handle.id, handle._codec, None) for handle in handles], None)  # noqa: SLF001
    ex = where.execution
    ex.outstanding += len(handles)
    results = [
        flows.result(ex, where.next_position(), handle.id, handle._codec, None, together=True)  # noqa: SLF001
        for handle in handles
    ]
    return _all([drive(ex, flow) for flow in results], ex)


def _first(runtime: Runtime, handles: tuple[Handle[T], ...]) -> Future[Handle[T]]:
    if not handles:
        raise InvalidInput("first takes the handles of at least one run")
    where = current.get()
    if not isinstance(where, Line):
        refuse_waiting("first(…)")
        return _fastest([runtime.results.ended(handle.id) for handle in handles], handles, None)
    ex = where.execution
    ex.outstanding += len(handles)
    waits = [flows.ended(ex, where.next_position(), handle.id) for handle in handles]
    return _fastest([drive(ex, flow) for flow in waits], handles, ex)


@ours
async def _all(works: list[Future[Any]], ex: Execution | None) -> list[Any]:
    with _Together(ex, works) as tasks:
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            await _dismiss(tasks)


@ours
async def _fastest(works: list[Future[None]], handles: tuple[Handle[T], ...], ex: Execution | None) -> Handle[T]:
    with _Together(ex, works) as tasks:
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            number = next(number for number, task in enumerate(tasks) if task.done())
            tasks[number].result()
            return handles[number]
        finally:
            await _dismiss(tasks)


async def _dismiss(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """Nobody waits for the rest any more; inside a run that is recorded."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class _Together:
    """A `def` run keeps civil time from passing while it executes, and lets it pass in a wait: here it has several waits at once,
    and each of them is given that right.
    """

    def __init__(self, ex: Execution | None, works: Sequence[Future[Any]]) -> None:
        self._clock = ex.engine.clock if ex is not None and not ex.function.is_async else None
        self._works = works

    def __enter__(self) -> list[asyncio.Task[Any]]:
        """The works, each as a task."""
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
