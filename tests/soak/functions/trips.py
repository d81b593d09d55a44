"""Workflows that undo what they did when they do not come to a good end: by an exception, a cancel, a timeout or a crash."""

from __future__ import annotations

from typing import Any

from mainspring import Retry, Tx, run
from tests.soak.functions.effects import Planned, act, act_blocking, app, blocking, effect, fail_if_planned, plain
from tests.soak.functions.transactions import INSERT

UNDONE = "~"
"""The label of a compensation is this and the label of what it undoes."""


@app.step
async def undo_step(label: str) -> str:
    with effect(UNDONE + label) as outcome:
        return outcome


@app.step(retry=Retry(4, first=0.05))
def undo_retried(label: str) -> str:
    """A compensation that takes more than one attempt."""
    with effect(UNDONE + label) as outcome:
        fail_if_planned(outcome, 1)
        return outcome


@app.transaction
def undo_transaction(tx: Tx, label: str) -> str:
    with effect(UNDONE + label, transaction=True) as outcome:
        tx.execute(INSERT, (run.id, UNDONE + label, outcome))
        return outcome


_COMPENSATIONS = (undo_step, undo_retried, undo_transaction)


@app.workflow
async def trip(plan: list[list[Any]]) -> list[str]:
    """Book one thing after the other, with pauses; all of it is undone unless the end is reached."""
    outcomes: list[str] = []
    async with run.undo() as undo:
        for number, (kind, value) in enumerate(plan):
            if kind == "sleep":
                await run.sleep(value)
            elif kind == "fail":
                raise Planned(f"trip {number}")
            else:
                step = act_blocking if kind == "book_blocking" else act
                label = f"book {number}"
                outcomes.append(await plain(step)(label, "", value))
                undo.push(_COMPENSATIONS[number % 3].bind(label))
    return outcomes


@app.workflow
def trip_blocking(plan: list[list[Any]]) -> list[str]:
    outcomes: list[str] = []
    with run.undo() as undo:
        for number, (kind, value) in enumerate(plan):
            if kind == "sleep":
                run.sleep.sync(value)
            elif kind == "fail":
                raise Planned(f"trip {number}")
            else:
                step = act_blocking if kind == "book_blocking" else act
                label = f"book {number}"
                outcomes.append(blocking(step)(label, "", value))
                undo.push(_COMPENSATIONS[number % 3].bind(label))
    return outcomes


@app.workflow
async def tour(plans: list[list[list[Any]]]) -> list[Any]:
    """Trips as children: cancelled with their parent, each undoes its own."""
    handles = await app.start_many(
        (trip if number % 2 else trip_blocking).bind(plan) for number, plan in enumerate(plans)
    )
    await run.sleep(1)
    return [handle.id for handle in handles]


TRIPS = frozenset({"trip", "trip_blocking"})
