"""All features under all faults, for as long as you like: `make soak MINUTES=10 ARGS="--database sqlite --seed 7"`.

Real workers execute a random load while they are killed, stopped, frozen and their clocks set, and while their database is locked,
restarted and cut off (`faults.py`). A ledger that no database keeps has every effect (`ledger.py`). At the end everything must come to
rest (`rest.py`), and one auditor for each promise compares the ledger with the rows (`auditors/`). Exit code 1: something was found, and
the folder with the ledger, the database and what the processes said is kept.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.soak.clocks import make_clocks
from tests.soak.proxy import Proxy
from tests.support.ledger import VARIABLE
from tests.support.postgres import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.soak.clocks import Clock
    from tests.soak.evidence import Evidence
    from tests.soak.rig import Rig

_PAUSE = (0.3, 3.0)
_SHOWN = 5
_DRAIN = 150.0
_TELL_EVERY = 60.0
_WORKERS_WITHIN = 20.0


@dataclass
class Outcome:
    """What was done to the fleet, what there was to look at, and what was found."""

    database: str
    seed: int
    folder: Path
    seconds: float = 0
    faults: Counter[str] = field(default_factory=Counter[str])
    operators: Counter[str] = field(default_factory=Counter[str])
    figures: dict[str, int] = field(default_factory=dict[str, int])
    findings: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    notes: list[str] = field(default_factory=list[str])

    def add(self, promise: str, findings: list[str]) -> None:
        if findings:
            self.findings.setdefault(promise, []).extend(findings)

    def __str__(self) -> str:
        lines = [
            f"{self.database}, seed {self.seed}, {self.seconds:.0f} s",
            "  " + ", ".join(f"{count:,} {what}" for what, count in self.figures.items()),
            "  faults: " + ", ".join(f"{count} x {what}" for what, count in sorted(self.faults.items())),
            "  operators: " + ", ".join(f"{count} x {what}" for what, count in sorted(self.operators.items())),
            *(f"  {note}" for note in self.notes),
        ]
        for promise, findings in self.findings.items():
            lines.append(f"BROKEN: {promise}: {len(findings)} findings")
            lines += [f"  {finding}" for finding in findings[:_SHOWN]]
        if self.findings:
            lines.append(f"The ledger, the database and what the processes said are in {self.folder}. To see it again:")
            lines.append(
                f'  make soak MINUTES={self.seconds / 60:.1f} ARGS="--database {self.database} --seed {self.seed}"'
            )
        else:
            lines.append("  no promise broken")
        return "\n".join(lines)


class Soak:
    """One fleet under fire. `server` and `proxy` are there where the database is PostgreSQL."""

    def __init__(
        self,
        folder: Path,
        url: str,
        seed: int,
        *,
        workers: int,
        server: PostgresServer | None = None,
        proxy: Proxy | None = None,
        other_server: str | None = None,
    ) -> None:
        self._folder = folder
        self._url = url
        self._worker_url = proxy.url(url) if proxy else url
        self._server = server
        self._proxy = proxy
        self._size = workers
        self._seed = seed
        self._chance = random.Random(f"pace {seed}")
        self._kind = "sqlite" if server is None else "postgres"
        self._databases = [url, f"sqlite:///{folder}/other.db", *([other_server] if other_server else [])]
        self._clocks: list[Clock] = make_clocks(folder, 1 if server is None else 2)
        self.outcome = Outcome(self._kind, seed, folder)
        if not self._clocks:
            self.outcome.notes.append("clocks were not set: libfaketime is not there (apt-get install faketime)")
        self._environment = {
            "SOAK_KIND": self._kind,
            "SOAK_OTHER_FILE": self._databases[1],
            **({"SOAK_OTHER_SERVER": proxy.url(other_server)} if other_server and proxy else {}),
        }

    async def run(self, seconds: float) -> Outcome:
        """Keep the fleet busy and in trouble for so long, let it come to rest, and audit it."""
        os.environ.update(self._environment)  # the load imports the app that the workers execute, and must see the same
        os.environ[VARIABLE] = str(self._folder / "ledger")
        from tests.soak import rig as rigs  # noqa: PLC0415
        from tests.soak.app import app  # noqa: PLC0415  (it reads the environment)

        rig = rigs.Rig(
            self._folder,
            self._worker_url,
            self._url,
            self._seed,
            size=self._size,
            environment=self._environment,
            clocks=self._clocks,
        )
        rig.create_tables(self._databases)
        rig.disturb_with(self._server, self._proxy)
        try:
            with rig.workers.fleet:
                await rig.begin()
                began = time.monotonic()
                await self._under_fire(rig, began + seconds)
                await self._at_rest(rig)
                await rig.end()
                evidence = rig.evidence(self._databases)
                self._audit(evidence)
                self._count(rig)
                if self.outcome.findings:
                    evidence.keep()
                self.outcome.seconds = time.monotonic() - began
        finally:
            await asyncio.to_thread(app.close)
            rig.close()
        return self.outcome

    async def _under_fire(self, rig: Rig, until: float) -> None:
        began = told = time.monotonic()
        while (now := time.monotonic()) < until:
            await asyncio.sleep(self._chance.uniform(*_PAUSE))
            if rig.workers.version == "old" and now - began > (until - began) / 2:
                rig.workers.version = "new"
            await asyncio.to_thread(rig.workers.wait_for_most, _WORKERS_WITHIN)
            await asyncio.to_thread(rig.faults.one)
            if self._chance.random() < 0.5:
                await rig.operators.one()
            if now > told + _TELL_EVERY:
                told = now
                self._tell(
                    f"{now - began:.0f} s: {len(rig.load.started)} starts, {rig.watcher.backlog} runs unfinished"
                )

    async def _at_rest(self, rig: Rig) -> None:
        """No more faults, no more load: everything ends, and then all slots are free."""
        from tests.soak import rest  # noqa: PLC0415

        self.outcome.add("the load comes to its end", await rig.come_to_rest())
        left = await rest.drained(rig.store, rig.workers, _DRAIN)
        self.outcome.add("nothing waits that nothing will wake", left)
        self.outcome.add("doctor and db check say ok", [*rest.examined(self._url)])
        if not left:
            self.outcome.add("no slot is missing", await rest.all_slots_are_free(rig.workers, rig.ledger))
            self.outcome.add("export and load are equal", await rest.exported_and_loaded(rig.store, self._folder))

    def _audit(self, evidence: Evidence) -> None:
        from tests.soak.auditors import AUDITORS  # noqa: PLC0415

        for promise, audit in AUDITORS.items():
            try:
                self.outcome.add(promise, [*audit(evidence)])
            except Exception:  # noqa: BLE001  (one auditor that fails must not hide what the others find)
                self.outcome.add(promise, [f"the auditor itself failed:\n{traceback.format_exc()}"])
        self.outcome.figures = {
            "runs": len(evidence.runs),
            "recorded operations": sum(len(steps) for steps in evidence.steps.values()),
            "effects begun": len(evidence.ledger.of("begin")),
            "ticks": sum(tick.count for ticks in evidence.ticks.values() for tick in ticks),
            "transactions committed": len(evidence.user_rows),
            "recoveries": sum(run.recoveries for run in evidence.runs.values()),
        }

    def _tell(self, text: str) -> None:
        sys.stdout.write(f"  {text}\n")
        sys.stdout.flush()

    def _count(self, rig: Rig) -> None:
        self.outcome.faults = rig.faults.done
        self.outcome.operators = rig.operators.done
        self.outcome.figures |= {"refused calls repeated": rig.load.refused, "looks at the rows": rig.watcher.looks}
        self.outcome.add("an orderly stop ends in time", rig.faults.findings)
        self.outcome.add("keys and limits in the rows, at any moment", rig.watcher.findings)


async def soak(database: str, seconds: float, seed: int, *, workers: int = 3, fsync: bool = True) -> Outcome:
    """Soak one kind of database."""
    folder = Path(tempfile.mkdtemp(prefix=f"mainspring-soak-{database}-"))
    try:
        if database == "sqlite":
            outcome = await Soak(folder, f"sqlite:///{folder}/store.db", seed, workers=workers).run(seconds)
        else:
            with PostgresServer(fsync=fsync) as server, Proxy(server.url()) as proxy:
                url, other = server.create_database(), server.create_database()
                made = Soak(folder, url, seed, workers=workers, server=server, proxy=proxy, other_server=other)
                outcome = await made.run(seconds)
    except BaseException as error:
        error.add_note(f"seed {seed}; the ledger and what the processes said are in {folder}")
        raise
    if not outcome.findings:
        shutil.rmtree(folder)
    return outcome


def _leave(number: int, frame: object) -> None:
    del number, frame
    sys.exit(1)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--database", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument(
        "--seed", type=int, default=int(time.time()), help="which load and faults, not when exactly they come"
    )
    given = parser.parse_args(arguments)
    logging.getLogger("mainspring").setLevel(logging.CRITICAL)  # that the database goes away is no news here
    sys.stdout.write(f"{given.database}, seed {given.seed}, {given.minutes:g} minutes\n")
    sys.stdout.flush()
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGTERM, _leave)  # so that the processes are ended as well
    outcome = asyncio.run(soak(given.database, given.minutes * 60, given.seed, workers=given.workers))
    sys.stdout.write(f"{outcome}\n")
    return 1 if outcome.findings else 0


if __name__ == "__main__":
    sys.exit(main())
