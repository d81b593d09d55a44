"""Writes what a worker's code declares to the database when the worker starts, and keeps it consistent with the fleet."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mainspring.errors import InvalidInput
from mainspring.model.clock import SECOND
from mainspring.services.heartbeat import is_there

if TYPE_CHECKING:
    from mainspring.app.runtime import Runtime
    from mainspring.model.runs import Worker
    from mainspring.operations.schedules.crontabs import Crontabs
    from mainspring.operations.schedules.declared import Declared
    from mainspring.schedules.definition import Definition
    from mainspring.store.protocol import Store

log = logging.getLogger("mainspring.app")

_REVIEW = 60.0
_SILENT = 60.0
"""Seconds for which a worker on another machine may be silent, by the wall clock, and still count as active."""


class WorkerDeclarations:
    """The queues, schedules, hooks and crontab entries of a worker."""

    def __init__(self, runtime: Runtime, store: Store, crontab: WorkerCrontab) -> None:
        self._runtime = runtime
        self._store = store
        self._crontab = crontab
        self._declared: Declared | None = None
        self._versions: set[str] = set()
        """The versions of the workers that existed at the last review."""
        self._review_at = 0.0

    def bring(self, me: Worker) -> None:
        """Write the declarations to the database. The worker's own row must exist."""
        from mainspring.operations.schedules.declared import Declared  # noqa: PLC0415  (slow to import)

        runtime, store = self._runtime, self._store
        fleet = store.workers()
        store.queues.declare([replace(queue, version=runtime.version) for queue in runtime.queues], runtime.clock.now())
        made = Declared(store, runtime.clock, runtime.ids, app=runtime.name, version=runtime.version)
        active = [worker for worker in fleet if self._is_active(worker, me)]
        made.apply(list(runtime.declarations), alone=[worker.id for worker in active] == [me.id])
        for gone in fleet:  # the schedules that it lists would stay in force until its lease has lapsed
            if gone not in active and gone.crontab != "{}":
                store.list_crontab(gone.id, "{}")
        self._crontab.begin(me.id)
        made.apply_hooks(list(runtime.declarations.hooks.values()))
        self._declared, self._versions = made, {worker.version for worker in fleet}
        self._review_at = runtime.clock.monotonic() + _REVIEW

    def review(self, worker: str) -> None:
        """Update the schedules to what live workers declare and list. Called once per heartbeat."""
        self._crontab.review(worker)
        if self._declared is None:
            return
        versions = {worker.version for worker in self._store.workers()}
        gone, self._versions = self._versions - versions, versions
        if gone or self._runtime.clock.monotonic() >= self._review_at:
            self._review_at = self._runtime.clock.monotonic() + _REVIEW
            self._declared.review(list(self._runtime.declarations))
        if gone:
            self._declared.apply_hooks(list(self._runtime.declarations.hooks.values()))

    def _is_active(self, worker: Worker, me: Worker) -> bool:
        """Whether a worker may be alive. The row of one that was killed on another machine stays until its lease has lapsed.

        Wall clocks decide, because there is no time to watch heartbeats. A worker that is alive after all lists its entries
        again.
        """
        silent = self._runtime.clock.now() - round(max(_SILENT, self._runtime.settings.lease) * SECOND)
        return worker.id == me.id or is_there(worker, me) or worker.seen >= silent


class WorkerCrontab:
    """The crontab of a worker: lists its entries in the worker's row, makes them schedules, and reads a changed file again."""

    def __init__(self, runtime: Runtime, store: Store) -> None:
        self._runtime = runtime
        self._store = store
        self._made: Crontabs | None = None
        self._listed = "{}"
        """The entries that this worker last wrote to its row."""

    def _crontabs(self) -> Crontabs:
        from mainspring.operations.schedules.crontabs import Crontabs  # noqa: PLC0415  (recurrence is slow to import)

        if self._made is None:
            self._made = Crontabs(self._store, self._runtime.clock, self._runtime.ids)
        return self._made

    def _definitions(self) -> list[Definition]:
        crontab = self._runtime.crontab
        return [] if crontab is None else crontab.definitions(self._runtime.registry)

    def listing(self) -> str:
        """Return the entries as the worker's row lists them."""
        if self._runtime.crontab is None:
            return "{}"
        from mainspring.operations.schedules.crontabs import listing  # noqa: PLC0415

        return listing(self._definitions())

    def begin(self, worker: str) -> None:
        """List the entries of a worker that starts, and create or update their schedules."""
        if self._runtime.crontab is not None:
            self._crontabs().prepare(self._definitions())
            self._list(worker)
            self.bring()

    def _list(self, worker: str) -> None:
        self._listed = self.listing()
        self._store.list_crontab(worker, self._listed)

    def bring(self) -> None:
        """Create or update the schedules of the entries."""
        if self._runtime.crontab is not None:
            self._crontabs().bring(self._definitions())

    def review(self, worker: str) -> None:
        """Read the file again if it has changed, and stop the entries that no worker lists any more."""
        crontab = self._runtime.crontab
        if crontab is not None:
            self._list_again(worker)
        if crontab is not None and crontab.changed:
            try:
                crontab.reload(self._runtime.registry)
            except InvalidInput as error:
                log.error("the crontab has changed and has errors; the previous one stays in force: %s", error)  # noqa: TRY400
            else:
                self._list(worker)
                self.bring()
                log.info("the crontab %s has changed; its entries are in force now", crontab.file)
        self._crontabs().review()

    def _list_again(self, worker: str) -> None:
        """List the entries again if another worker took this one for dead and removed them (long silence, or a wrong clock)."""
        if any(each.id == worker and each.crontab != self._listed for each in self._store.workers()):
            log.warning("another worker that started took worker %s for dead; listing its crontab again", worker)
            self._store.list_crontab(worker, self._listed)
