"""Runs that no worker begins: in a queue that does not exist, or pinned to a version that no worker has.

The process that starts such a run logs a line about it.
"""

from __future__ import annotations

import contextlib
import logging
import shlex
from typing import TYPE_CHECKING, NamedTuple

from mainspring.errors import StoreError
from mainspring.model.states import NOT_BEGUN
from mainspring.operations.filters import run_filter
from mainspring.operations.queues import Queues
from mainspring.operations.versions import Versions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainspring.model.clock import Clock
    from mainspring.store.protocol import Store

log = logging.getLogger("mainspring.app")

MOST = 500
"""Runs of a version that are counted at most."""
_MOST_REMEMBERED = 1_000
"""Queues and versions that are remembered at most: an app may have a queue for each of its tenants."""


class Unserved(NamedTuple):
    """A queue that does not exist or a version that no worker has, the number of runs that wait for it, and what helps."""

    subject: str
    name: str
    found: str
    hint: str
    runs: int = 0


def unserved(store: Store, clock: Clock) -> Iterator[Unserved]:
    """Yield the queues and versions that runs wait for in vain."""
    for queue in Queues(store, clock).list():
        waiting = queue.ready + queue.scheduled
        if not queue.exists and waiting:
            yield _no_queue(queue.name)._replace(runs=waiting)
    for version in Versions(store, clock).list():
        if version.live and not version.workers and (pinned := _pinned(store, version.version)):
            yield _no_version(version.version)._replace(runs=pinned)


def why_unserved(store: Store, queue: str | None, version: str | None) -> Unserved | None:
    """Return why no worker begins a run that is in a queue and pinned to a version, if that is so."""
    if queue is not None and store.queues.get(queue) is None:
        return _no_queue(queue)
    if version is not None and all(worker.version != version for worker in store.workers()):
        return _no_version(version)
    return None


def _pinned(store: Store, version: str) -> int:
    """Count the runs that only a worker of this version begins. Any worker with the same source continues one that has begun."""
    waiting = store.runs(run_filter({"version": version, "state": NOT_BEGUN}, limit=MOST))
    return sum(not run.fingerprint for run in waiting)


def _no_queue(name: str) -> Unserved:
    hint = f"declare it with app.queue({name!r}), or: mainspring queues set {shlex.quote(name)}"
    return Unserved("queue", name, f"queue {name!r} does not exist", hint)


def _no_version(version: str) -> Unserved:
    hint = "start a worker of that version, or fork the run to another: app.runs.fork(…, version=…)"
    return Unserved("version", version, f"no worker has version {version!r}", hint)


class Destinations:
    """The queues and versions that runs were started with here and that this app does not have itself. Each is looked up once."""

    def __init__(self) -> None:
        self._noted: set[tuple[str | None, str | None]] = set()
        self._unchecked: dict[tuple[str | None, str | None], str] = {}

    def note(self, workflow: str, queue: str | None, version: str | None) -> None:
        """Remember where a run is started. Cheap and thread-safe; `check` looks it up."""
        place = (queue, version)
        if place != (None, None) and place not in self._noted and len(self._noted) < _MOST_REMEMBERED:
            self._noted.add(place)
            self._unchecked[place] = workflow

    def assume(self, queue: str) -> None:
        """Take a queue for one that workers declare when they start, although this process has not declared it."""
        self._noted.add((queue, None))

    def __bool__(self) -> bool:
        """Whether something was noted and not checked yet."""
        return bool(self._unchecked)

    def check(self, store: Store) -> None:
        """Warn if a queue does not exist, or if no worker has a version. Without an answer of the database there is no warning."""
        while self._unchecked:
            (queue, version), workflow = self._unchecked.popitem()
            with contextlib.suppress(StoreError):
                found = why_unserved(store, queue, version)
                if found is not None:
                    log.warning(
                        "a run of %s was started that no worker begins, because %s; %s",
                        workflow,
                        found.found,
                        found.hint,
                    )
