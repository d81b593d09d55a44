"""Claim ready runs, never more than there are free slots, and cancel unclaimed runs whose deadline has passed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from hashlib import blake2b
from typing import TYPE_CHECKING

from mainspring.model.runs import Claim
from mainspring.model.states import State
from mainspring.queues.fairness import FAIR
from mainspring.services.service import Service
from mainspring.store.protocol import ClaimRequest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    from mainspring.engine.engine import Engine
    from mainspring.model.runs import Worker
    from mainspring.store.changes import Notice, ReadyRun
    from mainspring.store.protocol import Claimed

log = logging.getLogger("mainspring.services")

_LARGEST_BATCH = 500
_EXPECTED = 2.0
"""Seconds after which this worker no longer expects to claim a run that became ready."""
_MOST_ANNOUNCED = 20
STEP = 0.025
"""Seconds between the claims of two workers: enough for a claim and its notification."""
LONGEST = 1.0
_COMPARE_EVERY = 60.0
"""Seconds. A server can also commit long after its connection was lost, later than the looks that follow the loss."""


class Turns:
    """The order in which idle workers claim a run that just became ready, so that they do not all query for it at once.

    Every worker computes the same order from the run's id and the workers that know its function. The first claims at once, each other
    one a moment later than the one before it, unless it is notified by then that the run was claimed.
    """

    def __init__(self, me: str) -> None:
        self._me = me
        self._functions: dict[str, tuple[str, frozenset[str]]] = {}
        self._others: tuple[tuple[str, frozenset[str]], ...] = ()

    def update(self, fleet: Iterable[Worker]) -> None:
        """Update the list of workers. Thread-safe."""
        known = {
            worker.id: self._functions.get(worker.id)
            if self._functions.get(worker.id, ("",))[0] == worker.functions
            else (worker.functions, frozenset[str](json.loads(worker.functions)))
            for worker in fleet
            if worker.id != self._me
        }
        self._functions = {worker: found for worker, found in known.items() if found is not None}
        self._others = tuple((worker, names) for worker, (_, names) in self._functions.items())

    @property
    def alone(self) -> bool:
        """Whether there is no other worker."""
        return not self._others

    def delay(self, run: str, function: str) -> float:
        """Return the seconds that this worker waits before it claims a run."""
        mine = _rank(run, self._me)
        before = sum(1 for worker, names in self._others if function in names and _rank(run, worker) < mine)
        return min(before * STEP, LONGEST)


def _rank(run: str, worker: str) -> bytes:
    return blake2b(f"{run} {worker}".encode(), digest_size=8).digest()


class Claimer(Service):
    """Claims in batches. Kicked when a run became ready or a slot became free."""

    name = "claimer"

    def __init__(self, engine: Engine, poll: float, *, compatible: bool) -> None:
        super().__init__(engine, poll)
        self._compatible = compatible
        self._reconciler = Reconciler(engine)
        self._next_due: int | None = None
        self._wants_slots = True
        self._held = False
        self._ends_during_claim = False
        self._room_during_claim = False
        self._left_out = False
        self._no_loop_runs_until = 0.0
        """Monotonic time until which no ready run without a thread is expected. A kick resets it."""
        self.paused = False
        self.queues: frozenset[str] | None = None
        """The queues to claim from. None: all."""
        self.turns = Turns(engine.worker_id)
        self._expected: dict[str, tuple[float, asyncio.TimerHandle | None]] = {}
        """Runs that became ready: the monotonic time of the notification, and the delayed claim, if there is one."""
        self._announced: set[str] = set()
        """Queues in which runs became ready since the last claim."""

    def kick(self) -> None:
        self._no_loop_runs_until = 0.0
        super().kick()

    def expect(self, started: Iterable[ReadyRun]) -> None:
        """Schedule a claim for runs that became ready and that this worker serves, in its turn. See `Turns`."""
        now = self.clock.monotonic()
        self._expected = {run: found for run, found in self._expected.items() if now - found[0] < _EXPECTED}
        for function, queue, run in started:
            if not self._serves(function, queue) or run in self._expected:
                continue
            if queue:
                self._announced.add(queue)
            delay = self.turns.delay(run, function) if run else 0.0
            look = self._loop.call_later(delay, self.kick) if delay else None
            if look is None:
                self.kick()
            if run:
                self._expected[run] = now, look

    def claimed_elsewhere(self, runs: Iterable[str]) -> None:
        """Cancel the delayed claims of runs that another worker has claimed."""
        for run in runs:
            _, look = self._expected.pop(run, (0.0, None))
            if look is not None:
                look.cancel()

    def _serves(self, function: str, queue: str) -> bool:
        known = self._engine.registry.find(function) is not None
        return known and (not queue or self.queues is None or queue in self.queues)

    def kick_for_room(self) -> None:
        """Kick after a slot became free, if the last claim left out runs for want of slots. A claim under way looks for this at its end."""
        self._room_during_claim = True
        if self._wants_slots:
            super().kick()

    def note_ends(self) -> bool:
        """Note that runs have ended in the fleet.

        Return True if a fleet-wide limit held back runs, so a kick may claim them. Thread-safe.
        """
        self._ends_during_claim = True
        return self._held

    async def run_once(self, now: int) -> int | None:
        engine = self._engine
        if not engine.accepting:
            return None
        await self._reconciler.take()
        if self.paused:
            return None
        if self._next_due is not None and now >= self._next_due:
            await engine.in_store(self._store.expire, now)
        self._ends_during_claim = self._room_during_claim = False
        found = [claimed async for claimed in self._found(now)]
        due = [claimed.next_due for claimed in found if claimed.next_due is not None]
        self._held = any(claimed.held for claimed in found)
        self._wants_slots = self._left_out or any(claimed.more or claimed.short for claimed in found)
        if any(claimed.passed for claimed in found) or (self._wants_slots and self._room_during_claim):
            self.kick()
        if found:
            self._next_due = min(due, default=None)
        if self._held and self._ends_during_claim:
            self.kick()
        if self._next_due is None or self._next_due <= now:
            return None  # no claim was made, for want of slots: a run is due, and is claimed when a slot becomes free
        return self._next_due

    async def _found(self, now: int) -> AsyncGenerator[Claimed]:
        """Claim runs of all functions, and then runs without a thread again if threads were too few.

        A claim for some functions makes the database skip all waiting runs of the others, however many there are. So it
        is not repeated for a free slot when the last one found nothing.
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
        expects_none = bool(with_threads) and self.clock.monotonic() < self._no_loop_runs_until
        if expects_none or self._room(blocking=False) <= 0:
            self._left_out = True
            return
        # Set before the query: a kick during the query resets it, since the run may have become ready after the query.
        self._no_loop_runs_until = self.clock.monotonic() + self.poll if with_threads else 0.0
        try:
            rest = await self._take(others, now, blocking=False)
        except BaseException:
            self._no_loop_runs_until = 0.0
            raise
        if rest.claims:
            self._no_loop_runs_until = 0.0
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
        """Return how many runs to claim. A `def` run takes a thread, others only a slot."""
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
            announced=frozenset(self._announced),
        )
        self._announced.clear()
        with engine.slots.reserved(room, blocking=blocking):
            claimed = await self._claim(request)
        engine.take(claimed.claims)
        await self._announce(claimed)
        if claimed.more and self._room(blocking=blocking) > 0:
            self.kick()
        return claimed

    async def _announce(self, claimed: Claimed) -> None:
        """Notify the other workers of claimed runs that they expect too, unless there are so many that the others will find some."""
        found = [claim.run.id for claim in claimed.claims if claim.run.id in self._expected]
        self.claimed_elsewhere(found)
        if found and len(found) <= _MOST_ANNOUNCED and not self.turns.alone:
            await self._engine.in_store(self._store.announce, found)

    async def _claim(self, request: ClaimRequest) -> Claimed:
        """Claim runs. If the service is stopped during the claim, its runs are taken first, so that they are released in order."""
        claiming = asyncio.ensure_future(self._engine.in_store(self._store.claim, request))
        try:
            claimed: Claimed = await asyncio.shield(claiming)
        except asyncio.CancelledError:
            with contextlib.suppress(Exception):
                self._engine.take((await claiming).claims)
            raise
        except Exception:
            self._reconciler.compare_soon()
            raise
        return claimed


