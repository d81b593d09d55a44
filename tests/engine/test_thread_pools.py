"""The pool of threads for `def` code: calls that wait for runs do not count, and a call that may execute has a thread."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING

import pytest

from mainspring.engine.residency.threads import ElasticPool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE = 10
"""Real seconds, until a call that does not begin counts as stuck."""


@pytest.fixture
def pool() -> Iterator[ElasticPool]:
    made = ElasticPool(1, "test")
    yield made
    made.shutdown(wait=True)


class Waiting:
    """A call that executes another one in the same pool and waits for it, and the most calls that executed at once."""

    def __init__(self, pool: ElasticPool) -> None:
        self._pool = pool
        self._executing = self.most = 0
        self._lock = threading.Lock()

    def __call__(self, call: Callable[[], str]) -> str:
        self._count(1)
        other = self._pool.submit(call)
        self._count(-1)
        self._pool.grow()
        try:
            return other.result(PATIENCE)
        finally:
            self._pool.shrink()

    def counted(self) -> str:
        self._count(1)
        time.sleep(0.001)  # another thread has the time to begin as well
        self._count(-1)
        return "done"

    def _count(self, change: int) -> None:
        with self._lock:
            self._executing += change
            self.most = max(self.most, self._executing)


def test_a_call_that_was_queued_may_wait_for_another_call(pool: ElasticPool) -> None:
    """The thread that executes it has been idle for no moment, although it has ended a call before."""
    begun, go_on = threading.Event(), threading.Event()

    def first() -> None:
        begun.set()
        go_on.wait(PATIENCE)

    waits = Waiting(pool)
    pool.submit(first)
    begun.wait(PATIENCE)
    queued = pool.submit(waits, lambda: "done")
    go_on.set()
    assert queued.result(PATIENCE) == "done"


def test_any_number_of_calls_may_wait_at_once(pool: ElasticPool) -> None:
    waits = Waiting(pool)

    def nested(depth: int) -> str:
        return waits(lambda: nested(depth - 1)) if depth else "done"

    futures = [pool.submit(nested, depth) for depth in range(6) for _ in range(5)]
    assert {future.result(PATIENCE) for future in futures} == {"done"}


def test_threads_that_were_started_for_waiting_calls_do_not_raise_the_bound(pool: ElasticPool) -> None:
    waits = Waiting(pool)
    for future in [pool.submit(waits, waits.counted) for _ in range(20)]:
        future.result(PATIENCE)
    counted = Waiting(pool)
    for future in [pool.submit(counted.counted) for _ in range(200)]:
        future.result(PATIENCE)
    assert counted.most == 1


def test_calls_that_have_not_begun_are_cancelled_by_a_shutdown(pool: ElasticPool) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def first() -> str:
        begun.set()
        go_on.wait(PATIENCE)
        return "done"

    ended, cancelled = pool.submit(first), pool.submit(first)
    begun.wait(PATIENCE)
    pool.shutdown(wait=False, cancel_futures=True)
    go_on.set()
    assert ended.result(PATIENCE) == "done"
    with pytest.raises(CancelledError):
        cancelled.result(PATIENCE)
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(first)


def test_calls_wait_while_the_system_has_no_thread(pool: ElasticPool, monkeypatch: pytest.MonkeyPatch) -> None:
    later: list[Callable[[], None]] = []
    pool.call_later = lambda _, look: later.append(look)
    start = threading.Thread.start

    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    future = pool.submit(lambda: "done")
    assert not future.done()
    later.pop()()
    monkeypatch.setattr(threading.Thread, "start", start)
    later.pop()()
    assert future.result(PATIENCE) == "done"
    assert later == []
