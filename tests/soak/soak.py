"""Workers killed at random under load, for as long as you like: `make soak MINUTES=10`.

Processes are killed with SIGKILL, stopped with SIGTERM, frozen past their lease and woken; PostgreSQL is restarted and has its
connections cut. At the end a ledger of effects and the database are audited together: no acknowledged run lost, nothing recorded
executed again, every result as it must be, every run ended.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mainspring import Settings
from mainspring.store.open import open_store
from tests.fleet import apps
from tests.support.audit import Findings, audit
from tests.support.load import Load, drained
from tests.support.postgres import PostgresServer
from tests.support.processes import Fleet

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support.processes import Process

LEASE = 1.5


@dataclass
class Outcome:
    """What was done to the fleet, and what the auditor found."""

    database: str
    seed: int
    seconds: float = 0
    refused: int = 0
    done: Counter[str] = field(default_factory=Counter[str])
    findings: Findings = field(default_factory=Findings)

    def __str__(self) -> str:
        faults = ", ".join(f"{count} x {what}" for what, count in sorted(self.done.items()))
        return (
            f"{self.database}, seed {self.seed}, {self.seconds:.0f} s: {faults}; "
            f"{self.refused} starts refused and made again; {self.findings}"
        )


class Soak:
    """One fleet under fire."""

    def __init__(
        self, folder: Path, url: str, seed: int, *, workers: int, server: PostgresServer | None = None
    ) -> None:
        self._fleet = Fleet(folder, url, lease=LEASE, concurrency=50, threads=8)
        self._fleet.quiet = True
        self._url = url
        self._server = server
        self._chance = random.Random(seed)
        self._size = workers
        self._workers: list[Process] = []
        self._zombies: set[int] = set()
        self.outcome = Outcome("postgres" if server else "sqlite", seed)

    async def run(self, seconds: float) -> Outcome:
        """Keep the fleet busy and in trouble for so long, then let it come to rest and audit it."""
        began = time.monotonic()
        runtime = apps.app.runtime
        runtime.url, runtime.settings = self._url, Settings(work=False)
        store = open_store(self._url, Settings())
        store.open()
        try:
            with self._fleet:
                self._workers = self._fleet.workers(self._size)
                async with Load(store) as load:
                    while time.monotonic() - began < seconds:
                        await asyncio.sleep(self._chance.uniform(0.1, 0.8))
                        await asyncio.to_thread(self._trouble)
                self._replace_the_ended()
                try:
                    await drained(store, within=60)
                except AssertionError:
                    self._fleet.print_stacks()
                    raise
                self.outcome.refused = load.refused
                self.outcome.findings = audit(self._fleet.ledger, store, load.acknowledged, self._zombies)
        finally:
            await asyncio.to_thread(apps.app.close)
            store.close()
        self.outcome.seconds = time.monotonic() - began
        return self.outcome

    # -- trouble -------------------------------------------------------------------------------------------------------
    def _trouble(self) -> None:
        kinds: dict[str, tuple[Callable[[], None], int]] = {
            "killed": (self._kill, 10),
            "stopped": (self._stop, 3),
            "frozen past its lease": (self._freeze, 1),
        }
        if self._server is not None:
            kinds |= {
                "connections cut": (self._cut, 4),
                "restarted fast": (lambda: self._restart(immediate=False), 1),
                "restarted as after a crash": (lambda: self._restart(immediate=True), 1),
            }
        self._replace_the_ended()
        name = self._chance.choices(list(kinds), [weight for _, weight in kinds.values()])[0]
        kinds[name][0]()
        self.outcome.done[name] += 1

    def _replace_the_ended(self) -> None:
        """What a supervisor does with a worker that could not enter the fleet, because the database was away just then."""
        for worker in [each for each in self._workers if not each.alive]:
            self._workers.remove(worker)
            self._hire()
            self.outcome.done["ended by itself"] += 1
            if self._server is None:
                sys.stderr.write(f"a worker has ended by itself:\n{worker.output[-2000:]}\n")

    def _take_one(self) -> Process:
        return self._workers.pop(self._chance.randrange(len(self._workers)))

    def _hire(self) -> None:
        self._workers.append(self._fleet.start_worker())

    def _kill(self) -> None:
        self._take_one().kill()
        self._hire()

    def _stop(self) -> None:
        worker = self._take_one()
        worker.send(signal.SIGTERM)
        self._hire()
        with contextlib.suppress(
            AssertionError
        ):  # one that had not even installed its handler, or does not come to an end
            worker.wait(within=20)
        worker.kill()

    def _freeze(self) -> None:
        worker = self._chance.choice(self._workers)
        if "ready;" not in worker.output:
            return
        self._zombies.add(worker.pid)
        self._fleet.freeze(worker)
        time.sleep(LEASE * 1.5)
        worker.thaw()

    def _cut(self) -> None:
        assert self._server is not None
        self._server.terminate_backends(self._url)

    def _restart(self, *, immediate: bool) -> None:
        assert self._server is not None
        self._server.stop("immediate" if immediate else "fast")
        time.sleep(self._chance.uniform(0, 1))
        self._server.start()


async def soak(database: str, seconds: float, seed: int, *, workers: int = 4, fsync: bool = True) -> Outcome:
    """Soak one kind of database."""
    folder = Path(tempfile.mkdtemp(prefix="mainspring-soak-"))
    try:
        if database == "sqlite":
            outcome = await Soak(folder, f"sqlite:///{folder}/store.db", seed, workers=workers).run(seconds)
        else:
            with PostgresServer(fsync=fsync) as server:
                url = server.create_database()
                outcome = await Soak(folder, url, seed, workers=workers, server=server).run(seconds)
    except BaseException as error:
        error.add_note(f"what the processes said is in {folder}")
        raise
    if outcome.findings.faults:
        outcome.findings.faults.append(f"what the processes said is in {folder}")
    else:
        shutil.rmtree(folder)
    return outcome


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="altogether, for all databases")
    parser.add_argument("--database", choices=["sqlite", "postgres", "both"], default="both")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="which troubles, not when exactly they come")
    given = parser.parse_args(arguments)
    logging.getLogger("mainspring").setLevel(logging.ERROR)  # that the database goes away is no news here
    databases = ["sqlite", "postgres"] if given.database == "both" else [given.database]
    good = True
    for database in databases:
        outcome = asyncio.run(soak(database, given.minutes * 60 / len(databases), given.seed, workers=given.workers))
        sys.stdout.write(f"{outcome}\n")
        sys.stdout.flush()
        good = good and not outcome.findings.faults
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
