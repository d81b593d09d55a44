"""An app whose functions fork. The parent returns the exit code of its child; the child leaves in every possible way."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
from typing import Any

from mainspring import App, Tx, run

app = App()


def fork(how: str) -> int:
    """In the parent: the exit code of the child."""
    pid = os.fork()
    if pid == 0:
        return leave(how)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def leave(how: str) -> int:
    if how == "exit":
        sys.exit(3)
    if how == "words":
        sys.exit("not good")
    if how == "raise":
        raise ValueError("the child's")
    if how == "outside":  # it is in no run, and a process like any other
        try:
            print(run.id)  # noqa: T201
        except Exception as error:  # noqa: BLE001
            print(type(error).__name__)  # noqa: T201
            plain.options(id="of the child").start.sync()
            sys.exit(5)
    return -1


@app.workflow
async def plain() -> str:
    return "plain"


@app.step
def def_step(how: str) -> int:
    return fork(how)


@app.step
async def async_step(how: str) -> int:
    if how == "await":
        pid = os.fork()
        if pid == 0:
            await asyncio.sleep(0)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])  # noqa: ASYNC222
    return fork(how)


@app.transaction
def def_transaction(tx: Tx, how: str) -> int:
    tx.execute("SELECT 1")
    return fork(how)


@app.workflow
def def_def(how: str) -> int:
    return def_step(how)


@app.workflow
async def async_def(how: str) -> int:
    return await def_step.aio(how)


@app.workflow
async def async_async(how: str) -> int:
    return await async_step(how)


@app.workflow
def def_body(how: str) -> int:
    return fork(how)


@app.workflow
async def async_body(how: str) -> int:
    return fork(how)


@app.workflow
def in_transaction(how: str) -> int:
    return def_transaction(how)


def square(number: int) -> int:
    return number * number


@app.step
def pooled() -> list[int]:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(square, range(4))


@app.workflow
def with_pool(how: str) -> Any:
    del how
    return pooled()
