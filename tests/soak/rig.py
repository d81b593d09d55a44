"""The parts of one soak, put together: workers, load, faults, operators, watcher and ledger."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from mainspring import Settings
from mainspring.errors import StoreError
from mainspring.store.open import open_store
from tests.soak import evidence
from tests.soak.app import app
from tests.soak.faults import Faults
from tests.soak.functions.transactions import CREATE, CREATE_JOINED
from tests.soak.ledger import Ledger, Writer
from tests.soak.load import Load
from tests.soak.operators import Operators
from tests.soak.watcher import Watcher, connect
from tests.soak.workers import Workers
from tests.support.audit import all_runs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.soak.clocks import Clock
    from tests.soak.proxy import Proxy
    from tests.support.postgres import PostgresServer

_REST_WITHIN = 60.0


class Rig:
    """Everything of one soak. The workers reach the database by `worker_url`, all others by `url`."""

    def __init__(
        self,
        folder: Path,
        worker_url: str,
        url: str,
        seed: int,
        *,
        size: int,
        environment: dict[str, str],
        clocks: Sequence[Clock],
    ) -> None:
        self._folder = folder
        self._url = url
        self._seed = seed
        self._clocks = clocks
        self._kind = environment["SOAK_KIND"]
        self.ledger = folder / "ledger"
        self._writer = Writer(self.ledger)
        self.workers = Workers(folder, worker_url, size, self._writer, more=dict(environment), clocks=clocks)
        self.store = open_store(url, Settings())
        self.store.open()
        app._runtime.url, app._runtime.settings = url, Settings(work=False)
        self.watcher = Watcher(url)
        self.load = Load(url, seed, self._writer, lambda: self.watcher.backlog)
        self.operators = Operators(seed, self._writer, self.load)
        self.faults = Faults(self.workers, url, seed, self._writer, clocks=clocks)

    def create_tables(self, databases: Sequence[str]) -> None:
        """The tables of the user's: one in each database, and that of joined transactions in the app's."""
        for url in databases:
            with contextlib.closing(connect(url)) as db:
                if not url.startswith("sqlite"):
                    db.execute("SET search_path = public")
                db.execute(CREATE)
                db.execute(CREATE_JOINED)

    def disturb_with(self, server: PostgresServer | None, proxy: Proxy | None) -> None:
        self.faults = Faults(
            self.workers, self._url, self._seed, self._writer, clocks=self._clocks, server=server, proxy=proxy
        )

    async def begin(self) -> None:
        self.workers.fill()
        await asyncio.to_thread(self.workers.wait_until_ready)
        self.watcher.start()
        self.load.begin()

    async def come_to_rest(self) -> list[str]:
        """Cease all faults, bring the load to its end, and let those end that wait for what the soak alone can say."""
        await asyncio.to_thread(self.faults.cease)
        await self._insist(self.operators.resume_queues)
        await self._insist(self.operators.pause_all)
        findings: list[str] = []
        try:
            await asyncio.wait_for(self.load.stop(), _REST_WITHIN)
        except TimeoutError:
            findings.append(f"calls of the client were not answered within {_REST_WITHIN:g} s")
        for run in await asyncio.to_thread(lambda: [*all_runs(self.store)]):
            if run.workflow == "nobody_writes" and not run.state.ended:
                await app.send(run.id, "at last", "the end", key="the end")
        return findings

    async def _insist(self, work: object) -> None:
        deadline = time.monotonic() + _REST_WITHIN
        while True:
            try:
                await work()  # type: ignore[operator]
                return
            except StoreError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.2)

    async def end(self) -> None:
        """Everybody who waits for a result has had time to be told; the workers leave."""
        if self.load.waiters:
            await asyncio.wait(self.load.waiters.values(), timeout=20)
        self.watcher.stop()

    def evidence(self, databases: Sequence[str]) -> evidence.Evidence:
        return evidence.gather(self._kind, self._folder, Ledger(self.ledger), self.store, list(databases))

    def close(self) -> None:
        self.watcher.stop()
        self._writer.close()
        self.store.close()
