"""Runs that no worker begins: in a queue that does not exist, or pinned to a version that no worker has."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, NamedTuple

from mainspring.model.states import State
from mainspring.operations.filters import run_filter
from mainspring.operations.queues import Queues
from mainspring.operations.versions import Versions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainspring.model.clock import Clock
    from mainspring.store.protocol import Store

MOST = 500
"""Runs of a version that are counted at most."""
NOT_BEGUN = (State.QUEUED, State.SCHEDULED)


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
