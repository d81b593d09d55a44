"""Count ended runs per minute, so that the dashboard's figures need no scan of the history."""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left
from typing import TYPE_CHECKING

from mainspring.errors import StoreError
from mainspring.model.clock import SECOND
from mainspring.store.verbs.dashboard import CLASSES, MINUTE, Amount

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.model.clock import Clock
    from mainspring.model.runs import Ending, Run
    from mainspring.store.protocol import Store
    from mainspring.store.verbs.unreported_ends import UnreportedEnd

log = logging.getLogger("mainspring.services")

KEPT = 8 * 86_400 * SECOND
"""How long the figures of single minutes are kept. The dashboard shows a week."""
_CLASSES = [seconds * SECOND for seconds in CLASSES]
_FORGET_EVERY = 3_600 * SECOND
_MOST_KEYS = 10_000
"""The maximum number of counters in memory while the database cannot be reached."""


class ActivityCounter:
    """Counts the runs that ended since the last `flush`. Thread-safe.

    The worker flushes three times per lease and when it stops. A killed worker loses the counts of its last seconds: the figures are for
    people, and no decision depends on them.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._amounts: dict[tuple[int, str, str, str, int], list[int]] = {}
        """The number of runs and their microseconds together, by minute, function, measure, state and class of duration."""
        self._forgotten = 0

    def count(self, ended: Sequence[tuple[Run, Ending]]) -> None:
        """Count runs that ended in this worker."""
        now = self._clock.now()
        minute = now - now % MINUTE
        with self._lock:
            for run, ending in ended:
                if run.started is None:
                    continue
                workflow, state = run.workflow, ending.state._value_
                self._add(minute, workflow, "duration", state, now - run.started)
                if run.attempts <= 1 and run.epoch <= run.began_epoch and run.due is not None:
                    # Not of a continuation: later claims overwrite the due time.
                    self._add(minute, workflow, "lateness", state, run.started - run.due)

    def count_unreported(self, end: UnreportedEnd) -> None:
        """Count an unowned run that ended and that this worker reports."""
        began = end.completed if end.started is None else end.started
        with self._lock:
            minute = end.completed // MINUTE * MINUTE
            self._add(minute, end.workflow, "duration", end.state.value, end.completed - began)

    def _add(self, minute: int, workflow: str, measure: str, state: str, micros: int) -> None:
        micros = max(micros, 0)
        key = (minute, workflow, measure, state, bisect_left(_CLASSES, micros))
        amount = self._amounts.get(key)
        if amount is not None:
            amount[0] += 1
            amount[1] += micros
        elif len(self._amounts) < _MOST_KEYS:
            self._amounts[key] = [1, micros]

    def flush(self, store: Store) -> None:
        """Write the counts to the database. If that fails, keep them for the next flush."""
        with self._lock:
            taken, self._amounts = self._amounts, {}
        minutes: dict[int, list[Amount]] = {}
        for (minute, workflow, measure, state, bucket), (count, micros) in taken.items():
            minutes.setdefault(minute, []).append(Amount(workflow, measure, state, bucket, count, micros))
        try:
            if minutes:
                store.dashboard.add(minutes)
                taken = {}
            self._forget(store)
        except StoreError as error:
            log.warning("could not store the figures of ended runs; keeping them and retrying: %s", error)
            with self._lock:
                for key, (count, micros) in taken.items():
                    there = self._amounts.setdefault(key, [0, 0])
                    there[0] += count
                    there[1] += micros

    def _forget(self, store: Store) -> None:
        now = self._clock.now()
        if self._forgotten and now - self._forgotten > _FORGET_EVERY:
            store.dashboard.forget(now - KEPT)
        if not self._forgotten or now - self._forgotten > _FORGET_EVERY:
            self._forgotten = now
