"""The smallest durable program: kill it while it sleeps, start it again, and it goes on with the same receipt."""

from __future__ import annotations

import asyncio

from mainspring import App, Retry, run

app = App("sqlite:///quickstart.db")


@app.step(retry=Retry(3, first=0.1))
async def charge(order: str) -> str:
    print(f"charging {order}, attempt {run.attempt}")
    if run.attempt == 1:
        raise ConnectionError("the bank does not answer")
    return f"receipt for {order}"


@app.workflow
async def checkout(order: str) -> str:
    receipt = await charge(order)
    await run.sleep(1)
    return f"{receipt}, sent"


async def main() -> None:
    async with app:
        print(await checkout.options(id="order-7")("order-7"))


if __name__ == "__main__":
    asyncio.run(main())
