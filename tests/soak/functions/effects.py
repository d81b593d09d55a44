"""The app of the soak, and the effects that its steps have: lines in the ledger, before and after.

An execution of an effect has a token that no other execution has. Steps return `label|token`, so that what is recorded can be
compared with what was executed; each is given the outcome of the operation before it, which is recorded by then.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import itertools
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

from mainspring import App, Retry, run
from mainspring.engine.replay.context import here
from tests.soak.ledger import BEGIN, END, RAISE, Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

faulthandler.register(signal.SIGUSR1)
if "FAKETIME_TIMESTAMP_FILE" in os.environ:
    # libfaketime 0.9.10 breaks the absolute sleep that time.sleep makes of monotonic time, and nothing else that is used here.
    def _sleep(seconds: float) -> None:
        threading.Event().wait(seconds)

    time.sleep = _sleep  # type: ignore[assignment]

KIND = os.environ.get("SOAK_KIND", "sqlite")
"""The database under test."""
OLD = os.environ.get("SOAK_VERSION") == "old"
"""Whether this process has the code from before the deploy."""

app = App(name="soak")
ledger = Writer.of_environment()
_numbers = itertools.count()


class Planned(Exception):
    """A failure that belongs to the load."""


def new_token() -> str:
    return f"{os.getpid()}-{time.monotonic_ns()}-{next(_numbers)}"


@contextlib.contextmanager
def effect(label: str, before: str = "", **more: Any) -> Generator[str]:
    """An effect of the current step or transaction, in the ledger before and after. Its outcome is `label|token`."""
    where = here()
    execution = where.execution
    claim = {
        "token": new_token(),
        "epoch": execution.epoch,
        "attempt": run.attempt,
        "generation": execution.run.generation,
    }
    ledger.write(BEGIN, run.id, label, before=before, **claim, **more)
    try:
        yield f"{label}|{claim['token']}"
    except BaseException as error:
        ledger.write(RAISE, run.id, label, **claim, error=type(error).__name__)
        raise
    ledger.write(END, run.id, label, **claim)


def fail_if_planned(outcome: str, fails: int) -> None:
    """Attempts up to `fails` fail; the message names the execution."""
    if run.attempt <= fails:
        raise Planned(outcome)


# -- steps ---------------------------------------------------------------------------------------------------------------
async def _act(label: str, before: str, seconds: float, fails: int) -> str:
    with effect(label, before) as outcome:
        if seconds:
            await asyncio.sleep(seconds)
        fail_if_planned(outcome, fails)
        return outcome


def _act_blocking(label: str, before: str, seconds: float, fails: int) -> str:
    with effect(label, before) as outcome:
        if seconds:
            time.sleep(seconds)
        fail_if_planned(outcome, fails)
        return outcome


@app.step
async def act(label: str, before: str = "", seconds: float = 0, fails: int = 0) -> str:
    return await _act(label, before, seconds, fails)


@app.step
def act_blocking(label: str, before: str = "", seconds: float = 0, fails: int = 0) -> str:
    return _act_blocking(label, before, seconds, fails)


@app.step(retry=Retry(5, first=0.05, factor=3, cap=1.5, jitter=0.3))
async def act_retried(label: str, before: str = "", seconds: float = 0, fails: int = 0) -> str:
    return await _act(label, before, seconds, fails)


@app.step(retry=Retry(5, first=0.05, factor=3, cap=1.5, jitter=0.3))
def act_retried_blocking(label: str, before: str = "", seconds: float = 0, fails: int = 0) -> str:
    return _act_blocking(label, before, seconds, fails)


@app.step(retry=Retry(3, first=0.1), timeout=2)
async def act_timed(label: str, before: str = "", seconds: float = 0, fails: int = 0) -> str:
    """The attempts that are to fail take longer than they may."""
    with effect(label, before) as outcome:
        await asyncio.sleep(4 if run.attempt <= fails else seconds)
        return outcome


@app.step(interruptible=True)
async def act_interruptible(label: str, before: str = "", seconds: float = 0, fails: int = 0) -> str:
    return await _act(label, before, seconds, fails)


def adhoc(label: str, before: str) -> str:
    """A plain function, for steps without a name of their own."""
    return _act_blocking(label, before, 0, 0)


def by_name(functions: list[Any]) -> dict[str, Any]:
    """Functions by the name that programs call them by."""
    return {function.name: function for function in functions}


STEPS = by_name([act, act_blocking, act_retried, act_retried_blocking, act_timed, act_interruptible])


def plain(function: Any) -> Callable[..., Any]:
    """How an `async def` workflow calls a step of either colour."""
    found: Callable[..., Any] = function.aio if hasattr(function, "aio") else function
    return found


def blocking(function: Any) -> Callable[..., Any]:
    """How a `def` workflow calls a step of either colour."""
    found: Callable[..., Any] = function.sync if hasattr(function, "sync") else function
    return found
