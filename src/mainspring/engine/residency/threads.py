"""The threads on which `def` runs and `def` steps are executed."""

from __future__ import annotations

import logging
import threading
from collections import deque
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("mainspring.engine")

P = ParamSpec("P")
T = TypeVar("T")
_Work = tuple["Future[Any]", "Callable[[], Any]"]

_AGAIN_SECONDS = 1.0
_NO_THREAD = "can't start new thread"
"""What CPython says where the system refuses a thread. `ThreadPoolExecutor` raises the same class after a shutdown."""
_MOST_THREADS = 1_000_000
"""More than a process can have: `ElasticPool` decides how many calls execute at once."""


class ElasticPool(Executor):
    """A pool that executes a bounded number of calls at once, not counting those that wait for a run.

    The other run may need a thread of the same pool. So the calls are counted here, and `ThreadPoolExecutor` only lends threads: with a
    bound of its own, it may believe that a thread is idle which has just begun to execute a queued call, and start no other one.

    Calls wait while the system has no thread for them (a limit of the process or its container).
    """

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._threads = ThreadPoolExecutor(_MOST_THREADS, name)
        self._lock = threading.Lock()
        self._queued: deque[_Work] = deque()
        self._executing = 0
        """Calls that have a thread, or are about to get one, and do not wait for a run."""
        self._closed = self._cancelled = False
        self.call_later: Callable[[float, Callable[[], None]], object] | None = None
        """Calls a function after so many seconds. Thread-safe."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Execute a call as soon as there is a thread for it. Raises `RuntimeError` after `shutdown`. Thread-safe."""
        future: Future[T] = Future()
        work = future, partial(fn, *args, **kwargs)
        with self._lock:
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            if self._executing < self._size:
                self._lend_thread(work)
            else:
                self._queued.append(work)
        return future

    def grow(self) -> None:
        """Let another call execute in the place of one that waits. Thread-safe."""
        with self._lock:
            self._executing -= 1
            if self._queued and not self._closed and self._executing < self._size:
                self._lend_thread(self._queued.popleft())

    def shrink(self) -> None:
        """End a `grow`: the call has stopped waiting, and goes on at once. Thread-safe."""
        with self._lock:
            self._executing += 1

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002  (as `Executor` has it)
        """Refuse new calls. `cancel_futures`: calls that have not begun do not begin. `wait`: return when the others have ended."""
        with self._lock:
            self._closed = True
            self._cancelled = self._cancelled or cancel_futures
            unbegun = list(self._queued) if cancel_futures else []
            if cancel_futures:
                self._queued.clear()
        for future, _ in unbegun:
            future.cancel()
        self._threads.shutdown(wait)

    def _lend_thread(self, work: _Work) -> None:
        """Execute a call on a thread. Call it with the lock held."""
        try:
            self._threads.submit(self._serve, work)
        except RuntimeError as error:
            if self.call_later is None or _NO_THREAD not in str(error):
                raise
            # The executor has queued the call: a thread that becomes idle, or is started later, executes it.
            log.warning("%s for %s; calls wait until one of its running threads is idle", error, self._name)
            self.call_later(_AGAIN_SECONDS, self._try_again)
        self._executing += 1

    def _try_again(self) -> None:
        """Start a thread for a call that got none, unless a thread has become idle since."""
        with self._lock:
            if not self._closed:
                try:
                    self._threads.submit(_nothing)
                except RuntimeError:
                    if self.call_later is not None:
                        self.call_later(_AGAIN_SECONDS, self._try_again)

    def _serve(self, work: _Work) -> None:
        """Execute a call on this thread, and then queued ones while there are any."""
        while True:
            self._execute(*work)
            with self._lock:
                if not self._queued or self._executing > self._size:
                    self._executing -= 1
                    return
                work = self._queued.popleft()

    def _execute(self, future: Future[Any], call: Callable[[], Any]) -> None:
        if self._cancelled:
            future.cancel()
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001  (the caller gets it)
            future.set_exception(error)
        else:
            future.set_result(result)


def _nothing() -> None:
    """A call that makes the executor start a thread, if it has none that is idle."""
