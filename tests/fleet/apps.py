"""The app that the fleet's processes execute. Every step leaves a line in the ledger before it does anything else."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import time
from pathlib import Path
from typing import Any

from mainspring import App, run
from tests.support.ledger import Ledger

faulthandler.register(signal.SIGUSR1)
app = App()
ledger = Ledger.of_environment()
gates = Path(os.environ.get("FLEET_GATES", "."))


@app.step
async def note(step: str, value: int = 0) -> int:
    ledger.add(run.id, step, value)
    return value + 1


@app.step
def note_blocking(step: str, value: int = 0) -> int:
    ledger.add(run.id, step, value)
    return value + 1


@app.step
async def gate(name: str) -> int:
    """Goes on when the test opens the gate."""
    ledger.add(run.id, f"gate-{name}")
    while not (gates / f"gate-{name}").exists():  # noqa: ASYNC110  (another process opens it)
        await asyncio.sleep(0.01)
    ledger.add(run.id, f"passed-{name}")
    return os.getpid()


@app.step
def gate_blocking(name: str) -> int:
    ledger.add(run.id, f"gate-{name}")
    while not (gates / f"gate-{name}").exists():
        time.sleep(0.01)
    ledger.add(run.id, f"passed-{name}")
    return os.getpid()


@app.workflow
async def three_steps(number: int) -> int:
    """number + 3, each step adding one."""
    number = await note("one", number)
    number = await note("two", number)
    return await note("three", number)


@app.workflow
def three_blocking_steps(number: int) -> int:
    number = note_blocking("one", number)
    number = note_blocking("two", number)
    return note_blocking("three", number)


@app.workflow
async def gated(name: str) -> int:
    """Two steps, a gate, a step: with the gate closed, it stands in the middle."""
    await note("one")
    await note("two")
    await gate(name)
    await note("three")
    return os.getpid()


@app.workflow
def gated_blocking(name: str) -> int:
    note_blocking("one")
    note_blocking("two")
    gate_blocking(name)
    note_blocking("three")
    return os.getpid()


@app.workflow
async def sleeper(seconds: float) -> str:
    await note("one")
    await run.sleep(seconds)
    await note("two")
    return "rested"


@app.workflow
async def child(name: str) -> int:
    await gate(name)
    return os.getpid()


@app.workflow
async def parent(name: str) -> list[int]:
    """Its own pid and that of its child, which stands at a gate."""
    await note("one")
    pid = await child(name)
    await note("two")
    return [os.getpid(), pid]


@app.workflow
async def waits_for(run_id: str) -> list[int]:
    """Its own pid and the result of a run that somebody else started."""
    await note("one")
    pid: int = await app.handle(run_id).result()
    return [os.getpid(), pid]


@app.workflow
async def resting_parent() -> str:
    await note("one")
    return await sleeper(3600)


@app.workflow
async def cron_job(payload: dict[str, Any]) -> None:
    """A task for crontabs: the ledger shows for which times it was started."""
    await note(payload["_cron"]["ts"], payload.get("number", 0))


@app.step
async def die() -> None:
    ledger.add(run.id, "die")
    os._exit(3)


@app.workflow
async def poison() -> None:
    """Takes every process with it that touches it."""
    await note("one")
    await die()


@app.step
async def occupy(seconds: float) -> None:
    """Is there for a while: the ledger shows how many were at once."""
    ledger.add(run.id, "enter")
    await asyncio.sleep(seconds)
    ledger.add(run.id, "leave")


@app.step
def occupy_thread(seconds: float) -> None:
    ledger.add(run.id, "enter")
    time.sleep(seconds)
    ledger.add(run.id, "leave")


@app.workflow
async def occupant(seconds: float) -> int:
    await occupy(seconds)
    return os.getpid()


@app.workflow
def blocking_occupant(seconds: float) -> int:
    occupy_thread(seconds)
    return os.getpid()


@app.workflow
async def gossip(to: str, count: int) -> list[int]:
    """Says numbers to a run and awaits as many from another one. The ledger shows how far it has come."""
    arrived: list[int] = []
    for number in range(count):
        await app.send(to, "word", number)
        arrived.append(await run.receive("word"))
        if number % 5 == 0:
            ledger.add(run.id, "arrived", number)
    return arrived


# -- chains: each step says which outcome of the step before it was given, so that the ledger can be audited --------------
@app.step
async def link(branch: str, number: int, before: str) -> str:
    return forge(branch, number, before)


@app.step
def link_blocking(branch: str, number: int, before: str) -> str:
    return forge(branch, number, before)


def forge(branch: str, number: int, before: str) -> str:
    """An outcome that no other execution has, in the ledger before it is anywhere else."""
    token = f"{os.getpid()}-{time.monotonic_ns()}"
    ledger.add(run.id, f"{branch}.{number}", f"{token} {before}")
    return token


async def _links(branch: str, count: int) -> list[str]:
    tokens = ["start"]
    for number in range(count):
        tokens.append(await link(branch, number, tokens[-1]))
    return tokens[1:]


@app.workflow
async def chain(count: int) -> dict[str, list[str]]:
    return {"main": await _links("main", count)}


@app.workflow
def chain_blocking(count: int) -> dict[str, list[str]]:
    tokens = ["start"]
    for number in range(count):
        tokens.append(link_blocking("main", number, tokens[-1]))
        if number == 1:
            run.sleep.sync(0.05)
    return {"main": tokens[1:]}


@app.workflow
async def family(count: int) -> dict[str, list[str]]:
    """Two sequences at once, a sleep, a child that is called and one that is started."""
    started = await chain.start(count)
    left, right, _ = await asyncio.gather(_links("left", count), _links("right", count), run.sleep(0.1))
    await chain_blocking.aio(count)
    await started.result()
    return {"left": left, "right": right, "end": await _links("end", 1)}
