"""The threads on which `def` runs and `def` steps are executed."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("mainspring.engine")

_AGAIN_SECONDS = 1.0


class ElasticPool(ThreadPoolExecutor):
    """A pool of a bounded number of threads, of which those that wait for a run do not count.

    The other run may need a thread of the same pool. A thread that was started in the place of a waiting one stays for later work.

    Work waits while the system has no thread for it (a limit of the process or its container): it is not refused, because the pool has
    queued it already and a thread that is started later would execute it all the same.
    """

    call_later: Callable[[float, Callable[[], None]], object] | None = None
    """Calls a function after so many seconds. Thread-safe."""

    def grow(self) -> None:
        """Let another thread start in the place of one that waits. Thread-safe."""
        with self._shutdown_lock:
            self._max_workers += 1
            self._start_thread()

    def shrink(self) -> None:
        """End a `grow`: the thread has stopped waiting. Thread-safe."""
        with self._shutdown_lock:
            self._max_workers -= 1

    def _start_thread(self) -> None:
        """Start a thread for queued work. Call it with the lock held."""
        if not self._shutdown and self._work_queue.qsize():
            self._adjust_thread_count()

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError as error:
            if self.call_later is None:
                raise
            log.warning(
                "%s for %s: work waits for one of the %d that run", error, self._thread_name_prefix, len(self._threads)
            )
            if not self._threads:
                self.call_later(_AGAIN_SECONDS, self._try_again)

    def _try_again(self) -> None:
        with self._shutdown_lock:
            self._start_thread()
