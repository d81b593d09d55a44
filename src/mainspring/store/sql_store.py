"""The verbs of a store that are the same on both databases, as `mainspring.store.protocol.Store` specifies them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import asdict

from mainspring.model.runs import Worker
from mainspring.model.states import State
from mainspring.store.sql.dialect import insert_one
from mainspring.store.sql.records import WORKER_COLUMNS, to_ending, to_notices, to_run, to_step
from mainspring.store.sql.runs import COUNT_BY_STATE, ENDINGS, GET_RUN, ORPHANED, OWNED_RUNS, OWNED_STATE, STRAND
from mainspring.store.sql.steps import GET_STEP, LIST_STEPS
from mainspring.store.verbs import stop
from mainspring.store.verbs.audit import Audit
from mainspring.store.verbs.dashboard import Dashboard
from mainspring.store.verbs.declared_functions import DeclaredFunctions
from mainspring.store.verbs.lists import runs_page
from mainspring.store.verbs.manage import Management
from mainspring.store.verbs.messages import Messages
from mainspring.store.verbs.prune import Retention
from mainspring.store.verbs.queues import Queues
from mainspring.store.verbs.scheduled_functions import Functions
from mainspring.store.verbs.schedules import Schedules
from mainspring.store.verbs.unknown_functions import UnknownFunctions
from mainspring.store.verbs.unreported_ends import UnreportedEnds
from mainspring.store.verbs.versions import Versions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from mainspring.model.runs import Ending, Run, RunFilter, Step
    from mainspring.store.changes import Changes, Notice, Signal
    from mainspring.store.transaction import Read, Transactor

_LIST_WORKERS = f"SELECT {', '.join(WORKER_COLUMNS)} FROM workers ORDER BY started, id"
_REGISTER = f"{insert_one('workers', WORKER_COLUMNS)} ON CONFLICT (id) DO NOTHING"
_SET_CRONTAB = "UPDATE workers SET crontab = :crontab WHERE id = :id"
_SET_INSTANCES = "UPDATE workers SET instances = :instances WHERE id = :id"
_BEAT = "UPDATE workers SET beat = beat + 1, seen = :now WHERE id = :id RETURNING id"
_REMEMBER_VERSION = "INSERT INTO versions (version, first_seen) VALUES (:version, :now) ON CONFLICT DO NOTHING"


class SqlStore:
    """A store over a `Transactor`."""

    def __init__(self, transactor: Transactor, *, quick: Read | None = None) -> None:
        self._transactor = transactor
        self._notify: Callable[[Signal], None] | None = None
        self.messages = Messages(quick or transactor.read)
        self.functions = Functions(transactor.read)
        self.schedules = Schedules(transactor)
        self.queues = Queues(transactor)
        self.management = Management(transactor)
        self.versions = Versions(transactor)
        self.retention = Retention(transactor)
        self.unknown = UnknownFunctions(transactor)
        self.unreported_ends = UnreportedEnds(transactor)
        self.declared_functions = DeclaredFunctions(transactor)
        self.dashboard = Dashboard(transactor)
        self.audit = Audit(transactor)

    def _publish(self, changes: Changes) -> None:
        """Publish the changes of a transaction in this process."""
        if changes:
            self._signal(changes.signal())

    def _signal(self, signal: Signal) -> None:
        if self._notify is not None:
            self._notify(signal)

    # -- workers -------------------------------------------------------------------------------------------------------
    def register(self, worker: Worker) -> None:
        self._transactor.execute(_REGISTER, **asdict(worker))

    def list_crontab(self, worker: str, entries: str) -> None:
        self._transactor.execute(_SET_CRONTAB, crontab=entries, id=worker)

    def list_instances(self, worker: str, instances: str) -> None:
        self._transactor.execute(_SET_INSTANCES, instances=instances, id=worker)

    def beat(self, worker: str, now: int) -> list[Worker] | None:
        return self.workers() if self._transactor.execute(_BEAT, now=now, id=worker) else None

    def workers(self) -> list[Worker]:
        return [Worker(*row) for row in self._transactor.read(_LIST_WORKERS)]

    def retire(self, worker: str, now: int, max_recoveries: int | None, limits: Mapping[str, int] | None = None) -> int:
        return self._transactor.change(lambda tx: stop.retire(tx, worker, max_recoveries, limits), now)

    def orphaned(self) -> list[str]:
        return [row[0] for row in self._transactor.read(ORPHANED)]

    def remember_version(self, version: str, now: int) -> None:
        self._transactor.execute(_REMEMBER_VERSION, version=version, now=now)

    # -- verbs of workers that execute runs ----------------------------------------------------------------------------
    def owned(self, worker: str) -> list[Notice]:
        return to_notices(self._transactor.read(OWNED_RUNS, worker=worker))

    def owned_state(self, worker: str, run_id: str, epoch: int) -> State | None:
        rows = self._transactor.read(OWNED_STATE, worker=worker, id=run_id, epoch=epoch)
        return State(rows[0][0]) if rows else None

    def expire(self, now: int) -> int:
        return self._transactor.change(stop.expire, now)

    def strand(self, functions: Collection[str]) -> int:
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
        return runs_page(self._transactor.read, wanted)

    def counts(self) -> dict[str, int]:
        return dict(self._transactor.read(COUNT_BY_STATE))
