"""What programs wait with, under a scheduler: locks, events, queues, threads, executors, sleeping and the event loop.

Each has the interface of the one in the standard library, as far as it is used. Every operation is a switch point before
it takes effect, and an operation that cannot go on leaves the choice to the other threads.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
from collections import deque
from concurrent.futures import Executor, Future
from pathlib import Path
from queue import Empty, Full
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from tests.interleavings.scheduler import Abort, Finding

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interleavings.scheduler import Controlled, Scheduler

T = TypeVar("T")
_OWN = frozenset({__file__, str(Path(__file__).parent / "patching.py")})


class _Primitive:
    """Knows where it was made, so that a trace says which lock is meant."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename in _OWN:
            frame = frame.f_back
        self._made = frame.f_code.co_filename, frame.f_lineno

    def __str__(self) -> str:
        file, line = self._made
        return f"{type(self).__name__} of {Path(file).name}:{line}"


class Lock(_Primitive):
    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self._held = False

    def _free(self) -> bool:
        return not self._held

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if blocking:
            if not self._scheduler.wait("acquire", self, self._free, None if timeout < 0 else timeout):
                return False
        else:
            self._scheduler.point("try", self)
            if self._held:
                return False
        self._held = True
        return True

    def release(self) -> None:
        self._scheduler.point("release", self)
        if not self._held:
            raise RuntimeError("release unlocked lock")
        self._held = False

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()


class RLock(_Primitive):
    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self._owner: Controlled | None = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = self._scheduler.me
        free: Callable[[], bool] = lambda: self._owner in {None, me}  # noqa: E731
        if blocking:
            if not self._scheduler.wait("acquire", self, free, None if timeout < 0 else timeout):
                return False
        else:
            self._scheduler.point("try", self)
            if not free():
                return False
        self._owner = me
        self._depth += 1
        return True

    def release(self) -> None:
        self._scheduler.point("release", self)
        if self._owner is not self._scheduler.me:
            raise RuntimeError("cannot release un-acquired lock")
        self.set_depth(self._depth - 1)

    def depth(self) -> int:
        return self._depth

    def set_depth(self, depth: int) -> None:
        self._depth = depth
        self._owner = self._scheduler.me if depth else None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()


class _Told:
    value = False

    def is_set(self) -> bool:
        return self.value


class Condition(_Primitive):
    """A condition. With `quiet`, only waiting is a switch point: for futures, whose own locking is nothing to explore."""

    def __init__(self, scheduler: Scheduler, lock: RLock | Lock | None = None, *, quiet: bool = False) -> None:
        super().__init__(scheduler)
        self._lock = lock or RLock(scheduler)
        self._quiet = quiet
        self._waiting: deque[_Told] = deque()
        self.release = self._lock.release

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        return self._lock.acquire(blocking, timeout)

    def __enter__(self) -> Any:
        return True if self._quiet else self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        if not self._quiet:
            self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        told = _Told()
        self._waiting.append(told)
        if self._quiet:
            return self._scheduler.wait("wait for", self, told.is_set, timeout)
        depth = self._lock.depth() if isinstance(self._lock, RLock) else 1
        if isinstance(self._lock, RLock):
            self._lock.set_depth(1)
        self._lock.release()
        try:
            found = self._scheduler.wait("wait for", self, told.is_set, timeout)
        finally:
            self._lock.acquire()
            if isinstance(self._lock, RLock):
                self._lock.set_depth(depth)
        if told in self._waiting:  # not if it was notified after its time was over
            self._waiting.remove(told)
        return found

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        until = None if timeout is None else self._scheduler.time + timeout
        result = predicate()
        while not result:
            left = None if until is None else until - self._scheduler.time
            if left is not None and left <= 0:
                break
            self.wait(left)
            result = predicate()
        return result

    def notify(self, n: int = 1) -> None:
        if not self._quiet:
            self._scheduler.point("notify", self)
        for _ in range(min(n, len(self._waiting))):
            self._waiting.popleft().value = True

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


class Event(_Primitive):
    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self._set = False

    def _is_set(self) -> bool:
        return self._set

    def is_set(self) -> bool:
        self._scheduler.point("look at", self)
        return self._set

    def set(self) -> None:
        self._scheduler.point("set", self)
        self._set = True

    def clear(self) -> None:
        self._scheduler.point("clear", self)
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        return self._scheduler.wait("wait for", self, self._is_set, timeout)


class Semaphore(_Primitive):
    def __init__(self, scheduler: Scheduler, value: int = 1) -> None:
        super().__init__(scheduler)
        self._value = value

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        if blocking:
            if not self._scheduler.wait("acquire", self, lambda: self._value > 0, timeout):
                return False
        else:
            self._scheduler.point("try", self)
            if self._value <= 0:
                return False
        self._value -= 1
        return True

    def release(self, n: int = 1) -> None:
        self._scheduler.point("release", self)
        self._value += n

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()


class SimpleQueue(_Primitive, Generic[T]):
    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self._items: deque[T] = deque()

    def _any(self) -> bool:
        return bool(self._items)

    def put(self, item: T, block: bool = True, timeout: float | None = None) -> None:
        del block, timeout  # there is always room
        self._scheduler.point("put into", self)
        self._items.append(item)

    def put_nowait(self, item: T) -> None:
        self.put(item)

    def get(self, block: bool = True, timeout: float | None = None) -> T:
        if not block:
            return self.get_nowait()
        if not self._scheduler.wait("get from", self, self._any, timeout):
            raise Empty
        return self._items.popleft()

    def get_nowait(self) -> T:
        self._scheduler.point("try to get from", self)
        if not self._items:
            raise Empty
        return self._items.popleft()

    def empty(self) -> bool:
        self._scheduler.point("look at", self)
        return not self._items

    def qsize(self) -> int:
        self._scheduler.point("look at", self)
        return len(self._items)


