"""The threads on which `def` runs and `def` steps are executed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor


class ElasticPool(ThreadPoolExecutor):
    """A pool of a bounded number of threads, of which those that wait for a run do not count.

    The other run may need a thread of the same pool. A thread that was started in the place of a waiting one stays for later work.
    """

    def grow(self) -> None:
        """Let another thread start in the place of one that waits. Thread-safe."""
        with self._shutdown_lock:
            self._max_workers += 1
            if not self._shutdown and self._work_queue.qsize():
                self._adjust_thread_count()

    def shrink(self) -> None:
        """End a `grow`: the thread has stopped waiting. Thread-safe."""
        with self._shutdown_lock:
            self._max_workers -= 1
