"""Waits outside of runs: for the end of a run, or for what the run publishes."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import threading
from typing import TYPE_CHECKING, Any, Self

from mainspring.engine.effects import failure_of
from mainspring.errors import MainspringError, NotFound, StillRunning, StoreError, StoreUnavailable
from mainspring.model.states import State
from mainspring.recurrence.durations import micros
from mainspring.store.sealing.payloads import readable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from mainspring.app.functions.options import Duration
    from mainspring.codec import ValueCodec
    from mainspring.model.clock import Alarm, Clock
    from mainspring.model.runs import Ending
    from mainspring.store.changes import Signal

    Watcher = Callable[[Ending | MainspringError | None], None]

    Found = dict[str, Ending | None]

    Asker = tuple[str, asyncio.Future[Found]]

log = logging.getLogger("mainspring.app")


class Endings:
    """The runs whose end this process waits for. One thread looks up all of them when some may have ended."""

    def __init__(
        self,
        ask: Callable[[Iterable[str]], dict[str, Ending | None]],
        poll: float,
        has_workers: Callable[[], bool] | None = None,
    ) -> None:
        """`has_workers` returns whether there is a worker; with None no warning is given."""
        self._ask = ask
        self._poll = poll
        self._has_workers = has_workers
        self._lock = threading.Lock()
        self._watched: dict[str, list[Watcher]] = {}
        self._ended: set[str] = set()
        """The watched runs that have ended, as notified since the last lookup."""
        self.resolved_here: Callable[[str], bool] = lambda _run_id: False
        """Whether this process will call `resolve` for a run itself, so that no lookup is needed."""
        self._look = threading.Event()
        self._closing = False
        self._started = False
        self._thread: threading.Thread | None = None

    def watch(self, run_id: str, notify: Watcher) -> None:
        """Call `notify`, on any thread, with the run's ending, with None if there is no such run, or with an error that ends
        the wait. Ends with `unwatch`.
        """
        with self._lock:
            closing = self._closing
            if not self._started:
                self._start()
                self._started = True
            if not closing:
                self._watched.setdefault(run_id, []).append(notify)
        if closing:
            notify(_closed())

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="mainspring-endings", daemon=True)
        thread.start()  # raises if the process may have no more
        self._thread = thread

    def unwatch(self, run_id: str, notify: Watcher) -> None:
        with self._lock:
            watchers = self._watched.get(run_id)
            if watchers is not None and notify in watchers:
                watchers.remove(notify)
                if not watchers:
                    del self._watched[run_id]

    def resolve_all(self, endings: Sequence[Ending]) -> None:
        """Notify the watchers of runs that have ended in this process."""
        for ending in endings if self._watched else ():
            self.resolve(ending.id, ending)

    def resolve(self, run_id: str, ending: Ending | None) -> None:
        """Notify the watchers of a run of its ending. A caller that begins to wait now asks the database first."""
        if run_id not in self._watched:
            return
        with self._lock:
            watchers = self._watched.pop(run_id, [])
        for notify in watchers:
            with contextlib.suppress(RuntimeError):  # the loop of the watcher is closed, and the watcher with it
                notify(ending)

    @property
    def watched(self) -> list[str]:
        """The runs that are watched now."""
        with self._lock:
            return list(self._watched)

    def fail(self, error: MainspringError) -> None:
        """Fail every current wait with an error."""
        with self._lock:
            watchers = [notify for found in self._watched.values() for notify in found]
            self._watched.clear()
        for notify in watchers:
            notify(error)

    def look(self, ended: frozenset[str] | None = None) -> None:
        """Look up the watched runs that may have ended, after a notification of ended runs. None: all of them may have."""
        with self._lock:
            watched = self._watched.keys()
            found = (
                watched if ended is None else {run_id for run_id in ended & watched if not self.resolved_here(run_id)}
            )
            self._ended.update(found)
        if found:
            self._look.set()

    def close(self) -> None:
        """Stop looking up runs, and fail the present and later waits: no notification would ever reach them."""
        with self._lock:  # `watch` starts no thread from here on
            self._closing = self._started = True
        self._look.set()
        if self._thread is not None:
            self._thread.join()
        self.fail(_closed())

    def _run(self) -> None:
        while True:
            notified = self._look.wait(self._poll)
            self._look.clear()
            if self._closing:
                return
            if not notified:
                self.look()
            self.ask_once()
            if not notified:
                self._warn_if_there_is_no_worker()

    def _warn_if_there_is_no_worker(self) -> None:
        """Warn once if there is no worker: the wait would never end."""
        with self._lock:
            awaited = next(iter(self._watched), None)
        if self._has_workers is None or awaited is None:
            return
        try:
            there = self._has_workers()
        except StoreError:
            return
        self._has_workers = None
        if not there:
            log.warning(
                "this process waits for run %s, and there is no worker to execute it: enter the app in this process (`async with app:` "
                "or `with app:`), or start one with `mainspring worker module:app`",
                awaited,
            )

    def ask_once(self) -> None:
        """Look up the runs that may have ended, and notify their watchers."""
        with self._lock:
            wanted = [run_id for run_id in self._ended if run_id in self._watched]
            self._ended.clear()
        if not wanted:
            return
        try:
            found = self._ask(wanted)
        except StoreError as error:
            log.warning("could not query whether the awaited runs have ended; retrying: %s", error)
            return
        for run_id in wanted:
            if run_id not in found:
                self.resolve(run_id, None)
            elif (ending := found[run_id]) is not None:
                self.resolve(run_id, ending)


def _closed() -> StoreUnavailable:
    return StoreUnavailable(
        "the app was closed while this call waited for a run; nothing was done to the run: wait for it again from an app that is open"
    )


class EndingLookups:
    """Joins the lookups of all coroutines that begin to wait in one turn of the loop into one query on one thread."""

    def __init__(self, ask: Callable[[set[str]], Awaitable[Found]], clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._gathering: dict[asyncio.AbstractEventLoop, list[Asker]] = {}
        self._asking: set[asyncio.Task[None]] = set()

    async def at(self, run_id: str) -> Found:
        """Look up a run's ending: None if it has not ended, no entry if there is no such run. Other runs may be included."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Found] = loop.create_future()
        askers = self._gathering.get(loop)
        if askers is not None:
            askers.append((run_id, answer))
        else:
            self._gathering[loop] = [(run_id, answer)]
            self._clock.busy()
            task = loop.create_task(self._look(loop), context=contextvars.Context())
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
        return await answer

    async def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look up all runs requested in the last turn of the loop. Wall-clock time does not pass until it is done."""
        askers = self._gathering.pop(loop)
        try:
            found = await self._ask({run_id for run_id, _ in askers})
        except Exception as error:  # noqa: BLE001  (whatever fails, no caller may wait for ever)
            for _, answer in askers:
                if not answer.done():
                    answer.set_exception(error)
        else:
            for _, answer in askers:
                if not answer.done():
                    answer.set_result(found)
        finally:
            self._clock.idle()


class Awaited:
    """One coroutine's wait for one run. The context yields a future of the run's end, which fails after the timeout."""

    def __init__(self, endings: Endings, clock: Clock, run_id: str, timeout: Duration | None) -> None:
        self._endings = endings
        self._clock = clock
        self._run_id = run_id
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._ended: asyncio.Future[Ending | None] = self._loop.create_future()

    def __enter__(self) -> asyncio.Future[Ending | None]:
        clock = self._clock
        self._endings.watch(self._run_id, self._notify)
        until = None if self._timeout is None else clock.now() + micros(self._timeout)
        self._alarm = None if until is None else clock.call_at(until, self._loop, self._give_up)
        clock.waiting(1)
        return self._ended

    def __exit__(self, *exc: object) -> None:
        self._clock.waiting(-1)
        self._endings.unwatch(self._run_id, self._notify)
        if self._alarm is not None:
            self._alarm.cancel()
        if self._ended.done() and not self._ended.cancelled():
            self._ended.exception()

    def _notify(self, ending: Ending | MainspringError | None) -> None:
        if threading.get_ident() == self._thread:
            self._resolve(ending)
        else:
            self._loop.call_soon_threadsafe(self._resolve, ending)

    def _resolve(self, ending: Ending | MainspringError | None) -> None:
        if self._ended.done():
            return
        if isinstance(ending, MainspringError):
            self._ended.set_exception(ending)
        else:
            self._ended.set_result(ending)

    def _give_up(self) -> None:
        if not self._ended.done():
            self._ended.set_exception(
                StillRunning(
                    f"run {self._run_id!r} had not ended after {_length(self._timeout)}; only the waiting is over, nothing was "
                    "done to the run"
                )
            )


def _length(timeout: Duration | None) -> str:
    """Return the timeout as text, in the form in which it was given."""
    return f"{timeout} s" if isinstance(timeout, int | float) else str(timeout)


def value_of(run_id: str, codec: ValueCodec, ending: Ending | None) -> Any:
    """Return the result of a run that has ended, or raise its exception."""
    if ending is None:
        raise NotFound(f"run {run_id!r} not found")
    if ending.output is not None and ending.state is State.SUCCEEDED:
        return codec.decode(readable(ending.output, f"the result of run {run_id!r}"))
    raise failure_of(ending)


class Subscriptions:
    """The subscriptions of one process, by run. A timer on each loop makes up for lost notifications."""

    def __init__(self, poll: float) -> None:
        self._poll = poll
        self._lock = threading.Lock()
        self._by_run: dict[str, list[Callable[[], None]]] = {}
        self._timed: set[asyncio.AbstractEventLoop] = set()
        """The loops that have a timer. One that was closed, as after `asyncio.run`, calls it no more."""

    def add(self, run_id: str, notify: Callable[[], None], loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
        """Call `notify`, on any thread, when the run may have published something. Return a function that stops it."""
        with self._lock:
            self._by_run.setdefault(run_id, []).append(notify)
            begin = loop not in self._timed
            if begin:
                self._timed = {loop, *(each for each in self._timed if not each.is_closed())}
        if begin:
            loop.call_later(self._poll, self._round, loop)
        return lambda: self._remove(run_id, notify)

    def _remove(self, run_id: str, notify: Callable[[], None]) -> None:
        with self._lock:
            others = self._by_run.get(run_id)
            if others is not None and notify in others:
                others.remove(notify)
                if not others:
                    del self._by_run[run_id]

    def notify(self, signal: Signal) -> None:
        """Notify the subscriptions that a commit may concern."""
        if not self._by_run:
            return
        if signal.published is None or signal.ended is None:
            self._notify(None)
        elif signal.published or signal.ended:
            self._notify({run for run, _, _ in signal.published} | signal.ended)

    def _notify(self, runs: set[str] | frozenset[str] | None) -> None:
        with self._lock:
            concerned = self._by_run if runs is None else runs & self._by_run.keys()
            callbacks = [callback for run in concerned for callback in self._by_run[run]]
        for callback in callbacks:
            callback()

    def _round(self, loop: asyncio.AbstractEventLoop) -> None:
        self._notify(None)
        with self._lock:
            goes_on = bool(self._by_run)
            if not goes_on:
                self._timed.discard(loop)
        if goes_on:
            loop.call_later(self._poll, self._round, loop)


class Subscription:
    """One coroutine's subscription to a run. While entered, it is notified of the run and of its timeout."""

    def __init__(self, subscriptions: Subscriptions, clock: Clock, run_id: str, timeout: Duration | None) -> None:
        self._subscriptions = subscriptions
        self._clock = clock
        self._run_id = run_id
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._until = None if timeout is None else clock.now() + micros(timeout)
        self._alarm: Alarm | None = None

    def __enter__(self) -> Self:
        self._stop = self._subscriptions.add(self._run_id, self._notify, self._loop)
        if self._until is not None:
            self._alarm = self._clock.call_at(self._until, self._loop, self._event.set)
        self._clock.waiting(1)
        return self

    def __exit__(self, *exc: object) -> None:
        self._clock.waiting(-1)
        self._stop()
        if self._alarm is not None:
            self._alarm.cancel()

    def _notify(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self) -> bool:
        """Wait until there is a reason to look again. Return False after the timeout."""
        if self._until is not None and self._clock.now() >= self._until:
            return False
        await self._event.wait()
        self._event.clear()
        return True
