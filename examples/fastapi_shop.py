"""A web app that takes orders and fulfils them: `uvicorn fastapi_shop:site --workers 4` in this folder.

Each of the four processes is a worker. The order is safe once the answer is sent, whichever process dies; the schedule fires once
per time, whichever of them notices first. The dashboard is at /ops.
"""

from __future__ import annotations

import os
from pathlib import Path

from fastapi import FastAPI

from mainspring import App, run
from mainspring.integrations.fastapi import lifespan, mount

app = App(os.environ.get("MAINSPRING_URL", "sqlite:///fastapi-shop.db"), name="shop")
site = FastAPI(title="shop", lifespan=lifespan(app))
mount(site, app, "/ops")


@app.workflow
async def fulfil(order: str) -> str:
    await run.sleep(0.2)
    return f"{order} is on its way"


@app.scheduled("* * * * * *")
@app.workflow
def beat() -> None:
    with Path("beats.txt").open("a", encoding="utf-8") as file:
        file.write(f"{run.id} {os.getpid()}\n")


@site.post("/orders/{order}")
async def take(order: str) -> dict[str, str]:
    handle = await fulfil.options(id=order).start(order)
    return {"run": handle.id}


@site.get("/orders/{order}")
async def show(order: str) -> dict[str, str]:
    return {"says": await app.handle(order).result(timeout=60)}
