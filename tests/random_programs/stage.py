"""Where a random program is played: workers that are killed, actors on threads, and what became of it."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import tempfile
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mainspring import Client
from mainspring.errors import Conflict, MainspringError, NotFound
from tests.support.postgres import PostgresServer
from tests.support.processes import Fleet, eventually

if TYPE_CHECKING:
    from collections.abc import Generator

APP = "tests.random_programs.played:app"
LEASE = 1.0
ANSWERS: tuple[type[MainspringError], ...] = (NotFound, Conflict)
"""What an actor may be told."""
_MOST_FAULTS = 6
_FEWEST_ACTS = 40
_QUIET = 90.0
"""Seconds within which everything must have come to its end once no actor acts."""


@dataclass
class Outcome:
    """What was done, and what the auditor found."""

    program: str
    database: str
    seed: int
    done: Counter[str] = field(default_factory=Counter[str])
    faults: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        done = ", ".join(f"{count} {what}" for what, count in self.done.most_common())
        faults = "".join(f"\n  FAULT {fault}" for fault in self.faults) or "; no fault"
        return f"{self.program} on {self.database}, seed {self.seed}: {done}{faults}"


class Program(ABC):
    """What one actor does, and what must hold at the end. Actors are threads with clients of their own; they share the program."""

    name: ClassVar[str]
    settings: ClassVar[dict[str, Any]] = {}
    actors: ClassVar[int] = 4
    pace: ClassVar[float] = 0.02
    """Seconds that an actor rests between two acts, at most."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def prepare(self, client: Client) -> None:
        """Before the first act."""
        del client

    @abstractmethod
    def act(self, client: Client, chance: random.Random, actor: int) -> str | None:
        """Do one thing; its name."""

    def finish(self, client: Client) -> None:
        """After the last act: let everything come to its end."""
        del client

    @abstractmethod
    def audit(self, client: Client) -> None:
        """Compare what was acknowledged with what is there. Workers are still there."""

    def fault(self, text: str) -> None:
        faults = self.stage.outcome.faults
        if len(faults) < _MOST_FAULTS:
            faults.append(text)

    def check(self, holds: bool, text: str) -> None:
        if not holds:
            self.fault(text)


class Stage:
    """One program on one database."""

    def __init__(self, folder: Path, url: str, outcome: Outcome, databases: Databases) -> None:
        self.folder, self.url, self.outcome, self.databases = folder, url, outcome, databases
        self.chance = random.Random(outcome.seed)
        self.over = threading.Event()
        self.deaths: dict[int, float] = {}
        self.fleet = Fleet(folder, url, lease=LEASE, poll=1, concurrency=50)
        self.fleet.quiet = True

    def play(self, program: Program, seconds: float, *, workers: int) -> None:
        self.fleet.settings = self.fleet.settings | program.settings
        with self.fleet, Client(self.url) as client:
            program.prepare(client)
            self._act(program, seconds, workers)
            program.finish(client)
            try:
                eventually(lambda: not sum(client.runs.counts.sync().values()), "everything has ended", _QUIET)
            except AssertionError:
                left = client.runs.list.sync(state=["scheduled", "queued", "running", "waiting", "cancelling"]).runs
                program.fault(f"not ended: {[(each.id, each.workflow, str(each.state)) for each in left[:5]]}")
            program.audit(client)
            self._listen(program)

    def _act(self, program: Program, seconds: float, workers: int) -> None:
        there = self.fleet.workers(workers, APP)
        threads = [threading.Thread(target=self._actor, args=(program, number)) for number in range(program.actors)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + seconds
        try:
            while time.monotonic() < deadline or self._too_little(deadline):
                self.over.wait(self.chance.uniform(0.5, 2))
                if not all("ready;" in worker.output for worker in there):
                    continue  # on a busy machine workers would be killed before they have done anything
                victim = there.pop(self.chance.randrange(len(there)))
                victim.kill()
                self.deaths[victim.pid] = time.monotonic()
                self.outcome.done["workers killed"] += 1
                there.append(self.fleet.start_worker(APP))
        finally:
            self.over.set()
            for thread in threads:
                thread.join()
        for worker in there:
            worker.says("ready;")

    def _too_little(self, deadline: float) -> bool:
        """On a busy machine little may have happened."""
        return sum(self.outcome.done.values()) < _FEWEST_ACTS and time.monotonic() < deadline + _QUIET

    def _actor(self, program: Program, number: int) -> None:
        chance = random.Random(f"{self.outcome.seed}-{number}")
        with Client(self.url) as client:
            while not self.over.is_set():
                try:
                    name = program.act(client, chance, number)
                except ANSWERS as answer:
                    name = type(answer).__name__
                except Exception:  # noqa: BLE001  (whatever else an actor is told is a fault)
                    name = "fault"
                    program.fault(f"actor {number} was told: {traceback.format_exc(limit=-4)}")
                if name is not None:
                    self.outcome.done[name] += 1
                self.over.wait(chance.uniform(0, program.pace))

    def _listen(self, program: Program) -> None:
        for worker in self.fleet.processes:
            if worker.pid in self.deaths:
                continue
            worker.send(signal.SIGTERM)
            worker.wait()
        for worker in self.fleet.processes:
            # That a run failed and is retried is what the programs ask for, and no more than information.
            said = "\n".join(line for line in worker.output.splitlines() if " INFO " not in line)
            for words in ("Traceback", "cannot be", "retrying"):
                if words in said:
                    begin = said.index(words)
                    program.fault(f"a worker says: {said[max(0, begin - 300) : begin + 2_000]}")
                    break


class Databases:
    """Fresh databases of both kinds."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server: PostgresServer | None = None
        self._stack = contextlib.ExitStack()
        self._made = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def new(self, kind: str) -> str:
        if kind == "postgres":
            self._server = self._server or self._stack.enter_context(PostgresServer(fsync=False))
            return self._server.create_database()
        self._made += 1
        return f"sqlite:///{self._folder}/store-{self._made}.db"


def play(program: type[Program], database: str, seconds: float, seed: int, *, workers: int = 2) -> Outcome:
    """Play a program on one kind of database, and look at what is left."""
    outcome = Outcome(program.name, database, seed)
    with _folder(outcome) as folder, Databases(folder) as databases:
        stage = Stage(folder, databases.new(database), outcome, databases)
        stage.play(program(stage), seconds, workers=workers)
    return outcome


@contextlib.contextmanager
def _folder(outcome: Outcome) -> Generator[Path]:
    made = Path(tempfile.mkdtemp(prefix="mainspring-random-"))
    try:
        yield made
    except BaseException as error:
        error.add_note(f"what the processes said is in {made}")
        raise
    if outcome.faults:
        outcome.faults.append(f"what the processes said is in {made}")
    else:
        shutil.rmtree(made)
