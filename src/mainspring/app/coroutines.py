"""Coroutines that are passed through a function, awaited for a thread that blocks, or awaited several at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

from mainspring.engine.replay.branches import ours

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from mainspring.model.clock import Clock

T = TypeVar("T")
R = TypeVar("R")


class Mapped(Coroutine[Any, Any, R], Generic[T, R]):
    """The coroutine `work`, with `then(result)` as its result.

    An `async def` around the coroutine would leave it unawaited if the wrapper is cancelled before it began.
    """

    __slots__ = ("__weakref__", "_then", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], then: Callable[[T], R]) -> None:
        self._work = work
        self._then = then

    def __repr__(self) -> str:
        return repr(self._work)

    def __getattr__(self, name: str) -> Any:
        """Called for attributes that a coroutine does not have: the caller means those of the result."""
        raise AttributeError(
            f"this is a coroutine, which has no attribute {name!r}; write `await` before the call that made it"
        )

    @property
    def cr_await(self) -> Coroutine[Any, Any, T]:
        """The inner coroutine, for tools that show where a task waits."""
        return self._work

    def __await__(self) -> Generator[Any, Any, R]:
        return cast("Generator[Any, Any, R]", self)  # `await` only needs an iterator with send and throw

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any, /) -> Any:
        try:
            return self._work.send(value)
        except StopIteration as done:
            raise StopIteration(self._then(done.value)) from None

    def throw(self, *error: Any) -> Any:
        try:
            return self._work.throw(*error)
        except StopIteration as done:
            raise StopIteration(self._then(done.value)) from None

    def close(self) -> None:
        self._work.close()


@ours
async def bridged(work: Coroutine[Any, Any, R]) -> R:
    """Await `work` on behalf of a thread that blocks on it."""
    return await work


class Portal:
    """A loop that runs on a thread of its own until it is closed."""

    def __init__(self) -> None:
        ready = threading.Event()
        self.loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event

        async def serve() -> None:
            self.loop = asyncio.get_running_loop()
            self._stop = asyncio.Event()
            ready.set()
            await self._stop.wait()

        self._thread = threading.Thread(target=asyncio.run, args=(serve(),), name="mainspring-loop", daemon=True)
        self._thread.start()
        ready.wait()

    def call(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine on the loop and block until it is done."""
        return asyncio.run_coroutine_threadsafe(bridged(work), self.loop).result()

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


@ours
async def gathered(works: Sequence[Coroutine[Any, Any, Any]], clock: Clock | None) -> list[Any]:
    """Return the results of all works, in order. Raise the first exception and cancel the other works."""
    with _Together(works, clock) as tasks:
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            await _give_up(tasks)


@ours
async def fastest(works: Sequence[Coroutine[Any, Any, Any]], clock: Clock | None) -> int:
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

    def __init__(self, works: Sequence[Coroutine[Any, Any, Any]], clock: Clock | None) -> None:
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
