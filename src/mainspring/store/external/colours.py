"""Coroutines that serve blocking and async connections alike, so that transactions of users are written once.

What such a coroutine does on a blocking connection never suspends: `finished` runs it on the calling thread, without an event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine

    from mainspring.store.sql.dialect import Sql
    from mainspring.store.transaction import AsyncExecutor, Rows, Script, Values

S = TypeVar("S")
T = TypeVar("T")


def finished(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that does not suspend, and return its result."""
    try:
        work.send(None)
    except StopIteration as done:
        answer: T = done.value
        return answer
    work.close()
    raise AssertionError(f"{work!r} waited for an event loop, on a blocking connection")


def called(work: Callable[[S], T]) -> Callable[[S], Awaitable[T]]:
    """A blocking function as a coroutine function. A StopIteration of it would end the coroutine (PEP 479)."""

    async def call(given: S) -> T:
        try:
            return work(given)
        except StopIteration as error:
            raise RuntimeError("a transaction raised StopIteration") from error

    return call


async def ready(answer: Any) -> Any:
    """The answer of a driver: of a blocking one as it is, of an async one awaited."""
    return await answer if isawaitable(answer) else answer


@contextlib.asynccontextmanager
async def entered(block: Any) -> AsyncGenerator[Any]:
    """A context manager of a driver, blocking or async."""
    if hasattr(block, "__aenter__"):
        async with block as value:
            yield value
    else:
        with block as value:
            yield value


async def run_script_async(script: Script[T], executor: AsyncExecutor) -> T:
    """Run a script to its end on a user's connection."""
    try:
        statement = next(script)
        while True:
            try:
                rows = await executor.execute(*statement)
            except BaseException as error:  # noqa: BLE001  (a script may roll back to a savepoint)
                statement = script.throw(error)
            else:
                statement = script.send(rows)
    except StopIteration as done:
        answer: T = done.value
        return answer


class BlockingExecutor:
    """Executes statements on a user's connection for blocking code: on this thread, or on the loop of an async connection."""

    def __init__(self, executor: AsyncExecutor, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._executor = executor
        self._loop = loop

    def execute(self, sql: Sql, values: Values) -> Rows:
        work = self._executor.execute(sql, values)
        return finished(work) if self._loop is None else asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def whole(work: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine that must not be interrupted. A cancellation is raised afterwards."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        raise


async def on_thread(work: Callable[..., T], *args: Any) -> T:
    """Call a blocking function for an async transaction, on a new thread.

    The threads of a shared pool may all be waiting for that very transaction to end.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def answer(value: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(cast("T", value))

    def run() -> None:
        value, caught = None, None
        try:
            value = context.run(work, *args)
        except BaseException as error:  # noqa: BLE001  (it is raised where the work is awaited)
            caught = error
        with contextlib.suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(answer, value, caught)

    context = contextvars.copy_context()
    threading.Thread(target=run, name="mainspring-transaction", daemon=True).start()
    return await done