class Reconciler:
    """Finds runs that this worker owns without knowing, and starts them.

    A claim whose commit succeeds while its response is lost leaves runs owned by a worker that does not know of them. No other worker
    recovers them while it lives. So the worker compares after a failed claim, and regularly.
    """

    def __init__(self, engine: Engine) -> None:
        self._clock = engine.clock
        self._store = engine.store
        self._engine = engine
        self._next = engine.clock.monotonic() + _COMPARE_EVERY

    def compare_soon(self) -> None:
        """Compare at the next call of `take`, because a claim may have committed whose response was lost."""
        self._next = self._clock.monotonic()

    async def take(self) -> None:
        """Start the runs that are owned and unknown, if a comparison is due. Must not be called during a claim."""
        if self._clock.monotonic() < self._next:
            return
        engine = self._engine
        known = self._known()
        owned: list[Notice] = await engine.in_thread(self._store.owned, engine.worker_id)
        known |= self._known()  # runs that began during the query; those that ended are in the first set
        unknown = [notice for notice in owned if notice.run not in known and not notice.state.ended]
        if unknown:
            log.warning("recovered %d runs owned by this worker whose claim response was lost", len(unknown))
            engine.take(await engine.in_thread(self._claims, unknown))
            await engine.attend([notice for notice in unknown if notice.state is State.CANCELLING])
        self._next = self._clock.monotonic() + _COMPARE_EVERY

    def _known(self) -> set[str]:
        return {*self._engine.executions, *self._engine.local_starts.ids, *self._engine.given_up}

    def _claims(self, unknown: list[Notice]) -> list[Claim]:
        """Return the runs that this worker still owns, with their recorded operations."""
        claims: list[Claim] = []
        for notice in unknown:
            run = self._store.run(notice.run)
            if run is not None and (run.owner, run.epoch) == (self._engine.worker_id, notice.epoch):
                claims.append(Claim(run, self._store.steps(run.id)))
        return claims
