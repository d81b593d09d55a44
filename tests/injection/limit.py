"""A limit in real time for one case. Virtual time cannot see a thread that waits for something real, or that never comes to a lock."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any

from tests.injection.threads import stacks

if TYPE_CHECKING:
    from collections.abc import Generator

_AGAIN = 2.0
"""Seconds until the next interruption: what is cleared away after the first one may hang as well."""


class Hung(KeyboardInterrupt):
    """The case took too long in real time. As an event loop passes on no other exception out of a callback, it is one of these."""


@contextlib.contextmanager
def limited(seconds: float) -> Generator[None]:
    """Raise `Hung` in the block when it takes longer. Signals are delivered to the main thread, so only that one can be limited."""
    assert threading.current_thread() is threading.main_thread()
    first: list[str] = []

    def interrupt(_number: int, _frame: Any) -> None:
        first.append(stacks())
        raise Hung(f"not at its end after {seconds:g} s of real time\n{first[0]}")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
