"""Workers, versions, and runs that no worker can continue."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from mainspring.operations.runs.lists import RunSummary
from mainspring.operations.versions import VERSION_ACTIONS, WHERE_REPLAY_AGREES
from mainspring.web.views import Body, NoQuery, Pages, Reason, Scene

pages = Pages()
_MOST_STRANDED = 50
_MOST_VERSIONS = 20
_SILENT = 60.0


class WorkerRow(Struct):
    """A worker and the runs it owns."""

    id: str
    host: str
    pid: int
    version: str
    functions: list[str]
    started: datetime
    seen: datetime
    alive: bool
    """Whether the worker had a heartbeat within a minute."""
    runs: int
    """The number of runs that the worker owns."""


class VersionRow(Struct):
    """A version of the code that workers have executed."""

    version: str
    first_seen: datetime
    workers: int
    """The number of live workers with this version."""


class Fleet(Struct):
    """The workers, the versions of the code, and the runs that no worker can continue."""

    workers: list[WorkerRow]
    versions: list[VersionRow]
    stranded: list[RunSummary]
    helps: list[str]
    """The commands that help, the most careful one first."""


class Naming(Body):
    """The version to make the newest."""

    version: Annotated[str, Meta(min_length=1, max_length=200, description="A version of the app.")]
    reason: Reason | None = None


@pages.action(VERSION_ACTIONS["set_newest"], lambda body: [body.version])
def set_newest(scene: Scene, body: Naming) -> str:
    return scene.operations.versions.set_newest(body.version)


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
    stranded = operations.runs.summaries(stranded=True, state=("queued",), limit=_MOST_STRANDED).runs
    return Fleet(
        rows,
        [
            VersionRow(version, seen, sum(row.version == version for row in rows))
            for version, seen in operations.versions.newest(_MOST_VERSIONS).items()
        ],
        [scene.redactor.summary(run) for run in stranded],
        [WHERE_REPLAY_AGREES, "mainspring runs list --stranded -o ids | mainspring versions force -"],
    )
