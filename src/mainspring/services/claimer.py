"""Taking runs that are ready, never more than there is room for, and cancelling those whose time is over unclaimed."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from mainspring.queues.fairness import FAIR
from mainspring.services.reconciler import Stock
from mainspring.services.service import Service
from mainspring.services.turns import Turns
from mainspring.store.protocol import ClaimRequest
from mainspring.store.writes import FAR

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    from mainspring.engine.engine import Engine
    from mainspring.model.clock import Clock
    from mainspring.store.changes import ReadyRun
    from mainspring.store.protocol import Claimed, Store

_LARGEST_BATCH = 500
_EXPECTED = 2.0
"""Seconds after which a run that became ready is no longer expected to be claimed here."""
_MOST_ANNOUNCED = 20


class Claimer(Service):
    """Claims in batches. Kicked when something became ready or a place became free."""

    name = "claimer"

    def __init__(self, clock: Clock, poll: float, *, store: Store, engine: Engine, compatible: bool) -> None:
        super().__init__(clock, poll)
        self._store = store
        self._engine = engine
        self._compatible = compatible
        self._stock = Stock(clock, store=store, engine=engine)
        self._next_due: int | None = None
        self._hungry = True
        self._held = False
        self._ends_meanwhile = False
        self._left_out = False
        self._barren_until = 0.0
        """Until then, by monotonic time, there is nothing to expect that takes no thread, unless a kick says so."""
        self.paused = False
        self.queues: frozenset[str] | None = None
        """The queues to take from; None: all."""
        self.turns = Turns(engine.worker_id)
        self._expected: dict[str, tuple[float, asyncio.TimerHandle | None]] = {}
        """Runs that became ready: when, by monotonic time, and the look for them that is due, if it was not made at once."""

    def kick(self) -> None:
        self._barren_until = 0.0
        super().kick()

    def expect(self, started: Iterable[ReadyRun]) -> None:
        """Runs became ready. Look for those that this worker serves, in its turn; see `Turns`."""
        now = self.clock.monotonic()
        self._expected = {run: found for run, found in self._expected.items() if now - found[0] < _EXPECTED}
        for function, queue, run in started:
            if not self._serves(function, queue) or run in self._expected:
                continue
            delay = self.turns.delay(run, function) if run else 0.0
            look = self._loop.call_later(delay, self.kick) if delay else None
            if look is None:
                self.kick()
            if run:
                self._expected[run] = now, look

    def claimed_elsewhere(self, runs: Iterable[str]) -> None:
        """Another worker has claimed runs: there is no need to look for them."""
        for run in runs:
            _, look = self._expected.pop(run, (0.0, None))
            if look is not None:
                look.cancel()

    def _serves(self, function: str, queue: str) -> bool:
        known = self._engine.registry.find(function) is not None
        return known and (not queue or self.queues is None or queue in self.queues)

    def kick_for_room(self) -> None:
        """A place became free. That matters only if there was more than there was room for."""
        if self._hungry:
            super().kick()

    def note_ends(self) -> bool:
        """Runs have ended somewhere. That matters if a limit of the fleet is in the way, or is just being found in the way.

        From any thread; whether this is to be kicked.
        """
        self._ends_meanwhile = True
        return self._held

    async def run_once(self, now: int) -> int | None:
        engine = self._engine
        if not engine.accepting:
            return None
        await self._stock.take()
        if self.paused:
            return None
        if self._next_due is not None and now >= self._next_due:
            await engine.in_store(self._store.expire, now)
        self._ends_meanwhile = False
        found = [claimed async for claimed in self._found(now)]
        due = [claimed.next_due for claimed in found if claimed.next_due is not None and claimed.next_due < FAR]
        self._held = any(claimed.held for claimed in found)
        self._hungry = self._left_out or any(claimed.more or claimed.short for claimed in found)
        if any(claimed.passed for claimed in found):
            self.kick()
        if found:
            self._next_due = min(due, default=None)
        if self._held and self._ends_meanwhile:
            self.kick()
        return self._next_due

    async def _found(self, now: int) -> AsyncGenerator[Claimed]:
        """Ask for all functions at once, and for those that take no thread again if it was threads that were too few.

        Asking for some of them only makes the database pass over all waiting runs of the others, however many these are; so it
        is not repeated for a slot that became free, when nothing was found before.
        """
        with_threads, others = self._functions(blocking=True), self._functions(blocking=False)
        self._left_out = False
        more = True
        if with_threads:
            self._left_out = self._room(blocking=True) <= 0
            if self._left_out and self._engine.slots.free() > 0:
                self._engine.residency.free_a_thread()
            if not self._left_out:
                claimed = await self._take(others | with_threads, now, blocking=True)
                more = claimed.more
                yield claimed
        if not others or not more:
            return
        barren = bool(with_threads) and self.clock.monotonic() < self._barren_until
        if barren or self._room(blocking=False) <= 0:
            self._left_out = True
            return
        # Set before the query: a kick meanwhile takes it back, and what was not found may be there by then.
        self._barren_until = self.clock.monotonic() + self.poll if with_threads else 0.0
        try:
            rest = await self._take(others, now, blocking=False)
        except BaseException:
            self._barren_until = 0.0
            raise
        if rest.claims:
            self._barren_until = 0.0
        yield rest

    def _functions(self, *, blocking: bool) -> dict[str, str]:
        return {
            function.name: function.fingerprint
            for function in self._engine.registry
            if function.on_loop is not blocking
        }

    def _kinds(self, functions: dict[str, str]) -> dict[str, str]:
        known = self._engine.registry
        return {each.name: each.kind for each in known if each.kind != "workflow" and each.name in functions}

    def _room(self, *, blocking: bool) -> int:
        """How many runs to ask for: `def` runs take a thread each, others only a place."""
        room = min(self._engine.slots.free(), _LARGEST_BATCH)
        return min(room, self._engine.slots.threads()) if blocking else room

    async def _take(self, functions: dict[str, str], now: int, *, blocking: bool) -> Claimed:
        engine, room = self._engine, self._room(blocking=blocking)
        request = ClaimRequest(
            engine.worker_id,
            engine.version,
            functions,
            room,
            now,
            compatible=self._compatible,
            queues=self.queues,
            kinds=self._kinds(functions),
            instances=engine.methods(),
            mine={queue: dict(partitions) for queue, partitions in engine.slots.queued.items()},
            policy=FAIR,
            clock=self.clock.now,
        )
        with engine.slots.reserved(room, blocking=blocking):
            claimed = await self._claim(request)
        engine.take(claimed.claims)
        await self._announce(claimed)
        if claimed.more and self._room(blocking=blocking) > 0:
            self.kick()
        return claimed

    async def _announce(self, claimed: Claimed) -> None:
        """Spare the other workers a look for runs that they were notified of, unless there are so many that they will find some."""
        found = [claim.run.id for claim in claimed.claims if claim.run.id in self._expected]
        self.claimed_elsewhere(found)
        if found and len(found) <= _MOST_ANNOUNCED and not self.turns.alone:
            await self._engine.in_store(self._store.announce, found)

    async def _claim(self, request: ClaimRequest) -> Claimed:
        """Claim. When the service is stopped meanwhile, what the claim still brings is taken first, to be handed back in order."""
        claiming = asyncio.ensure_future(self._engine.in_store(self._store.claim, request))
        try:
            claimed: Claimed = await asyncio.shield(claiming)
        except asyncio.CancelledError:
            with contextlib.suppress(Exception):
                self._engine.take((await claiming).claims)
            raise
        except Exception:
            self._stock.doubt()
            raise
        return claimed
