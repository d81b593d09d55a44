"""The base class of loops: work once, then wait for a kick, a wall-clock time or the safety poll."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from mainspring.errors import StoreError

if TYPE_CHECKING:
    from mainspring.engine.engine import Engine
    from mainspring.model.clock import Alarm

log = logging.getLogger("mainspring.services")

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0


class Service(ABC):
    """A loop of a worker. It logs an exception of `run_once`, pauses and retries."""

    name: str
    background = False
    """Whether no caller waits for this service, so that a virtual clock does not advance for it alone."""

    def __init__(self, engine: Engine, poll: float) -> None:
        self._engine = engine
        self._store = engine.store
        self.clock = engine.clock
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
        """Do one round of work. Return the wall-clock time of the next work, if it is known."""

    def kick(self) -> None:
        """Start a round now, or another one after the present round. Must be called on the loop's thread."""
        self._kicked.set()

    async def next_round(self) -> None:
        """Wait for a round that begins after this call, or for the end of the service."""
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
            try:
                next_due = await self._round()
                pause = _FIRST_PAUSE
                await self._wait(next_due)
            except asyncio.CancelledError as cancelled:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                # Something that the round waited for was cancelled, and not this service, which would end without a word.
                await self._pause(cancelled, pause)
            except Exception as error:  # noqa: BLE001  (logged)
                await self._pause(error, pause)
            else:
                continue
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _round(self) -> int | None:
        self._kicked.clear()
        self._at_work = True
        if self.clock.doubtful:
            await asyncio.to_thread(self.clock.confirm)
        next_due = await self.run_once(self.clock.now())
        self.rounds += 1
        self._at_work = False
        async with self._turned:
            self._turned.notify_all()
        return next_due

    async def _pause(self, error: BaseException, pause: float) -> None:
        if isinstance(error, StoreError):
            log.warning("%s: %s; retrying in %.2g s", self.name, error, pause)
        else:
            log.error("%s failed; retrying in %.2g s", self.name, pause, exc_info=error)
        self.clock.busy()  # the failed work is still due now
        try:
            await asyncio.sleep(pause)
        finally:
            self.clock.idle()

    async def _wait(self, next_due: int | None) -> None:
        if next_due is not None:
            self._alarm = self.clock.call_at(next_due, self._loop, self.kick, background=self.background)
        try:
            # Not `wait_for`: before Python 3.12 it loses a cancellation that comes together with a kick.
            async with asyncio.timeout(self.poll):
                await self._kicked.wait()
        except TimeoutError:
            pass
        finally:
            if self._alarm is not None:
                self._alarm.cancel()
                self._alarm = None
