"""Those in this process, outside runs, who wait for runs to end."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from mainspring.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mainspring.model.records import Ending

log = logging.getLogger("mainspring.app")


class Endings:
    """Runs whose end somebody waits for. One thread asks the store for all of them when something may have ended."""

    def __init__(
        self,
        ask: Callable[[Iterable[str]], dict[str, Ending | None]],
        poll: float,
        anybody: Callable[[], bool] | None = None,
    ) -> None:
        """`anybody` tells whether there is a worker; None: that is not asked."""
        self._ask = ask
        self._poll = poll
        self._anybody = anybody
        self._lock = threading.Lock()
        self._watched: dict[str, list[Callable[[Ending | None], None]]] = {}
        self._ended: set[str] = set()
        """Those of them that have ended, as was heard since the last question."""
        self.told_here: Callable[[str], bool] = lambda _run_id: False
        """Whether this process is about to `settle` a run itself, so that there is no need to ask for it."""
        self._look = threading.Event()
        self._closing = False
        self._started = False
        self._thread: threading.Thread | None = None

    def watch(self, run_id: str, tell: Callable[[Ending | None], None]) -> None:
        """Have `tell` called, on any thread, with the run's ending, or with None if there is no such run; until `unwatch`."""
        with self._lock:
            self._watched.setdefault(run_id, []).append(tell)
            if not self._started:
                self._started = True
                self._start()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="mainspring-endings", daemon=True)
        self._thread.start()

    def unwatch(self, run_id: str, tell: Callable[[Ending | None], None]) -> None:
        with self._lock:
            tellers = self._watched.get(run_id)
            if tellers is not None and tell in tellers:
                tellers.remove(tell)
                if not tellers:
                    del self._watched[run_id]

    def settle(self, run_id: str, ending: Ending | None) -> None:
        """This is how a run ended."""
        with self._lock:
            tellers = self._watched.pop(run_id, [])
        for tell in tellers:
            tell(ending)

    def look(self, ended: frozenset[str] | None = None) -> None:
        """Something ended: ask, if it may be one of those that are watched, and only for those that are known to have."""
        with self._lock:
            watched = self._watched.keys()
            found = watched if ended is None else {run_id for run_id in ended & watched if not self.told_here(run_id)}
            self._ended.update(found)
        if found:
            self._look.set()

    def close(self) -> None:
        with self._lock:  # a thread that is being started is started, and none is started afterwards
            self._closing = self._started = True
        self._look.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            heard = self._look.wait(self._poll)
            self._look.clear()
            if self._closing:
                return
            if not heard:
                self.look()
            self.ask_once()
            if not heard:
                self._say_if_nobody_works()

    def _say_if_nobody_works(self) -> None:
        """Once: whoever waits for a run while there is no worker waits for ever, and should know why."""
        with self._lock:
            awaited = next(iter(self._watched), None)
        if self._anybody is None or awaited is None:
            return
        try:
            there = self._anybody()
        except StoreError:
            return
        self._anybody = None
        if not there:
            log.warning(
                "somebody waits for run %s, and there is no worker to execute it: enter the app in this process (`async with app:` "
                "or `with app:`), or start one with `mainspring worker module:app`",
                awaited,
            )

    def ask_once(self) -> None:
        """Ask the store for those that may have ended, and tell whoever waits for one that has."""
        with self._lock:
            wanted = [run_id for run_id in self._ended if run_id in self._watched]
            self._ended.clear()
        if not wanted:
            return
        try:
            found = self._ask(wanted)
        except StoreError as error:
            log.warning("cannot ask whether runs have ended: %s", error)
            return
        for run_id in wanted:
            if run_id not in found:
                self.settle(run_id, None)
            elif (ending := found[run_id]) is not None:
                self.settle(run_id, ending)
