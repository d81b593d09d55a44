"""A client that keeps a fleet busy with runs that can be audited, whatever happens to the database meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from typing import TYPE_CHECKING, Self

from mainspring.errors import StoreError
from tests.fleet import apps
from tests.support.audit import all_runs, unfinished

if TYPE_CHECKING:
    from mainspring import AsyncFn, SyncFn
    from mainspring.store.protocol import Store

    Chain = AsyncFn[[int], dict[str, list[str]]] | SyncFn[[int], dict[str, list[str]]]

_AGAIN = 0.05


class Load:
    """Starts runs of several kinds, one after the other, until told to stop. Every start that was answered is remembered.

    With a store to look at, it rests while `most` runs are unfinished.
    """

    def __init__(self, store: Store | None = None, *, pause: float = 0.01, most: int = 200, links: int = 4) -> None:
        self.acknowledged: list[str] = []
        self.refused = 0
        self._store = store
        self._pause = pause
        self._most = most
        self._links = links
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def reaches(self, count: int, within: float = 60) -> None:
        """Wait until so many runs were started, in all."""
        async with asyncio.timeout(within):
            while len(self.acknowledged) < count:  # noqa: ASYNC110  (what others do, nobody tells)
                await asyncio.sleep(self._pause)

    async def is_refused(self, within: float = 60) -> None:
        """Wait until one more start was refused: the database is away, and that was noticed."""
        before = self.refused
        async with asyncio.timeout(within):
            while self.refused == before:  # noqa: ASYNC110  (what others do, nobody tells)
                await asyncio.sleep(self._pause)

    async def _run(self) -> None:
        kinds: itertools.cycle[Chain] = itertools.cycle([apps.chain, apps.chain_blocking, apps.chain, apps.family])
        for number in itertools.count():
            run_id = f"load-{number}"
            if number % 50 == 0:
                await self._rest()
            await self._start(next(kinds), run_id)
            self.acknowledged.append(run_id)
            await asyncio.sleep(self._pause)

    async def _rest(self) -> None:
        while self._store is not None:
            with contextlib.suppress(StoreError):
                if await asyncio.to_thread(unfinished, self._store) < self._most:
                    return
            await asyncio.sleep(_AGAIN)

    async def _start(self, workflow: Chain, run_id: str) -> None:
        """As a careful caller does it: with an id of its own, again until it is answered."""
        while True:
            try:
                await workflow.options(id=run_id).start(self._links)
                return
            except StoreError:
                self.refused += 1
                await asyncio.sleep(_AGAIN)


async def drained(store: Store, within: float = 60) -> None:
    """Wait until every run has ended."""
    deadline = time.monotonic() + within
    while True:
        with contextlib.suppress(StoreError):
            left = await asyncio.to_thread(unfinished, store)
            if not left:
                return
            assert time.monotonic() < deadline, _left(store)
        assert time.monotonic() < deadline
        await asyncio.sleep(_AGAIN)


def _left(store: Store) -> str:
    lines = [str(worker) for worker in store.workers()]
    for run in all_runs(store):
        if not run.state.ended:
            lines += [str(run), *(f"    {step}" for step in store.steps(run.id))]
    return "\n".join(["not everything has ended:", *lines])
