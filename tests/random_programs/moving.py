"""Export and load, across databases: what comes out of a copy is what went into it, and what had not ended goes on there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

from mainspring import Client
from tests.random_programs.stage import APP, Program
from tests.support.processes import Fleet, eventually

if TYPE_CHECKING:
    import random

    from tests.random_programs.stage import Stage

CHANGED = {"state", "owner", "due", "undo_reason", "completed"}
"""What loading may change of a run that has not ended."""
SLEEPS = 4
"""Numbers of `various` with this remainder sleep for an hour."""


class Moving(Program):
    name: ClassVar[str] = "moving"
    actors: ClassVar[int] = 3

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.started: list[str] = []
        self.exports: list[list[str]] = []

    def act(self, client: Client, chance: random.Random, actor: int) -> str:
        what = chance.random()
        if what < 0.4 or not self.started:
            number = len(self.started)
            run_id = f"m{actor}-{number}"
            after = chance.choice([0, 0, 0, 3600])
            attributes = {"n": number, "ä": "\u2028"}
            client.options(id=run_id, after=after, attributes=attributes).start.sync("various", number=number)
            self.started.append(run_id)
            return "started"
        victim = chance.choice(self.started)
        if what < 0.6:
            client.send.sync(victim, "go", None, key=chance.choice([None, "k"]))
            return "sent"
        if what < 0.7:
            client.runs.cancel.sync(victim)
            return "cancelled"
        if what < 0.75:
            client.runs.retry.sync(victim)
            return "retried"
        if what < 0.8:
            self.started.append(client.runs.fork.sync(victim).id)
            return "forked"
        lines = client.runs.export.sync(*chance.sample(self.started, min(len(self.started), 5)))
        self.exports.append(lines)
        return "exported"

    def finish(self, client: Client) -> None:
        """Copy everything as it is, while workers work: to the other kind of database and back."""
        other = "sqlite" if self.stage.outcome.database == "postgres" else "postgres"
        there, back = self.stage.databases.new(other), self.stage.databases.new(self.stage.outcome.database)
        lines = client.runs.export.sync(*self.started)
        with Client(there) as copy, Client(back) as again:
            copy.runs.load.sync(lines)
            copied = copy.runs.export.sync(*self.started)
            self._compare(lines, copied)
            again.runs.load.sync(copied)
            self.check(again.runs.export.sync(*self.started) == copied, "what came back is not what was there")
            self.stage.outcome.done["records"] = len(lines)
            self._go_on(copy, there)
            for part in self.exports[-20:]:
                self._alone(part)
        _release(client, self.started)

    def _compare(self, lines: list[str], copied: list[str]) -> None:
        ended: set[str] = set()
        self.check(len(lines) == len(copied), f"{len(lines)} records went in, {len(copied)} came out")
        for one, other in zip(map(json.loads, lines), map(json.loads, copied), strict=False):
            if one.get("table") == "runs" and one["state"] in {"succeeded", "failed", "cancelled"}:
                ended.add(one["id"])
            changed = {key for key in one.keys() | other.keys() if one.get(key) != other.get(key)}
            allowed: set[str] = CHANGED if one.get("table") == "runs" and one["id"] not in ended else set()
            self.check(changed <= allowed, f"{changed} of {one} is different in {other}")

    def _go_on(self, copy: Client, url: str) -> None:
        """What had not ended ends in the copy."""
        folder = self.stage.folder / "copy"
        folder.mkdir()
        with Fleet(folder, url, lease=1, poll=1) as fleet:
            fleet.quiet = True
            fleet.worker(APP)
            _release(copy, self.started)
            self._ends(copy, "the copy")

    def _alone(self, lines: list[str]) -> None:
        """Runs that were exported while they were executed can be loaded."""
        with Client(self.stage.databases.new("sqlite")) as client:
            loaded = client.runs.load.sync(lines)
            wanted = sum(json.loads(line).get("table") == "runs" for line in lines)
            self.check(loaded.new == wanted, f"{loaded} of {wanted} runs")

    def _ends(self, client: Client, where: str) -> None:
        try:
            eventually(lambda: not sum(client.runs.counts.sync().values()), "everything has ended", 90)
        except AssertionError:
            left = client.runs.list.sync(state=["scheduled", "queued", "running", "waiting", "cancelling"]).runs
            self.fault(f"not ended in {where}: {[(each.id, str(each.state), each.input) for each in left[:5]]}")

    def audit(self, client: Client) -> None:
        del client  # compared before
        self.stage.outcome.done["runs"] = len(self.started)


def _release(client: Client, ids: list[str]) -> None:
    """Send every run what it may wait for, and wake the others."""
    for run_id in ids:
        client.send.sync(run_id, "go", None)
    waits: Any = {"state": ["scheduled", "waiting"]}
    for run in client.runs.list.sync(limit=500, **waits).runs:
        if run.state == "scheduled" or (run.workflow == "various" and run.input["number"] % 8 == SLEEPS):
            client.runs.cancel.sync(run.id)
