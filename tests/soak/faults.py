"""What is done to the fleet and its database, at random by a seed. Each fault is one method; it returns when it is over.

Everything is written to the ledger before and after, so that a finding can be read beside what happened at its time.
"""

from __future__ import annotations

import contextlib
import random
import signal
import sqlite3
import time
from collections import Counter
from typing import TYPE_CHECKING

import psycopg

from mainspring.store.open import sqlite_path
from tests.soak.workers import GRACE, LEASE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.soak.clocks import Clock
    from tests.soak.ledger import Writer
    from tests.soak.proxy import Proxy
    from tests.soak.workers import Workers
    from tests.support.postgres import PostgresServer

_STOP_WITHIN = GRACE + 10
"""A worker promises to leave within its grace and a few seconds; the machine may be slow."""
_TABLES = ("runs", "steps", "workers", "schedules", "queues", "messages", "ticks")
_STEPS = (-8, -3, 3, 8, 15)


class Faults:
    """Makes trouble. `server` and `proxy` are there where the database is PostgreSQL."""

    def __init__(
        self,
        workers: Workers,
        url: str,
        seed: int,
        ledger: Writer,
        *,
        clocks: Sequence[Clock],
        server: PostgresServer | None = None,
        proxy: Proxy | None = None,
    ) -> None:
        self._workers = workers
        self._url = url
        self._chance = random.Random(f"faults {seed}")
        self._ledger = ledger
        self._clocks = clocks
        self._server = server
        self._proxy = proxy
        self.done: Counter[str] = Counter()
        self.findings: list[str] = []
        self._kinds: dict[str, tuple[Callable[[], None], int]] = {
            "SIGKILL": (self._kill, 10),
            "SIGTERM": (self._stop, 8),
            "two SIGTERM": (self._stop_twice, 1),
            "SIGSTOP past the lease": (self._freeze, 3),
        }
        if clocks:
            self._kinds["clock set"] = (self._set_clock, 2)
        if server is None:
            self._kinds["file locked"] = (self._lock_file, 3)
        else:
            self._kinds |= {
                "backends terminated": (self._terminate_backends, 3),
                "restart": (lambda: self._restart("fast"), 1),
                "restart after -m immediate": (lambda: self._restart("immediate"), 1),
                "table locked": (self._lock_table, 3),
                "rows locked": (self._lock_rows, 4),
                "connections cut": (self._cut, 4),
                "connections silent": (self._silence, 2),
            }

    def one(self) -> None:
        """One fault, chosen at random."""
        name = self._chance.choices(list(self._kinds), [weight for _, weight in self._kinds.values()])[0]
        self._ledger.write("fault", label=name)
        self._kinds[name][0]()
        self._ledger.write("fault over", label=name)
        self.done[name] += 1
        ended = self._workers.fill()
        if ended:
            self.done["worker ended by itself"] += ended

    def cease(self) -> None:
        """Everything is well again: clocks are right, nothing is locked, all processes go on."""
        for clock in self._clocks:
            clock.set(0)
        for worker in self._workers.alive:
            worker.thaw()
        self._workers.fill()

    # -- processes -----------------------------------------------------------------------------------------------------
    def _kill(self) -> None:
        worker = self._chance.choice(self._workers.alive)
        self._workers.remove(worker)
        worker.kill()
        self._ledger.write("process ended", label=str(worker.pid))

    def _stop(self) -> None:
        """An orderly stop. That it comes to its end in time is a promise of its own."""
        ready = self._workers.ready()
        if not ready:
            return
        worker = self._chance.choice(ready)
        self._workers.remove(worker)
        worker.send(signal.SIGTERM)
        self._workers.fill()
        try:
            if worker.wait(within=_STOP_WITHIN):  # it gave up handing back runs when its time was over
                self.done["SIGTERM, left by force"] += 1
        except AssertionError:
            worker.send(signal.SIGUSR1)
            time.sleep(0.5)
            self.findings.append(
                f"stop: process {worker.pid} was still there {_STOP_WITHIN:g} s after SIGTERM; {worker.log}"
            )
        worker.kill()
        self._ledger.write("process ended", label=str(worker.pid))

    def _stop_twice(self) -> None:
        """The second signal ends it at once."""
        ready = self._workers.ready()
        if not ready:
            return
        worker = self._chance.choice(ready)
        self._workers.remove(worker)
        worker.send(signal.SIGTERM)
        time.sleep(self._chance.uniform(0, GRACE))
        worker.send(signal.SIGTERM)
        with contextlib.suppress(AssertionError):
            worker.wait(within=_STOP_WITHIN)
        worker.kill()
        self._ledger.write("process ended", label=str(worker.pid))

    def _freeze(self) -> None:
        """Others take over what it has; it wakes and must notice."""
        ready = self._workers.ready()
        if not ready:
            return
        worker = self._chance.choice(ready)
        try:
            self._workers.fleet.freeze(worker)
        except AssertionError:  # it has the turn at writing all the time, or has just ended
            worker.thaw()
            return
        time.sleep(LEASE * self._chance.uniform(1.2, 2.5))
        worker.thaw()

    def _set_clock(self) -> None:
        """A machine's clock jumps; later another jump, or the end of the soak, sets it right."""
        clock = self._chance.choice(self._clocks)
        clock.set(self._chance.choice(_STEPS) if clock.offset == 0 or self._chance.random() < 0.3 else 0)
        self._ledger.write("clock", offset=clock.offset)

    # -- SQLite --------------------------------------------------------------------------------------------------------
    def _lock_file(self) -> None:
        """Another program has a transaction open for a while."""
        with contextlib.closing(
            sqlite3.connect(sqlite_path(self._url), timeout=20, isolation_level=None)
        ) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return
            time.sleep(self._chance.uniform(0.2, 3))
            connection.execute("ROLLBACK")

    # -- PostgreSQL ----------------------------------------------------------------------------------------------------
    def _terminate_backends(self) -> None:
        assert self._server is not None
        self._server.terminate_backends(self._url)

    def _restart(self, mode: str) -> None:
        assert self._server is not None
        self._server.stop("immediate" if mode == "immediate" else "fast")
        time.sleep(self._chance.uniform(0, 2))
        self._server.start()

    def _lock_table(self) -> None:
        table = self._chance.choice(_TABLES)
        with psycopg.connect(self._url) as connection:
            connection.execute(f"LOCK TABLE mainspring.{table} IN ACCESS EXCLUSIVE MODE".encode())
            time.sleep(self._chance.uniform(0.2, 3))
            connection.rollback()

    def _lock_rows(self) -> None:
        table = self._chance.choice(["runs", "runs", "queues", "schedules", "workers"])
        where = " WHERE completed IS NULL" if table == "runs" else ""
        with psycopg.connect(self._url) as connection:
            try:
                connection.execute(
                    f"SELECT 1 FROM mainspring.{table}{where} ORDER BY random() LIMIT 20 FOR UPDATE".encode()
                )
                time.sleep(self._chance.uniform(0.2, 3))
            except psycopg.errors.DeadlockDetected:  # rows are locked in any order, as strangers do it
                pass
            connection.rollback()

    def _cut(self) -> None:
        assert self._proxy is not None
        self._proxy.cut()

    def _silence(self) -> None:
        """Nothing comes through for a while; then it does, or the connections break."""
        assert self._proxy is not None
        self._proxy.silence()
        time.sleep(LEASE * self._chance.uniform(0.5, 2))
        if self._chance.random() < 0.5:
            self._proxy.cut()
        self._proxy.speak()
