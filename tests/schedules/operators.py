"""Operators against workers: several people do to schedules whatever comes to their minds, while workers fire them and are killed.

Workers are of two versions of the code, which declare some of the schedules: deploys go back and forth.
An auditor then looks at what is stored. `python -m tests.schedules.operators --minutes 5` looks for longer than the suite does.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from mainspring import Overlap, Policy, Settings, Spec
from mainspring.errors import Conflict, InvalidInput, NotFound
from mainspring.model.clock import to_datetime, to_micros
from mainspring.operations.connect import connect
from mainspring.operations.schedules.declared import Declared
from mainspring.schedules.actions import Action
from mainspring.schedules.definition import Definition, spec_json
from mainspring.store.open import open_store, sqlite_path
from tests.schedules.auditing import Acts, audit
from tests.schedules.operated import DECLARED, FOLDER, app, newer, undisturbed
from tests.support.postgres import PostgresServer
from tests.support.processes import Fleet, eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainspring.operations.connect import Operations
    from mainspring.schedules.control import Control
    from mainspring.store.protocol import Store
    from tests.support.processes import Process

VERSIONS = {"one": "tests.schedules.operated:app", "two": "tests.schedules.operated:newer"}
NAMES = [f"s{number}" for number in range(8)]
LASTING = 4
"""So many of them are never deleted, so that there is a history to look at."""
LEASE = 1.0
ANSWERS = (NotFound, Conflict, InvalidInput)
"""What an operator may be told."""
ROLLED_BACK = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)
"""What the owner of a transaction may be told."""


@dataclass
class Outcome:
    """What operators did, and what the auditor found."""

    database: str
    seed: int
    acts: Acts = field(default_factory=Acts)
    killed: int = 0
    found: Counter[str] = field(default_factory=Counter[str])
    faults: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        done = ", ".join(f"{count} {what}" for what, count in self.acts.done.most_common())
        found = ", ".join(f"{count} {what}" for what, count in self.found.items())
        faults = "".join(f"\n  FAULT {fault}" for fault in self.faults) or "; no fault"
        return f"{self.database}, seed {self.seed}: {done}; {self.killed} workers killed; {found}{faults}"


class Operator:
    """One person who changes schedules at random, on a thread of their own."""

    def __init__(self, operations: Operations, chance: random.Random, acts: Acts, url: str) -> None:
        self._operations = operations
        self._verbs = operations.schedules
        self._chance = chance
        self._acts = acts
        self._url = url

    def act(self) -> None:
        acts: dict[Callable[[str], None], int] = {
            self.create: 12,
            self.update_spec: 6,
            self.update_policy: 6,
            self.update_action: 2,
            self.pause: 5,
            self.resume: 8,
            self.trigger: 14,
            self.backfill: 8,
            self.stop_backfill: 4,
            self.skip: 6,
            self.unskip: 3,
            self.delete: 2,
            self.cancel: 4,
            self.revive: 3,
            self.look: 4,
            self.join: 4,
            self.reset: 4,
        }
        verb = self._chance.choices(list(acts), list(acts.values()))[0]
        name = verb.__name__
        try:
            verb(self._chance.choice(NAMES if verb == self.create else [*NAMES, *DECLARED]))
        except ANSWERS as error:
            name += f" ({type(error).__name__})"
        except Exception as error:  # noqa: BLE001  (whatever else an operator is told is a fault)
            self._acts.faults.append(f"{name}: {type(error).__module__}.{type(error).__name__}: {error}")
        self._acts.done[name] += 1

    # -- what to ask for -----------------------------------------------------------------------------------------------
    def _spec(self) -> Spec:
        pick = self._chance.choice
        return pick(
            [
                Spec(intervals=["1s"]),
                Spec(intervals=["2s"]),
                Spec(intervals=["3s/1s", "5s"]),
                Spec(intervals=["2s"], jitter="2s"),
                Spec(intervals=["5s"], jitter="4s"),
                Spec(),
            ]
        )

    def _policy(self) -> Policy:
        pick = self._chance.choice
        return Policy(
            pick(list(Overlap)),
            catchup=pick([10, "1m", None]),
            pause_on_failure=pick([0, 0, 0, 2]),
            limit=pick([None, None, None, 5]),
            max_running=pick([None, None, 1, 2]),
            buffer_limit=pick([None, 0, 3]),
            coalesce=pick([False, False, True]),
        )

    def _change(self, schedule: str, choose: Callable[[Control], Any]) -> None:
        """Change the definition, and remember from which nominal time on that holds."""
        plan = self._verbs._change(schedule, choose)
        if plan.redefined:
            row = plan.schedule
            self._acts.specs.append((row.id, row.created, row.revision, row.cursor, row.spec))

    # -- verbs ---------------------------------------------------------------------------------------------------------
    def create(self, name: str) -> None:
        chance = self._chance
        definition = Definition(name, "job", "{}", self._spec(), self._policy())
        now = to_datetime(self._operations.clock.now())
        spans = [(now - timedelta(seconds=20), now - timedelta(seconds=10))] if chance.random() < 0.2 else []
        info = self._verbs.create(
            definition, paused=chance.random() < 0.1, trigger=chance.random() < 0.3, backfill=spans
        )
        if info.revision == 1 and info.spec == definition.spec.to_dict():  # nobody was faster
            created = to_micros(info.created)
            self._acts.specs.append((name, created, 1, created, spec_json(definition.spec)))

    def update_spec(self, name: str) -> None:
        columns = Definition(name, "job", "{}", self._spec()).columns()
        values = {column: columns[column] for column in ("spec", "canonical")}
        self._change(name, lambda control: control.update(values, None, over=False))

    def update_policy(self, name: str) -> None:
        columns = Definition(name, "job", "{}", Spec(), self._policy()).columns()
        self._change(name, lambda control: control.update({"policy": columns["policy"]}, None, over=False))

    def update_action(self, name: str) -> None:
        other = self._chance.choice([name, f"{name}-other"])
        columns = Definition(name, "job", "{}", Spec(), action=Action(other)).columns()
        self._change(name, lambda control: control.update({"action": columns["action"]}, None, over=False))

    def reset(self, name: str) -> None:
        self._change(name, lambda control: control.reset())

    def pause(self, name: str) -> None:
        until = to_datetime(self._operations.clock.now()) + timedelta(seconds=1)
        self._verbs.pause(name, "a pause", until if self._chance.random() < 0.5 else None)

    def resume(self, name: str) -> None:
        self._verbs.resume(name)

    def trigger(self, name: str) -> None:
        tick = self._verbs.trigger(name, self._chance.choice([None, None, *Overlap]))
        self._acts.triggers.append((name, tick.request or "", tick.run))

    def backfill(self, name: str) -> None:
        chance, now = self._chance, to_datetime(self._operations.clock.now())
        start = now - timedelta(seconds=chance.choice([0, 2, 10, 30]))
        end = start + timedelta(seconds=chance.choice([0, 3, 12, 35]))
        overlap = chance.choice([None, Overlap.ALLOW_ALL, Overlap.BUFFER_ALL, Overlap.SKIP])
        self._verbs.backfill(name, start, end, overlap=overlap, again=chance.random() < 0.15)

    def stop_backfill(self, name: str) -> None:
        made = self._verbs.backfills(name)
        if made:
            assert self._verbs.stop_backfill(self._chance.choice(made[:3]).id).state != "running"

    def skip(self, name: str) -> None:
        self._verbs.skip(name)

    def unskip(self, name: str) -> None:
        self._verbs.unskip(name)

    def delete(self, name: str) -> None:
        if name in NAMES[LASTING:]:
            self._verbs.delete(name)

    def cancel(self, name: str) -> None:
        """Cancel a run that is promised or under way."""
        live = self._operations.runs.list(schedule=name, state=["scheduled", "queued", "waiting"], limit=3).runs
        if live:
            self._operations.runs.cancel([self._chance.choice(live).id], "asked")

    def revive(self, name: str) -> None:
        """Let a run go on that was cancelled or has failed."""
        ended = self._operations.runs.list(schedule=name, state=["cancelled", "failed"], limit=5).runs
        if ended:
            run = self._chance.choice(ended).id
            self._operations.runs.resume([run])
            self._operations.runs.retry([run])

    def look(self, name: str) -> None:
        self._verbs.list(due_before=to_datetime(self._operations.clock.now()))
        self._verbs.audit(name, to_datetime(self._operations.clock.now()) - timedelta(seconds=5))
        self._verbs.describe(name)

    def join(self, name: str) -> None:
        """Two verbs in a transaction that is committed or rolled back."""
        kept = self._chance.random() < 0.5
        postgres = self._url.startswith("postgres")
        made: Any = psycopg.connect(self._url) if postgres else sqlite3.connect(sqlite_path(self._url), timeout=30)
        with contextlib.closing(made) as mine:
            with app.joined(mine):
                try:
                    handle = app.schedules.trigger.sync(name)
                    if self._chance.random() < 0.5:
                        app.schedules.resume.sync(name)
                except ROLLED_BACK:
                    mine.rollback()
                    return
            (mine.commit if kept else mine.rollback)()
        if handle is not None:
            (self._acts.committed if kept else self._acts.rolled_back).append(handle.id)


class Play:
    """Workers, operators, and what becomes of it."""

    def __init__(self, folder: Path, url: str, outcome: Outcome, *, operators: int, workers: int) -> None:
        self._url = url
        self.outcome = outcome
        self._folder = folder
        self._fleet = Fleet(folder, url, lease=LEASE, poll=1, concurrency=50)
        self._fleet.quiet = True
        self._chance = random.Random(f"{outcome.seed}")
        self._operators = operators
        self._size = workers
        self._over = threading.Event()

    def run(self, seconds: float) -> None:
        store = open_store(self._url, Settings())
        store.open()
        app._runtime.url, app._runtime.settings = self._url, Settings(work=False)
        os.environ[FOLDER] = str(self._folder)
        try:
            self._declare_all(store)
            with self._fleet:
                workers = self._play(seconds)
                self._take_back(workers)
                self._come_to_rest(store)
                for worker in self._fleet.processes:
                    worker.send(signal.SIGTERM)
                    worker.wait()
                    self._listen(worker.output)
            with connect(self._url, Settings()) as operations:
                self.outcome.found, faults = audit(operations, store, self.outcome.acts, self._folder)
            self.outcome.faults += faults
        finally:
            del os.environ[FOLDER]
            app.close()
            store.close()

    def _declare_all(self, store: Store) -> None:
        """Both versions have been at work: the later one was seen later, and each schedule is there."""
        clock: Any = app._runtime.clock
        for each in (app, newer):
            store.remember_version(each.version, clock.now())
            declared = Declared(store, clock, each._runtime.ids, app=each.name, version=each.version)
            declared.apply(list(each._runtime.declarations), alone=True)
            for row in (store.schedules.get(name) for name in DECLARED):
                if row is not None:
                    self.outcome.acts.specs.append((row.id, row.created, row.revision, row.cursor, row.spec))

    def _take_back(self, workers: list[Process]) -> None:
        """Of the newer version none is left: the older one says what schedules are, with or without a start."""
        kept = [worker for worker in workers if "version    one" in worker.output] or [
            self._fleet.worker(VERSIONS["one"])
        ]
        for worker in self._fleet.processes:
            if worker not in kept and worker.alive:
                worker.send(signal.SIGTERM)
                worker.wait()

    def _play(self, seconds: float) -> list[Process]:
        workers = self._fleet.workers(self._size, VERSIONS["one"])
        threads = [threading.Thread(target=self._operate, args=(number,)) for number in range(self._operators)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + seconds
        try:
            while time.monotonic() < deadline:
                self._over.wait(self._chance.uniform(1, 4))
                with undisturbed(self._folder):
                    workers.pop(self._chance.randrange(len(workers))).kill()
                self.outcome.killed += 1
                workers.append(self._fleet.start_worker(VERSIONS[self._chance.choice(["one", "two"])]))
        finally:
            self._over.set()
            for thread in threads:
                thread.join()
        for worker in workers:
            worker.says("ready;")
        return workers

    def _operate(self, number: int) -> None:
        chance = random.Random(f"{self.outcome.seed}-{number}")
        with connect(self._url, Settings()) as operations:
            operator = Operator(operations, chance, self.outcome.acts, self._url)
            while not self._over.is_set():
                operator.act()
                self._over.wait(chance.choice([0, 0, 0.01, 0.05]))

    def _come_to_rest(self, store: Store) -> None:
        """Pause everything, stop all backfills, and wait until nothing is left: what was promised has its turn."""
        with connect(self._url, Settings()) as operations:
            verbs = operations.schedules
            for name in [row.id for row in verbs.list()]:
                verbs.pause(name, "the end")
                for backfill in verbs.backfills(name):
                    verbs.stop_backfill(backfill.id)

            def is_idle() -> bool:
                situations = [store.schedules.situation(row.id) for row in verbs.list()]
                waiting = any(each is not None and (each.waiting or each.runs) for each in situations)
                versions = {row.version for row in map(store.schedules.get, DECLARED) if row is not None}
                return not waiting and not sum(operations.runs.counts().values()) and versions == {"one"}

            with contextlib.suppress(AssertionError):  # the auditor says what is left
                eventually(is_idle, "all is at rest", within=90)  # a review is made once a minute

    def _listen(self, output: str) -> None:
        for words in ("Traceback", "cannot be planned", "failed; retrying"):
            if words in output:
                begin = output.index(words)
                self.outcome.faults.append(f"a worker says: {output[max(0, begin - 300) : begin + 2_000]}")


def play(database: str, seconds: float, seed: int, *, operators: int = 3, workers: int = 3) -> Outcome:
    """Let operators and workers play on one kind of database, and look at what they leave."""
    folder = Path(tempfile.mkdtemp(prefix="mainspring-operators-"))
    outcome = Outcome(database, seed)
    with contextlib.ExitStack() as stack:
        if database == "sqlite":
            url = f"sqlite:///{folder}/store.db"
        else:
            url = stack.enter_context(PostgresServer(fsync=False)).create_database()
        Play(folder, url, outcome, operators=operators, workers=workers).run(seconds)
    if not outcome.faults:
        shutil.rmtree(folder)
    return outcome


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5, help="altogether, for all databases")
    parser.add_argument("--database", choices=["sqlite", "postgres", "both"], default="both")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="who does what, not when exactly")
    given = parser.parse_args(arguments)
    logging.getLogger("mainspring").setLevel(logging.ERROR)
    databases = ["sqlite", "postgres"] if given.database == "both" else [given.database]
    good = True
    for database in databases:
        outcome = play(database, given.minutes * 60 / len(databases), given.seed)
        sys.stdout.write(f"{outcome}\n")
        sys.stdout.flush()
        good = good and not outcome.faults
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
