"""Blocking and awaiting: errors that spell the line to write instead."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from mainspring.errors import WrongColour

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from mainspring.engine.registry import Function


def on_running_loop() -> bool:
    """Whether this thread is executing an event loop right now."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def refuse_blocking_on_loop(instead: str) -> None:
    """Blocking here would stop everything else that the loop does, and wait for itself for ever."""
    if on_running_loop():
        raise WrongColour(f"this blocks, and here an event loop is running; write `{instead}` instead")


def named_after(function: Function, work: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
    """Give a coroutine the name of the user's function: Python says it of one that was never awaited."""
    work.__qualname__ = function.name  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    return work
