"""Whether runs have ended already: one question to the database for all who ask it at the same time."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING

from mainspring.errors import MainspringError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mainspring.model.clock import Clock
    from mainspring.model.records import Ending

    Found = dict[str, Ending | None]
    Asker = tuple[str, asyncio.Future[Found]]


class EndingLookups:
    """A thousand coroutines that wait for a thousand runs begin with one lookup, not with a thousand changes of thread."""

    def __init__(self, ask: Callable[[set[str]], Awaitable[Found]], clock: Callable[[], Clock]) -> None:
        self._ask = ask
        self._clock = clock
        self._gathering: dict[asyncio.AbstractEventLoop, list[Asker]] = {}
        self._asking: set[asyncio.Task[None]] = set()

    async def at(self, run_id: str) -> Found:
        """What is known of at least this run: its ending, None while it has not ended, nothing if there is no such run."""
        loop = asyncio.get_running_loop()
        told: asyncio.Future[Found] = loop.create_future()
        askers = self._gathering.get(loop)
        if askers is not None:
            askers.append((run_id, told))
        else:
            self._gathering[loop] = [(run_id, told)]
            clock = self._clock()
            clock.busy()
            task = loop.create_task(self._look(loop, clock), context=contextvars.Context())
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
        return await told

    async def _look(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        """One turn of the loop later: everybody who asked in this turn has done so. Civil time stands still until then."""
        askers = self._gathering.pop(loop)
        try:
            found = await self._ask({run_id for run_id, _ in askers})
        except MainspringError as error:
            for _, told in askers:
                if not told.done():
                    told.set_exception(error)
        else:
            for _, told in askers:
                if not told.done():
                    told.set_result(found)
        finally:
            clock.idle()
