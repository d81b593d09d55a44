"""Runs that talk: messages with and without keys, questions, events and streams."""

from __future__ import annotations

import contextlib
from typing import Any

from mainspring import Question, Retry, Tx, run
from mainspring.errors import NotAnswered, Refused, RunEnded
from tests.soak.functions.effects import act, app, effect, fail_if_planned
from tests.soak.functions.transactions import INSERT, OTHER_FILE

POST = "post"
"""The topic. A message is `[sender, number]`."""
LINES = "lines"
double = Question("double", int, int)

Post = list[Any]


# -- listeners -------------------------------------------------------------------------------------------------------------
@app.workflow
async def listener(total: int) -> list[Post]:
    """Receives so many messages; each is noted in the ledger by a step."""
    arrived: list[Post] = []
    for number in range(total):
        arrived.append(await run.receive(POST))
        if number % 4 == 3:
            await act(f"arrived {number}")
    return arrived


@app.workflow
def listener_blocking(total: int) -> list[Post]:
    return [run.receive.sync(POST) for _ in range(total)]


@app.workflow
async def reader(total: int, chapter: int, arrived: list[Post]) -> list[Post]:
    """Begins anew after each chapter: what was received before is not received again."""
    for _ in range(min(chapter, total - len(arrived))):
        arrived = [*arrived, await run.receive(POST)]
    await act(f"chapter {len(arrived)}")
    if len(arrived) < total:
        await run.continue_as(total, chapter, arrived)
    return arrived


@app.workflow
async def nobody_writes() -> str:
    """Waits for a message that comes when the soak is over: until then only an operator ends it."""
    await act("listens")
    word: str = await run.receive("at last")
    return word


# -- senders: each sends [its name, 0], [its name, 1] … to a listener ---------------------------------------------------------
@app.workflow
async def sender(name: str, to: str, count: int) -> None:
    for number in range(count):
        await app.send(to, POST, [name, number])
        if number % 3 == 1:
            await run.sleep(0.05)


@app.workflow
def sender_blocking(name: str, to: str, count: int) -> None:
    for number in range(count):
        app.send.sync(to, POST, [name, number])


@app.step(retry=Retry(4, first=0.05))
async def send_two(name: str, to: str, number: int) -> None:
    """Sends before it fails: its next attempt sends the same, which is not stored a second time."""
    with effect(f"send {number}") as outcome:
        for offset in range(2):
            await app.send(to, POST, [name, 2 * number + offset])
        fail_if_planned(outcome, number % 2)


@app.workflow
async def sender_by_steps(name: str, to: str, pairs: int) -> None:
    for number in range(pairs):
        await send_two(name, to, number)


def _send_in(tx: Tx, name: str, to: str, number: int) -> None:
    with effect(f"send {number}", transaction=True) as outcome:
        tx.execute(INSERT, (run.id, f"send {number}", outcome))
        app.send.sync(to, POST, [name, number])


@app.transaction
def send_committed(tx: Tx, name: str, to: str, number: int) -> None:
    _send_in(tx, name, to, number)


@app.transaction(database=OTHER_FILE)
def send_elsewhere(tx: Tx, name: str, to: str, number: int) -> None:
    _send_in(tx, name, to, number)


@app.workflow
async def sender_by_transactions(name: str, to: str, count: int, elsewhere: bool) -> None:
    for number in range(count):
        await (send_elsewhere if elsewhere else send_committed).aio(name, to, number)


# -- questions ---------------------------------------------------------------------------------------------------------------
@app.workflow
async def oracle(seconds: float) -> str:
    """Answers for a while; negative questions are refused."""

    def not_negative(value: int) -> None:
        if value < 0:
            raise ValueError("negative")

    async def answer(value: int) -> int:
        await act(f"answers {value}")
        return 2 * value

    run.answer(double, answer, validate=not_negative)
    await run.receive("enough", timeout=seconds)
    return "said enough"


@app.workflow
async def asker(to: str, values: list[int]) -> list[Any]:
    """Asks one after the other. None: the oracle had ended."""
    answers: list[Any] = []
    for value in values:
        found: Any = None
        try:
            found = await app.ask(to, double, value)
        except Refused:
            found = "refused"
        except (NotAnswered, RunEnded):
            found = None
        answers.append(found)
    return answers


# -- events and streams --------------------------------------------------------------------------------------------------------
@app.workflow
async def reporter(count: int) -> int:
    for number in range(count):
        await run.write_stream(LINES, number)
        if number % 3 == 0:
            await act(f"page {number}", "", 0.02)
        await run.set_event("progress", number)
    await run.close_stream(LINES)
    return count


@app.workflow
def reporter_blocking(count: int) -> int:
    for number in range(count):
        run.write_stream.sync(LINES, number)
        run.set_event.sync("progress", number)
        if number % 4 == 0:
            run.sleep.sync(0.05)
    run.close_stream.sync(LINES)
    return count


@app.workflow
async def follower(of: str) -> list[Any]:
    """What it reads of another run is recorded."""
    values: list[Any] = [value async for value in app.read_stream(of, LINES)]
    last: Any = None
    with contextlib.suppress(RunEnded):
        await app.handle(of).result()
        last = await app.get_event(of, "progress")
    return [values, last]