class Queue(SimpleQueue[T]):
    def __init__(self, scheduler: Scheduler, maxsize: int = 0) -> None:
        super().__init__(scheduler)
        self._maxsize = maxsize
        self._unfinished = 0

    def _room(self) -> bool:
        return self._maxsize <= 0 or len(self._items) < self._maxsize

    def put(self, item: T, block: bool = True, timeout: float | None = None) -> None:
        if block:
            if not self._scheduler.wait("put into", self, self._room, timeout):
                raise Full
        else:
            self._scheduler.point("try to put into", self)
            if not self._room():
                raise Full
        self._items.append(item)
        self._unfinished += 1

    def put_nowait(self, item: T) -> None:
        self.put(item, block=False)

    def task_done(self) -> None:
        self._scheduler.point("task done in", self)
        self._unfinished -= 1

    def join(self) -> None:
        self._scheduler.wait("join", self, lambda: not self._unfinished)


class Thread(_Primitive):
    """A thread of the program's, by its interface; a controlled thread once it is started."""

    def __init__(
        self,
        scheduler: Scheduler,
        target: Callable[..., object],
        name: str | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        super().__init__(scheduler)
        self.name = name or "thread"
        self.daemon = bool(daemon)
        self._work = lambda: target(*args, **(kwargs or {}))
        self._controlled: Controlled | None = None

    def __str__(self) -> str:
        return f"thread {self.name}"

    @property
    def ident(self) -> int | None:
        return None if self._controlled is None else self._controlled.carrier.ident

    def start(self) -> None:
        self._scheduler.point("start", self)
        if self._controlled is not None:
            raise RuntimeError("threads can only be started once")
        self._controlled = self._scheduler.start(self.name, self._work)

    def _ended(self) -> bool:
        return self._controlled is not None and not self._controlled.alive

    def is_alive(self) -> bool:
        self._scheduler.point("look at", self)
        return self._controlled is not None and self._controlled.alive

    def join(self, timeout: float | None = None) -> None:
        if self._controlled is None:
            self._scheduler.point("join", self)
        if self._controlled is None:
            raise RuntimeError("cannot join thread before it is started")
        if self._controlled is self._scheduler.me:
            raise RuntimeError("cannot join current thread")
        self._scheduler.wait("join", self, self._ended, timeout)


class ThreadPool(Executor):
    """An executor: a thread for each piece of work until there are `max_workers`, then the first that is free."""

    def __init__(self, scheduler: Scheduler, max_workers: int | None = None, thread_name_prefix: str = "pool") -> None:
        self._scheduler = scheduler
        self._most = max_workers or 8
        self._prefix = thread_name_prefix
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue(scheduler)
        self._threads: list[Thread] = []
        self._idle = 0
        self._pending: set[Future[Any]] = set()
        self._shut = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        if self._shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[T] = Future()
        self._pending.add(future)

        def work() -> None:
            self._pending.discard(future)
            if not future.set_running_or_notify_cancel():
                return
            try:
                value = fn(*args, **kwargs)
            except Abort:
                raise
            except BaseException as error:  # noqa: BLE001
                future.set_exception(error)
            else:
                future.set_result(value)

        self._work.put(work)
        if self._idle > 0:
            self._idle -= 1
        elif len(self._threads) < self._most:
            self._start_thread()
        return future

    def _start_thread(self) -> None:
        thread = Thread(self._scheduler, self._serve, f"{self._prefix}_{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        while True:
            work = self._work.get()
            if work is None:
                return
            work()
            self._idle += 1

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._scheduler.point("shut down", f"pool {self._prefix}")
        self._shut = True
        if cancel_futures:
            for future in list(self._pending):
                future.cancel()
        for _ in self._threads:
            self._work.put(None)
        if wait:
            for thread in self._threads:
                thread.join()


class _Selector(selectors.BaseSelector):
    """Instead of the operating system's: the loop waits for a wake-up from another thread, or for time to pass."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._keys: dict[Any, selectors.SelectorKey] = {}
        self.woken = False

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, fileobj if isinstance(fileobj, int) else fileobj.fileno(), events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            self._scheduler.point("next round of", "the loop")
        else:
            self._scheduler.wait("idle in", "the loop", lambda: self.woken, timeout)
        self.woken = False
        return []

    def get_map(self) -> dict[Any, selectors.SelectorKey]:
        return self._keys


class Loop(asyncio.SelectorEventLoop):
    """asyncio's own loop, but its clock, its waiting and its default executor are the scheduler's."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._select = _Selector(scheduler)
        super().__init__(self._select)
        self._pool = ThreadPool(scheduler, 8, "asyncio")
        self.set_exception_handler(self._complain)
        scheduler.loops.append(self)

    def time(self) -> float:
        return self._scheduler.time

    def _write_to_self(self) -> None:
        self._select.woken = True

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        self._scheduler.point("call into", "the loop")
        return super().call_soon_threadsafe(callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        return super().run_in_executor(executor or self._pool, func, *args)

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """As asyncio's own: the loop goes on until what its threads do is done."""
        del timeout
        over = self.create_future()

        def end() -> None:
            self._pool.shutdown(wait=True)
            self.call_soon_threadsafe(over.set_result, None)

        thread = Thread(self._scheduler, end, "end of asyncio's threads")
        thread.start()
        await over
        thread.join()

    def close(self) -> None:
        if not self.is_closed():
            self._pool.shutdown(wait=False)
        super().close()

    def _complain(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if "handle" in context and not isinstance(error, Abort):  # a callback of the program's has raised
            self._scheduler.fail(Finding("crash", f"{context['message']}: {error!r}"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
