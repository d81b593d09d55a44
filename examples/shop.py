"""A shop with everything in it, to be looked at: `make demo`, or `mainspring dev examples/shop.py`.

Orders come in every two seconds and take their way through a workflow with retries, parallel steps, a queue for mails, a child
workflow, a wait for a person who approves large ones and may ask what they cost with a discount, and a function that runs a month later. Beside that schedules with different
policies: one that takes longer than its interval, one that buffers, one that fails now and then, one that fails every time, one that
fans out to a child for each warehouse, one that runs at night in another part of the world.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, date
from typing import Literal

from mainspring import App, Calendar, Overlap, Policy, Question, Rate, Retry, Spec, Topic, run

app = App("sqlite:///shop.db", name="shop")
app.queue("mail", concurrency=2, rate=Rate(30, per="1m"))


@dataclass
class Approval:
    """What a person says about a large order."""

    approved: bool
    by: str
    delivery: Literal["standard", "express"] = "standard"


approval = Topic("approval", Approval)
discount = Question("discount", int, int)


@app.step(retry=Retry(5, first=0.5))
async def charge(order: str) -> str:
    await asyncio.sleep(0.3)
    if run.attempt == 1 and run.random().random() < 0.4:
        raise TimeoutError("the bank does not answer")
    return f"receipt of {order}"


@app.step
async def reserve(order: str) -> int:
    await asyncio.sleep(0.4)
    return len(order)


@app.step
async def write_invoice(order: str) -> str:
    await asyncio.sleep(0.2)
    return f"{order}.pdf"


@app.step
async def send_mail(to: str, text: str) -> str:
    await asyncio.sleep(0.5)
    return f"{to}: {text}"


@app.workflow
async def ship(order: str) -> str:
    await run.step("print label", asyncio.sleep, 0.2)
    await run.sleep(1)
    return f"{order} handed over"


@app.workflow
async def archive(order: str) -> None: ...


@app.workflow
async def fulfil(order: str, total: int) -> str:
    """Charge an order, have large ones approved, and ship it."""
    await run.set_event("progress", "charging")
    receipt = await charge(order)
    await asyncio.gather(reserve(order), write_invoice(order))
    await send_mail.options(queue="mail").start("ada@example.com", f"thank you: {receipt}")
    if total > 900:

        async def reduced(percent: int) -> int:
            return total - total * percent // 100

        run.answer(discount, reduced)
        await run.set_event("progress", "waits for approval")
        answer = await run.receive(approval, timeout="1h")
        if answer is None or not answer.approved:
            raise PermissionError(f"{order} was not approved")
    await run.sleep(2)
    await run.set_event("progress", "shipping")
    shipped = await ship(order)
    await app.run_after("30d", archive.bind(order))
    return shipped


@app.scheduled("*/2 * * * * *", mode="exactly_once_per_interval_when_active")
@app.workflow
async def take_orders() -> str:
    """A customer buys something."""
    tick = run.tick
    number = int(tick.nominal.astimezone(UTC).timestamp()) // 2 % 1_000_000 if tick is not None else 0
    total = run.random().randrange(5, 1_000)
    order = f"order-{number}"
    await fulfil.options(id=order, detached=True, attributes={"total": total}).start(order, total)
    return order


@app.workflow
async def count_stock() -> int:
    """Takes longer than the time to the next one."""
    await run.sleep(7)
    return 4711


@app.workflow
async def fetch_prices(source: str) -> int:
    if run.random().random() < 0.3:
        raise ConnectionError(f"{source} refused the connection")
    await run.sleep(0.5)
    return 42


@app.workflow
async def sync_ledger(account: str) -> None:
    """Fails every time: the page of its schedule says so."""
    await run.sleep(0.2)
    raise ConnectionError(f"ledger.example refused the login of {account}")


@app.workflow
async def count_shelf(warehouse: str, shelf: int) -> int:
    await run.sleep(0.5 + run.random().random() * 4)
    if shelf == 7 and warehouse == "north":
        raise ValueError(f"shelf {shelf} of {warehouse} has no barcode")
    return 100 * shelf


@app.workflow
async def take_inventory(warehouse: str, shelves: int = 12) -> int:
    """Counts all shelves of a warehouse, each in a child of its own."""
    counting = [await count_shelf.start(warehouse, shelf) for shelf in range(shelves)]
    found = 0
    for handle in counting:
        try:
            found += await handle.result()
        except ValueError:
            await run.set_event("problem", f"{handle.id} could not be counted")
    return found


@app.workflow
async def report(where: str) -> str:
    return f"the day in {where}"


app.schedule("stock-count", count_stock.bind(), Spec(intervals=["5s"]), Policy(Overlap.SKIP))
app.schedule("newsletter", ship.bind("newsletter"), Spec(intervals=["4s"]), Policy(Overlap.BUFFER_ONE, catchup="10s"))
app.schedule(
    "prices", fetch_prices.bind("exchange.example"), Spec(intervals=["6s"], jitter="2s"), note="fails now and then"
)
app.schedule("ledger", sync_ledger.bind("shop"), Spec(intervals=["20s"]), note="has failed since the password changed")
app.schedule("inventory", take_inventory.bind("north"), Spec(intervals=["45s"]), Policy(Overlap.SKIP))
app.schedule(
    "nightly-report",
    report.bind("Paris"),
    Spec(
        cron=["30 2 * * *"],
        timezone="Europe/Paris",
        exclude=[Calendar(month="12", day_of_month="25"), date(2027, 1, 1)],
    ),
    Policy(catchup="6h", pause_on_failure=True),
)
