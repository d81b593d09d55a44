"""Operators at work during the soak: they cancel, terminate and resume runs, pause queues, and pause, trigger and backfill schedules."""

from __future__ import annotations

import contextlib
import json
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from mainspring.errors import Conflict, InvalidInput, NotFound, StoreError
from tests.soak.app import app
from tests.soak.functions.jobs import LIMITS, SCHEDULES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.soak.ledger import Writer
    from tests.soak.load import Load

_MAY_BE_STOPPED = frozenset({"program", "awaited", "later", "trip", "tour", "job", "timed"})
_RECENT = 40


class Operators:
    """Each act is written down before it is tried: whether it was carried out is not always known."""

    def __init__(self, seed: int, ledger: Writer, load: Load) -> None:
        self._chance = random.Random(f"operators {seed}")
        self._ledger = ledger
        self._load = load
        self.done: Counter[str] = Counter()
        self._kinds: dict[str, tuple[Callable[[], Awaitable[None]], int]] = {
            "cancel": (self._cancel, 6),
            "terminate": (self._terminate, 2),
            "resume a run": (self._resume_run, 2),
            "pause a schedule": (self._pause_schedule, 2),
            "resume schedules": (self.resume_schedules, 3),
            "trigger": (self._trigger, 4),
            "skip": (self._skip, 1),
            "backfill": (self._backfill, 1),
            "pause a queue": (self._pause_queue, 1),
            "resume queues": (self.resume_queues, 2),
        }

    async def one(self) -> None:
        name = self._chance.choices(list(self._kinds), [weight for _, weight in self._kinds.values()])[0]
        with contextlib.suppress(StoreError, Conflict, NotFound, InvalidInput):
            await self._kinds[name][0]()
            self.done[name] += 1

    # -- runs ----------------------------------------------------------------------------------------------------------
    def _recent(self) -> str | None:
        found = [run for kind, run in self._load.started[-_RECENT:] if kind in _MAY_BE_STOPPED]
        return self._chance.choice(found) if found else None

    async def _cancel(self) -> None:
        if (run := self._recent()) is not None:
            self._ledger.write("cancel", run)
            await app.runs.cancel(run, reason="an operator's cancel")

    async def _terminate(self) -> None:
        if (run := self._recent()) is not None:
            self._ledger.write("terminate", run)
            await app.runs.terminate(run, reason="an operator's terminate")

    async def _resume_run(self) -> None:
        page = await app.runs.list(state=["cancelled"], limit=30)
        # Not programs that count their attempts: a resume begins to count anew, so they would do something else than before.
        programs = [each.id for each in page if each.workflow.startswith("program") and not each.parent]
        found = [run for run in programs if '["fail"' not in json.dumps((await app.runs.get(run)).input)]
        if found:
            run = self._chance.choice(found)
            self._ledger.write("resume", run)
            await app.runs.resume(run)

    # -- queues --------------------------------------------------------------------------------------------------------
    async def _pause_queue(self) -> None:
        await app.queues.pause(self._chance.choice(list(LIMITS)))

    async def resume_queues(self) -> None:
        for name in LIMITS:
            await app.queues.resume(name)

    # -- schedules -----------------------------------------------------------------------------------------------------
    def _schedule(self) -> str:
        return self._chance.choice(list(SCHEDULES))

    async def _pause_schedule(self) -> None:
        await app.schedules.pause(self._schedule(), "an operator's pause")

    async def resume_schedules(self) -> None:
        for schedule in SCHEDULES:
            await app.schedules.resume(schedule)

    async def pause_all(self) -> None:
        """The end of the soak: no more ticks."""
        for schedule in await app.schedules.list(limit=100):
            await app.schedules.pause(schedule.id, "the soak is over")

    async def _trigger(self) -> None:
        schedule = self._schedule()
        self._ledger.write("tries", label="trigger", schedule=schedule)
        handle = await app.schedules.trigger(schedule)
        self._ledger.write("triggered", handle.id if handle else "", schedule)

    async def _skip(self) -> None:
        await app.schedules.skip(self._schedule())

    async def _backfill(self) -> None:
        """Of times before the schedule was there: a few, each once."""
        until = datetime.now(UTC) - timedelta(hours=self._chance.randint(1, 50))
        await app.schedules.backfill("allow-all", until - timedelta(seconds=3), until)
