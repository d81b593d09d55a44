"""The app whose schedules operators change at random: see `operators.py`. How long a run takes and how it ends is in its id.

There are two versions of it, which declare schedules differently, so that deploys go back and forth. Their workers write down what
they declared, because only the process that makes such a change knows all of it.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from mainspring import App, Overlap, Policy, Spec, run
from mainspring.operations.schedules.declared import Declaring

if TYPE_CHECKING:
    from collections.abc import Generator

    from mainspring.model.schedules import Schedule
    from mainspring.store.schedules import Decide, Plan, Situation

FOLDER = "OPERATED_FOLDER"
DECLARED = ["d0", "d1", "d2", "d3"]


def make(version: str) -> App:
    """The app in one of its versions, "one" or "two"."""
    made = App(version=version)

    @made.workflow
    async def job() -> str:
        chance = random.Random(run.id)
        await run.sleep(chance.choice([0, 0, 0, 0.1, 0.4, 1.5]))
        if chance.random() < 0.1:
            raise ValueError("not this time")
        return "done"

    older = version == "one"
    made.schedule("d0", job.bind(), Spec(intervals=["1s" if older else "2s"]), Policy(Overlap.ALLOW_ALL), note=version)
    made.schedule("d1", job.bind(), Spec(intervals=["2s"], jitter="2s"), Policy(Overlap.BUFFER_ALL))  # the same in both
    made.schedule("d2" if older else "d3", job.bind(), Spec(intervals=["3s"]), Policy(Overlap.SKIP))
    return made


app, newer = make("one"), make("two")


@contextmanager
def undisturbed(folder: Path, how: int = fcntl.LOCK_EX) -> Generator[None]:
    """Nobody is killed between what a worker declares and the line that it writes about it."""
    with (folder / "declaring").open("a") as lock:
        fcntl.flock(lock, how)
        yield


def written(folder: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """What workers have declared: schedules before and after."""
    file = folder / "declared.jsonl"
    return [tuple(json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []


def _write_down(folder: Path) -> None:
    real = Declaring.change

    def change(self: Declaring, schedule: str, decide: Decide) -> Plan | None:
        before: list[Schedule] = []

        def seen(situation: Situation) -> Plan:
            before[:] = [situation.schedule]
            return decide(situation)

        with undisturbed(folder, fcntl.LOCK_SH):
            plan = real(self, schedule, seen)
            if plan is not None and plan.redefined:
                line = json.dumps([asdict(before[0]), asdict(plan.schedule)])
                with (folder / "declared.jsonl").open("a") as file:
                    file.write(f"{line}\n")
        return plan

    Declaring.change = change  # type: ignore[method-assign]


if FOLDER in os.environ:
    _write_down(Path(os.environ[FOLDER]))
