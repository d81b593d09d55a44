"""What the code of a worker declares, brought into the database when it starts, and kept in step with the fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from mainspring.model.clock import SECOND
from mainspring.services.processes import is_there

if TYPE_CHECKING:
    from mainspring.app.crontab import WorkerCrontab
    from mainspring.app.runtime import Runtime
    from mainspring.model.records import Worker
    from mainspring.operations.declared import Declared
    from mainspring.store.protocol import Store

_REVIEW = 60.0
_SILENT = 60.0
"""How long, in seconds, a worker of another machine may be silent, by the wall clock, and count as active when another one starts."""


class WorkerDeclarations:
    """The queues, schedules, hooks and crontab entries of a worker."""

    def __init__(self, runtime: Runtime, store: Store, crontab: WorkerCrontab) -> None:
        self._runtime = runtime
        self._store = store
        self._crontab = crontab
        self._declared: Declared | None = None
        self._versions: set[str] = set()
        """Those of the workers that were there at the last look."""
        self._review_at = 0.0

    def bring(self, me: Worker) -> None:
        """Make the database say what the code says. The worker's own row is there."""
        from mainspring.operations.declared import Declared  # noqa: PLC0415  (slow to import)

        runtime, store = self._runtime, self._store
        fleet = store.workers()
        store.queues.declare([replace(queue, version=runtime.version) for queue in runtime.queues], runtime.clock.now())
        made = Declared(store, runtime.clock, runtime.ids, app=runtime.name, version=runtime.version)
        active = [worker for worker in fleet if self._is_active(worker, me)]
        made.apply(list(runtime.declarations), alone=[worker.id for worker in active] == [me.id])
        for gone in fleet:  # what it lists is planned as if it lived until its lease has lapsed
            if gone not in active and gone.crontab != "{}":
                store.list_crontab(gone.id, "{}")
        self._crontab.bring()
        made.apply_hooks(list(runtime.declarations.hooks.values()))
        self._declared, self._versions = made, {worker.version for worker in fleet}
        self._review_at = runtime.clock.monotonic() + _REVIEW

    def review(self, worker: str) -> None:
        """Once per heartbeat: see to it that schedules are what live workers declare and list."""
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
        """Whether a worker may live. The row of one that was killed on another machine stays until its lease has lapsed.

        Wall clocks decide here, because there is no time to watch its heartbeat. One that lives all the same lists its entries again.
        """
        silent = self._runtime.clock.now() - round(max(_SILENT, self._runtime.settings.lease) * SECOND)
        return worker.id == me.id or is_there(worker, me) or worker.seen >= silent
