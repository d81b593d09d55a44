"""The verbs of a store that are the same on both databases, as `mainspring.store.protocol.Store` specifies them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.model.states import State
from mainspring.store.changes import Notice
from mainspring.store.sql.records import WORKER_COLUMNS, to_ending, to_run, to_step, to_worker
from mainspring.store.sql.runs import COUNT_BY_STATE, ENDINGS, GET_RUN, ORPHANED, OWNED_RUNS, OWNED_STATE, STRAND
from mainspring.store.sql.steps import GET_STEP, LIST_STEPS
from mainspring.store.sql.workers import BEAT, LIST_WORKERS, REGISTER, REMEMBER_VERSION, SET_CRONTAB, SET_INSTANCES
from mainspring.store.verbs import stop
from mainspring.store.verbs.dashboard import Dashboard
from mainspring.store.verbs.manage import Management
from mainspring.store.verbs.messages import SqlMessages
from mainspring.store.verbs.prune import Retention
from mainspring.store.verbs.queues import Queues
from mainspring.store.verbs.run_lists import runs_page
from mainspring.store.verbs.scheduled_functions import Functions
from mainspring.store.verbs.schedules import Schedules
from mainspring.store.verbs.unknown_functions import UnknownFunctions
from mainspring.store.verbs.unnotified import UnreportedEnds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from mainspring.model.runs import Ending, Run, RunFilter, Step, Worker
    from mainspring.store.changes import Changes, Signal
    from mainspring.store.sql.run_filters import Filters
    from mainspring.store.transaction import Read, Transactor


class SqlStore:
    """A store over a `Transactor`."""

    def __init__(
        self,
        transactor: Transactor,
        filters: Filters,
        spans: str,
        each: str | None = None,
        *,
        quick: Read | None = None,
    ) -> None:
        self._transactor = transactor
        self._filters = filters
        self._notify: Callable[[Signal], None] | None = None
        self.messages = SqlMessages(quick or transactor.read)
        self.functions = Functions(transactor.read)
        self.schedules = Schedules(transactor)
        self.queues = Queues(transactor)
        self.management = Management(transactor, filters)
        self.retention = Retention(transactor)
        self.unknown = UnknownFunctions(transactor)
        self.unreported_ends = UnreportedEnds(transactor)
        self.dashboard = Dashboard(transactor.read, transactor.execute_many, spans, filters, each)

    def _publish(self, changes: Changes) -> None:
        """Publish the changes of a transaction in this process."""
        if changes:
            self._signal(changes.signal())

    def _signal(self, signal: Signal) -> None:
        if self._notify is not None:
            self._notify(signal)

    # -- workers -------------------------------------------------------------------------------------------------------
    def register(self, worker: Worker) -> None:
        self._transactor.execute(REGISTER, **{name: getattr(worker, name) for name in WORKER_COLUMNS})

    def list_crontab(self, worker: str, entries: str) -> None:
        self._transactor.execute(SET_CRONTAB, crontab=entries, id=worker)

    def list_instances(self, worker: str, instances: str) -> None:
        self._transactor.execute(SET_INSTANCES, instances=instances, id=worker)

    def beat(self, worker: str, now: int) -> list[Worker] | None:
        return self.workers() if self._transactor.execute(BEAT, now=now, id=worker) else None

    def workers(self) -> list[Worker]:
        return [to_worker(row) for row in self._transactor.read(LIST_WORKERS)]

    def retire(self, worker: str, now: int, max_recoveries: int | None, limits: Mapping[str, int] | None = None) -> int:
        return self._transactor.change(lambda tx: stop.retire(tx, worker, max_recoveries, limits), now)

    def orphaned(self) -> list[str]:
        return [row[0] for row in self._transactor.read(ORPHANED)]

    def remember_version(self, version: str, now: int) -> None:
        self._transactor.execute(REMEMBER_VERSION, version=version, now=now)

    # -- verbs of workers that execute runs ----------------------------------------------------------------------------
    def owned(self, worker: str) -> list[Notice]:
        rows = self._transactor.read(OWNED_RUNS, worker=worker)
        return [Notice(run, epoch, State(state), reason) for run, epoch, state, reason in rows]

    def owned_state(self, worker: str, run_id: str, epoch: int) -> State | None:
        rows = self._transactor.read(OWNED_STATE, worker=worker, id=run_id, epoch=epoch)
        return State(rows[0][0]) if rows else None

    def expire(self, now: int) -> int:
        return self._transactor.change(stop.expire, now)

    def strand(self, worker: str, functions: Mapping[str, str], now: int) -> int:
        del worker, now
        return len(self._transactor.execute(STRAND, names=list(functions)))

    # -- verbs of all callers ------------------------------------------------------------------------------------------
    def cancel(self, ids: Sequence[str], reason: str | None, now: int) -> dict[str, bool]:
        return self._transactor.change(lambda tx: stop.cancel(tx, ids, reason), now)

    def terminate(self, ids: Sequence[str], reason: str | None, now: int) -> dict[str, bool]:
        return self._transactor.change(lambda tx: stop.terminate(tx, ids, reason), now)

    def endings(self, ids: Iterable[str]) -> dict[str, Ending | None]:
        return {row[0]: to_ending(row) for row in self._transactor.read(ENDINGS, ids=list(ids))}

    def run(self, run_id: str) -> Run | None:
        rows = self._transactor.read(GET_RUN, id=run_id)
        return to_run(rows[0]) if rows else None

    def steps(self, run_id: str) -> list[Step]:
        return [to_step(row) for row in self._transactor.read(LIST_STEPS, run=run_id)]

    def step(self, run_id: str, position: str) -> Step | None:
        rows = self._transactor.read(GET_STEP, run=run_id, position=position)
        return to_step(rows[0]) if rows else None

    def runs(self, wanted: RunFilter) -> list[Run]:
        return runs_page(self._read_filtered, self._filters, wanted)

    def _read_filtered(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        return self._transactor.read(statement, **values)

    def counts(self) -> dict[str, int]:
        return dict(self._transactor.read(COUNT_BY_STATE))
