"""A shop with everything in it, to be looked at: `make demo`, or `mainspring dev examples/shop.py`.

Orders come in every two seconds and take their way through a workflow with retries, parallel steps, a queue for mails, a child
workflow, a wait for a person and a function that runs a month later. Beside that schedules with different policies: one that takes
longer than its interval, one that buffers, one that fails now and then, one that runs at night in another part of the world.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, date

from mainspring import App, Calendar, Overlap, Policy, Rate, Retry, Spec, run

app = App("sqlite:///shop.db", name="shop")
app.queue("mail", concurrency=2, rate=Rate(30, per="1m"))


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
    await run.set_event("progress", "charging")
    receipt = await charge(order)
    await asyncio.gather(reserve(order), write_invoice(order))
    await send_mail.options(queue="mail").start("ada@example.com", f"thank you: {receipt}")
    if total > 900:
        await run.set_event("progress", "waits for somebody to approve it")
        if await run.receive("approved", timeout="1h") is None:
            raise TimeoutError(f"nobody approved {order}")
    await run.sleep(2)
    await run.set_event("progress", "shipping")
    shipped = await ship(order)
    await app.run_after("30d", archive.bind(order))
    return shipped


@app.scheduled("*/2 * * * * *", mode="exactly_once_per_interval_when_active")
@app.workflow
async def take_orders() -> str:
    """Somebody buys something."""
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
async def report(where: str) -> str:
    return f"the day in {where}"


app.schedule("stock-count", count_stock.bind(), Spec(intervals=["5s"]), Policy(Overlap.SKIP))
app.schedule("newsletter", ship.bind("newsletter"), Spec(intervals=["4s"]), Policy(Overlap.BUFFER_ONE, catchup="10s"))
app.schedule(
    "prices", fetch_prices.bind("exchange.example"), Spec(intervals=["6s"], jitter="2s"), note="fails now and then"
)
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
