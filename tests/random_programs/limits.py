"""Queues whose limits are changed while they work: at no moment more runs than a limit that held, at no time more starts than a rate."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from mainspring import Rate
from tests.random_programs.stage import Program

if TYPE_CHECKING:
    import random

    from mainspring import Client
    from tests.random_programs.stage import Stage

PER = 1.0
"""Seconds of the rate."""


class Limits(Program):
    name: ClassVar[str] = "limits"
    settings: ClassVar[dict[str, Any]] = {"lease": 3}

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.changes: dict[str, list[tuple[float, float, int]]] = {"wide": [], "fast": []}
        """By queue: when a limit was asked for, when it was acknowledged, what it is."""
        self.jobs: dict[str, str] = {}

    def prepare(self, client: Client) -> None:
        self._limit(client, "wide", 2)
        client.queues.set.sync("wide", partition_concurrency=1)
        self._limit(client, "fast", 3)

    def _limit(self, client: Client, queue: str, limit: int) -> None:
        asked, wall = time.monotonic(), time.time()
        if queue == "wide":
            client.queues.set.sync(queue, concurrency=limit)
            self.changes[queue].append((asked, time.monotonic(), limit))
        else:
            client.queues.set.sync(queue, rate=Rate(limit, per=PER))
            self.changes[queue].append((wall, time.time(), limit))

    def act(self, client: Client, chance: random.Random, actor: int) -> str:
        what = chance.random()
        if actor == 0:  # one changes limits, so that what holds when is known
            queue = chance.choice(["wide", "fast"])
            self._limit(client, queue, chance.randint(1, 5))
            self.stage.over.wait(0.4)
            return f"changed a limit of {queue}"
        if what < 0.1:
            client.queues.pause.sync("wide")
            client.queues.resume.sync("wide")
            return "paused and resumed"
        if what < 0.2 and self.jobs:
            victim = chance.choice([*self.jobs][-10:])
            client.runs.cancel.sync(victim)
            return "cancelled"
        queue = chance.choice(["wide", "fast"])
        run_id = f"{queue}-{actor}-{len(self.jobs)}"
        starter = client.options(id=run_id, queue=queue, partition=f"p{chance.randrange(4)}")
        length = chance.choice([0, 0.02, 0.1]) if queue == "wide" else 0
        starter.start.sync("occupant", length)
        self.jobs[run_id] = queue
        self.stage.over.wait(0.1)
        return f"started in {queue}"

    def finish(self, client: Client) -> None:
        client.queues.resume.sync("wide")
        client.queues.set.sync("wide", concurrency=5)
        client.queues.set.sync("fast", rate=None)

    def audit(self, client: Client) -> None:
        played = self.changes["wide"][-1][1], self.changes["fast"][-1][1]
        spans: dict[str, tuple[float, float]] = {}
        partitions: dict[str, str] = {}
        for entry in self.stage.fleet.ledger.entries():
            begin, end = spans.get(entry.run, (entry.at, entry.at))
            # One that is killed leaves its place when its lease is over: not looked at, as the next one comes then.
            spans[entry.run] = (
                (begin, end) if entry.pid in self.stage.deaths else (min(begin, entry.at), max(end, entry.at))
            )
        wide = {run: span for run, span in spans.items() if run.startswith("wide") and span[0] < played[0]}
        for run in wide:
            partitions[run] = client.runs.get.sync(run).partition
        for run, (begin, _) in wide.items():
            beside = [other for other, (a, b) in wide.items() if a <= begin < b or other == run]
            limit = self._most("wide", begin - self._longest(wide), begin)
            self.check(len(beside) <= limit, f"{len(beside)} at once at {begin}: {beside}, allowed {limit}")
            same = [other for other in beside if partitions[other] == partitions[run]]
            self.check(len(same) <= 1, f"{same} of one partition at once")
        starts = sorted(
            started
            for run, queue in self.jobs.items()
            if queue == "fast" and (started := client.runs.get.sync(run).started) is not None
        )
        starts = [at for at in starts if at.timestamp() < played[1]]
        for number, at in enumerate(starts):
            window = [each for each in starts[number:] if each - at < timedelta(seconds=PER)]
            limit = self._most("fast", at.timestamp() - PER, at.timestamp() + PER)
            self.check(
                len(window) <= limit, f"{len(window)} starts within {window[-1] - at} from {at}, allowed {limit}"
            )
        self.stage.outcome.done["runs"] = len(self.jobs)

    def _longest(self, spans: dict[str, tuple[float, float]]) -> float:
        """A run that began under a higher limit may still be there."""
        return max((end - begin for begin, end in spans.values()), default=0)

    def _most(self, queue: str, begin: float, end: float) -> int:
        """The highest limit that may have held at some moment of a span of time."""
        changes = self.changes[queue]
        held = [limit for asked, _, limit in changes if begin <= asked <= end]
        before = [limit for asked, _, limit in changes if asked < begin]
        late = [changes[n - 1][2] for n, (asked, done, _) in enumerate(changes) if n and begin <= done and asked <= end]
        return max([*held, *before[-1:], *late], default=99)
