"""`async with run.timeout(…)`: a durable time limit for a part of a workflow.

The limit is a sleep in a branch of its own. Whether and when it ended is recorded, so a replay ends in the same way at any later time.
`asyncio.timeout` would start over in every process.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from mainspring.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType


class DurableTimeout:
    """The context manager of `run.timeout`. `expired` is True afterwards if the limit ended the block."""

    def __init__(self, sleep: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._sleep = sleep
        self._task: asyncio.Task[Any] | None = None
        self._alarm: asyncio.Task[None] | None = None
        self._cancelling = 0
        self._over = False
        self.expired = False

    async def __aenter__(self) -> Self:
        if self._task is not None:
            raise InvalidInput("a run.timeout can be entered once; make another one")
        self._task = asyncio.current_task()
        assert self._task is not None  # noqa: S101  (a coroutine is being awaited)
        self._cancelling = self._task.cancelling()
        self._alarm = asyncio.get_running_loop().create_task(self._ring())
        return self

    async def _ring(self) -> None:
        await self._sleep()
        if self._task is not None and not self._over:
            self.expired = True
            self._task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        assert self._task is not None and self._alarm is not None  # noqa: S101, PT018  (it was entered)
        if not self.expired:
            self._alarm.cancel()
        await asyncio.wait({self._alarm})
        if not self.expired:
            return
        if self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError("the time that run.timeout allowed is over") from error
