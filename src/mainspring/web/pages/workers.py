"""Workers, versions, and runs that no worker can go on with."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from mainspring.operations.run_lists import RunGlance
from mainspring.operations.watch import VersionInfo
from mainspring.web.views import NoQuery, Pages, Scene
from mainspring.web.words import WHERE_REPLAY_AGREES

pages = Pages()
_MOST_STRANDED = 50
_SILENT = 60.0


class WorkerRow(Struct):
    """A worker and what it has in hand."""

    id: str
    host: str
    pid: int
    version: str
    functions: list[str]
    started: datetime
    seen: datetime
    alive: bool
    """It has shown life within a minute."""
    runs: int
    """How many runs it has in hand."""


class Fleet(Struct):
    """The workers, the versions of the code, and the runs that none of them can go on with."""

    workers: list[WorkerRow]
    versions: list[VersionInfo]
    stranded: list[RunGlance]
    helps: list[str]
    """The commands that help, the careful one first."""


@pages.view("/workers", "workers.html")
def workers(scene: Scene, query: NoQuery) -> Fleet:
    """The fleet with its leases and loads, the versions of the code, stranded runs."""
    del query
    operations = scene.operations
    loads = operations.watch.loads()
    rows = [
        WorkerRow(
            worker.id,
            worker.host,
            worker.pid,
            worker.version,
            worker.functions,
            worker.started,
            worker.seen,
            worker.silent < _SILENT,
            loads.get(worker.id, 0),
        )
        for worker in operations.workers.list()
    ]
    stranded = operations.runs.glance(stranded=True, state=("queued",), limit=_MOST_STRANDED).runs
    return Fleet(
        rows,
        operations.watch.versions(),
        [scene.redactor.glance(run) for run in stranded],
        [WHERE_REPLAY_AGREES, "mainspring runs list --stranded -o ids | mainspring versions force -"],
    )
