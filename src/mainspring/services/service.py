"""The skeleton of every loop: do the work once, then rest until kicked, until a civil time, or for the safety poll."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from mainspring.errors import StoreError

if TYPE_CHECKING:
    from mainspring.model.clock import Alarm, Clock

log = logging.getLogger("mainspring.services")

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0


class Service(ABC):
    """A loop of a worker. It survives whatever `run_once` raises: it says so, pauses and tries again."""

    name: str
    background = False
    """Whether no caller waits for it."""

    def __init__(self, clock: Clock, poll: float) -> None:
        self.clock = clock
        self.poll = poll
        self._kicked = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._alarm: Alarm | None = None
        self.rounds = 0
        self._at_work = False
        self._turned = asyncio.Condition()
        self._stopped = False

    @abstractmethod
    async def run_once(self, now: int) -> int | None:
        """Do what there is to do. Answers with the civil time at which there will be more, if that is known."""

    def kick(self) -> None:
        """There may be something to do. To be called on the loop's thread."""
        self._kicked.set()

    async def one_more_round(self) -> None:
        """Have it look once more, and wait until a round that began after this has come to its end, or the service has."""
        wanted = self.rounds + (2 if self._at_work else 1)
        while self.rounds < wanted and not self._stopped:
            self.kick()
            async with self._turned:
                if self.rounds < wanted and not self._stopped:
                    await self._turned.wait()

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            await self._run()
        finally:
            self._stopped = True
            async with self._turned:
                self._turned.notify_all()

    async def _run(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            self._kicked.clear()
            self._at_work = True
            try:
                if self.clock.doubtful:
                    await asyncio.to_thread(self.clock.confirm)
                next_due = await self.run_once(self.clock.now())
            except asyncio.CancelledError:
                raise
            except Exception as error:
                if isinstance(error, StoreError):
                    log.warning("%s: %s; trying again in %.2g s", self.name, error, pause)
                else:
                    log.exception("%s failed; trying again in %.2g s", self.name, pause)
                self.clock.busy()  # what could not be done is still to be done now
                try:
                    await asyncio.sleep(pause)
                finally:
                    self.clock.idle()
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            pause = _FIRST_PAUSE
            self.rounds += 1
            self._at_work = False
            async with self._turned:
                self._turned.notify_all()
            await self._rest(next_due)

    async def _rest(self, next_due: int | None) -> None:
        if next_due is not None:
            self._alarm = self.clock.call_at(next_due, self._loop, self.kick, background=self.background)
        try:
            # Not `wait_for`: before Python 3.12 it forgets that it was cancelled when it is kicked in the same moment.
            async with asyncio.timeout(self.poll):
                await self._kicked.wait()
        except TimeoutError:
            pass
        finally:
            if self._alarm is not None:
                self._alarm.cancel()
                self._alarm = None
