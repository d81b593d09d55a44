"""Orders that survive anything: `make story`.

Each order is a workflow: charge the card (the bank sometimes does not answer), reserve the goods and write the invoice side
by side, wait for the packing, hand the parcel over in a workflow of its own, say thank you. Stop this program with ^C, or with
kill -9 in the middle of anything, and start it again: every order goes on where it was.

Beside that, schedules with different policies start workflows by the clock. What becomes of each of their ticks is shown as it
happens, with the reason; what came up while nothing was running is made up for, or not, as each of them says.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sqlite3
import sys
from collections import Counter
from pathlib import Path

from mainspring import App, Handle, Overlap, Policy, Retry, Spec, TickInfo, run

DATABASE = Path("demo.db")
LEDGER = Path("demo-ledger.txt")
"""The world outside: each step that does something there adds a line. A step that was repeated would stand here twice."""

app = App(f"sqlite:///{DATABASE}")
pace = 1.0


@app.step(retry=Retry(5, first=0.5))
async def charge(order: str) -> str:
    await asyncio.sleep(0.4 * pace)
    if run.attempt == 1 and int(order.removeprefix("order-")) % 2 == 0:
        say(order, "step 1 of 6, charge: the bank does not answer, trying again")
        raise TimeoutError("the bank does not answer")
    return await act(order, 1, "charge")


@app.step
async def reserve(order: str) -> str:
    return await act(order, 2, "reserve")


@app.step
async def write_invoice(order: str) -> str:
    return await act(order, 3, "write_invoice")


@app.step
async def print_label(order: str) -> str:
    return await act(order, 4, "print_label")


@app.step
async def hand_over(order: str) -> str:
    return await act(order, 5, "hand_over")


@app.step
async def thank(order: str) -> str:
    return await act(order, 6, "thank")


@app.workflow
async def ship(order: str) -> str:
    await print_label(order)
    return await hand_over(order)


@app.workflow
async def fulfil(order: str) -> None:
    await charge(order)
    await asyncio.gather(reserve(order), write_invoice(order))
    await run.sleep(3 * pace)  # the packing: a durable timer, not a thread that waits
    await ship(order)
    await thank(order)


@app.workflow
async def count_stock() -> None:
    """Takes longer than the time to the next one."""
    await run.sleep(7)


@app.workflow
async def send_newsletter() -> None:
    await run.sleep(6)


@app.scheduled("*/10 * * * * *")  # each time exactly once, also those of a time when nothing was running
@app.workflow
async def write_books() -> None: ...


app.schedule("stock-count", count_stock.bind(), Spec(intervals=["5s"]), Policy(Overlap.SKIP))
app.schedule("newsletter", send_newsletter.bind(), Spec(intervals=["4s"]), Policy(Overlap.BUFFER_ONE, catchup="10s"))
SCHEDULES = ("stock-count", "newsletter", "write_books")


async def act(order: str, number: int, name: str) -> str:
    """Do something in the world outside that must not be done twice."""
    await asyncio.sleep(0.4 * pace)
    write_down(order, name)
    say(order, f"step {number} of 6, {name} … done")
    return f"{name} of {order}"


def write_down(order: str, name: str) -> None:
    with LEDGER.open("a", encoding="utf-8") as file:
        file.write(f"{order} {name}\n")


def ledger() -> list[tuple[str, str]]:
    """What really happened outside, as pairs of order and step."""
    lines = LEDGER.read_text("utf-8").splitlines() if LEDGER.exists() else []
    return [(order, name) for order, _, name in (line.partition(" ") for line in lines)]


def say(order: str, text: str) -> None:
    print(f"{order:<9} {text}", flush=True)


def done_before() -> dict[str, list[str]]:
    """The orders that are not finished, each with the steps that are. The tables are made to be read."""
    if not DATABASE.exists():
        return {}
    query = """
        SELECT o.id, s.name FROM mainspring_runs o
        LEFT JOIN mainspring_steps s ON (s.run = o.id OR s.run LIKE o.id || '/%') AND s.kind = 'step' AND s.output IS NOT NULL
        WHERE o.workflow = 'fulfil' AND o.state NOT IN ('succeeded', 'failed', 'cancelled') ORDER BY o.uid, s.completed
    """
    found: dict[str, list[str]] = {}
    with contextlib.closing(sqlite3.connect(DATABASE)) as database, contextlib.suppress(sqlite3.OperationalError):
        for order, step in database.execute(query):
            found.setdefault(order, []).extend([step] if step else [])
    return found


def tell_what_resumes() -> list[str]:
    before = done_before()
    for order, steps in before.items():
        *most, last = steps or ["nothing"]
        listed = f"{', '.join(most)} and {last} were" if most else f"{last} was"
        say(order, f"resumed: {listed} done before{', not repeated' if steps else ''}")
    return list(before)


async def follow(handle: Handle[None]) -> None:
    """Wait for an order and check it against the ledger."""
    await handle.result()
    counted = Counter(name for order, name in ledger() if order == handle.id)
    twice = [name for name, times in counted.items() if times > 1]
    # A process that dies between doing something and recording it does it again: at least once. Real services take
    # `run.step_key` as an idempotency key for that.
    verdict = (
        f"{', '.join(twice)} happened twice: killed before it was recorded" if twice else "each step happened once"
    )
    say(handle.id, f"finished; {verdict}")


async def show_ticks() -> None:
    """Say what becomes of each tick, once that is decided."""
    shown = {schedule: {mark(tick) for tick in (await app.schedules.ticks(schedule)).ticks} for schedule in SCHEDULES}
    while True:
        for schedule in SCHEDULES:
            for tick in reversed((await app.schedules.ticks(schedule)).ticks):
                if mark(tick) not in shown[schedule]:
                    shown[schedule].add(mark(tick))
                    times = f"{tick.nominal:%H:%M:%S}" + (f" and {tick.count - 1} more" if tick.count > 1 else "")
                    say("tick", f"{schedule} {times}: {tick.outcome}{f', {tick.reason}' if tick.reason else ''}")
        await asyncio.sleep(0.5)


def mark(tick: TickInfo) -> tuple[object, ...]:
    return tick.nominal, tick.request, tick.outcome


def introduce() -> None:
    command = os.path.relpath(Path(sys.executable).with_name("mainspring"))
    print(f"Orders that survive anything. Stop this with ^C or `kill -9 {os.getpid()}`, then start it again.")
    print(f"From another terminal:  {command} runs list --url {app.url}")
    print(f"                        {command} schedules show newsletter --url {app.url}\n", flush=True)


async def main(orders: int | None) -> None:
    introduce()
    resumed = tell_what_resumes()
    async with app:
        ticks = asyncio.create_task(show_ticks())
        followers = {asyncio.create_task(follow(app.handle(order))) for order in resumed}
        number = len({order for order, _ in ledger()})
        while orders is None or orders > 0:
            number += 1
            handle = await fulfil.options(id=f"order-{number}").start(f"order-{number}")
            if not handle.created:
                continue
            orders = None if orders is None else orders - 1
            say(handle.id, "new")
            followers.add(asyncio.create_task(follow(handle)))
            await asyncio.sleep(2 * pace)
        await asyncio.gather(*followers)
        ticks.cancel()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, help="new orders to start (default: until stopped)")
    parser.add_argument("--pace", type=float, default=1.0, help="seconds that the demo calls a second")
    given = parser.parse_args()
    pace = given.pace
    try:
        asyncio.run(main(given.orders))
    except KeyboardInterrupt:
        print("\nstopped; start it again and the unfinished orders go on")
