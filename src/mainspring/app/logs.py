"""Log records of runs: they carry the run, step and attempt, and are stored where the setting asks for it."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from mainspring.engine.replay.context import place as place_here
from mainspring.errors import StoreError

if TYPE_CHECKING:
    from mainspring.model.clock import Clock
    from mainspring.store.protocol import Store

_MARK = "_mainspring_runs"
_MOST = 10_000
"""Most lines that wait to be stored; beyond that the oldest are dropped."""
_LONGEST = 10_000
_OURS = "mainspring."
log = logging.getLogger("mainspring.app")


def carry_runs() -> None:
    """Make every log record of a run carry `mainspring_run`, `_workflow`, `_step` and `_attempt`. Further calls do nothing."""
    previous = logging.getLogRecordFactory()
    if getattr(previous, _MARK, False):
        return

    def factory(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = previous(*args, **kwargs)
        for name, value in fields().items():
            setattr(record, f"mainspring_{name}", value)
        return record

    setattr(factory, _MARK, True)
    logging.setLogRecordFactory(factory)


def fields() -> dict[str, str | int | None]:
    """Return the run and workflow of the code that logs, and inside a step its name and attempt. None outside of runs."""
    place = place_here()
    step = place.step_name if place is not None else None
    return {
        "run": place.execution.id if place is not None else None,
        "workflow": place.execution.function.name if place is not None else None,
        "step": step,
        "attempt": place.attempt if place is not None and step is not None else None,
    }


class Keeper(logging.Handler):
    """Stores log lines of runs in the database, in batches."""

    def __init__(self, level: str, worker: str, clock: Clock) -> None:
        super().__init__(level.upper())
        self._worker = worker
        self._clock = clock
        self._lines: deque[dict[str, Any]] = deque(maxlen=_MOST)
        self._flushing = threading.Lock()
        self.setFormatter(logging.Formatter("%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        place = place_here()
        if place is None or record.name.startswith(_OURS):
            return
        self._lines.append(
            {
                "run": place.execution.id,
                "at": self._clock.now(),
                "level": record.levelname,
                "logger": record.name,
                "message": self.format(record)[:_LONGEST].replace("\0", ""),
                "step": place.step_name,
                "position": place.last_position(),
                "attempt": place.attempt if place.step_name is not None else None,
                "worker": self._worker,
            }
        )

    def begin(self) -> None:
        logging.getLogger().addHandler(self)

    def end(self, store: Store) -> None:
        logging.getLogger().removeHandler(self)
        self.store(store)

    def store(self, store: Store) -> None:
        """Store the lines gathered so far. Blocking."""
        with self._flushing:
            lines = [self._lines.popleft() for _ in range(len(self._lines))]
            if not lines:
                return
            try:
                store.management.keep_logs(lines, self._clock.now())
            except StoreError as error:
                self._lines.extendleft(reversed(lines))
                log.warning("could not store %d log lines of runs; keeping them and retrying: %s", len(lines), error)
