"""A store on PostgreSQL: its connections, its listener, and its own verbs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from mainspring.model.clock import SystemClock
from mainspring.model.ids import IdMaker
from mainspring.store import migrations
from mainspring.store.changes import LOST, Changes, claimed_payload
from mainspring.store.postgres import schema as tables
from mainspring.store.postgres import server
from mainspring.store.postgres.batch import Batch
from mainspring.store.postgres.claims import Claims
from mainspring.store.postgres.database import Database
from mainspring.store.postgres.dialect import Dialect
from mainspring.store.postgres.executor import PostgresTransactor
from mainspring.store.postgres.floors import ScheduleFloors
from mainspring.store.postgres.listener import Listener
from mainspring.store.postgres.slots import DEFAULT
from mainspring.store.postgres.transactions import PostgresTransactions
from mainspring.store.sql_store import SqlStore
from mainspring.store.transaction import NOTIFY
from mainspring.store.verbs.prune import Retention
from mainspring.store.verbs.schedules import Schedules

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mainspring.model.runs import Worker
    from mainspring.store.changes import Notice, Signal
    from mainspring.store.protocol import Claimed, ClaimRequest, SchemaReport, ServerState
    from mainspring.store.sql.dialect import Sql
    from mainspring.store.verbs.defects import Defect
    from mainspring.store.writes import Op, Result

log = logging.getLogger("mainspring.store")

_CLOCK_LOOKS = 5
_SIZE = """
  SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = :schema AND c.relkind = 'r'
"""
_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


class PostgresStore(SqlStore):
    """A store in one schema of a PostgreSQL database, as `mainspring.store.protocol.Store` specifies it."""

    def __init__(
        self,
        url: str,
        *,
        schema: str = "mainspring",
        prepare: bool | None = None,
        lease: float = 15.0,
        connections: int = DEFAULT,
        notify: bool = True,
    ) -> None:
        self.url = url
        self.at_once = None
        self._lease = lease
        self._sql = Dialect(schema, notify=notify)
        self._db = Database(url, prepare=prepare, lease=lease, connections=connections)
        origin = IdMaker(SystemClock()).new()[-10:]
        self._origin = origin
        transactor = PostgresTransactor(self._db, self._sql, origin, self._publish)
        super().__init__(transactor, quick=self._read_prepared)
        self._here: set[str] = set()
        """The workers of this store."""
        self._schedule_floors = ScheduleFloors()
        self.schedules = Schedules(transactor, self._schedule_floors)
        self.retention = Retention(transactor, in_one_statement=True)
        self._claims = Claims(self._db, self._sql)
        self.transactions = PostgresTransactions(self._db, self._sql, origin, self._signal)
        self._listener: Listener | None = None

    # -- opening and closing -------------------------------------------------------------------------------------------
    def open(self, *, migrate: bool = True, beside: bool = False) -> None:
        del beside  # migrations do not conflict with an open transaction, and are visible to it
        if migrate:
            tables.migrate(self._db, self._sql, self._db.where)
        else:
            migrations.require_current(self.schema_report(), self._db.where)

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        self._db.close()

    def listen(self, notify: Callable[[Signal], None]) -> None:
        self._notify = notify
        self._db.on_loss = lambda: self._signal(LOST)
        self._listener = Listener(self._db, self._sql, self._origin, self._signal)

    def _signal(self, signal: Signal) -> None:
        """Drop floors before notifying, so that a claim finds what the signal is about."""
        if signal.overdue:
            self._claims.drop_floors()
        if signal.due:
            self._schedule_floors.drop()
        super()._signal(signal)

    def announce(self, claimed: Sequence[str]) -> None:
        if self._sql.channel:
            self._transactor.execute(NOTIFY, channel=self._sql.channel, payload=claimed_payload(self._origin, claimed))

    def blockers(self, *, everywhere: bool = False) -> list[str]:
        return server.blockers(self._db, everywhere=everywhere)

    def server_state(self) -> ServerState:
        return server.state(self._transactor, self._sql.name)

    def clock_offset(self) -> int:
        """The offset at the midpoint between query and response, of the quickest query. An offset within its error counts as zero."""
        here = SystemClock()
        looks: list[tuple[int, int]] = []
        for _ in range(_CLOCK_LOOKS):
            asked = here.now()
            there = self._transactor.read(_NOW)[0][0]
            answered = here.now()
            looks.append((answered - asked, there - (asked + answered) // 2))
        took, offset = min(looks)
        return 0 if abs(offset) <= took else offset

    def inspect(self, now: int, *, thorough: bool) -> list[Defect]:
        return list(tables.inspect(self._db, self._sql, now, thorough=thorough))

    def size(self) -> int:
        found: int = self._transactor.read(_SIZE, schema=self._sql.name)[0][0]
        return found

    def schema_report(self) -> SchemaReport:
        with self._db.connection() as db:
            return tables.report(db, self._sql)

    # -- writes of the committer ---------------------------------------------------------------------------------------
    def apply(self, ops: Sequence[Op], now: int) -> list[Result | Exception]:
        changes = Changes()
        try:
            with self._db.connection() as connection:
                return Batch(connection, self._sql, self._origin, now, changes, here=frozenset(self._here)).apply(ops)
        finally:
            self._publish(changes)  # also the part that was committed, if the rest failed

    # -- verbs of workers that execute runs ----------------------------------------------------------------------------
    def register(self, worker: Worker) -> None:
        self._here.add(worker.id)
        super().register(worker)

    def retire(self, worker: str, now: int, max_recoveries: int | None, limits: Mapping[str, int] | None = None) -> int:
        freed = super().retire(worker, now, max_recoveries, limits)
        if worker not in self._here:
            process = worker.rpartition("-")[0]
            if ended := server.end_idle_transactions(self._transactor, process, self._lease):
                log.warning("ended %d idle transactions of worker %s", ended, worker)
        return freed

    def claim(self, request: ClaimRequest) -> Claimed:
        return self._claims.claim(request)

    def notices(self, worker: str) -> list[Notice]:
        return self._claims.notices(worker)

    def _read_prepared(self, sql: Sql, **values: Any) -> list[tuple[Any, ...]]:
        """Read with a prepared statement, if statements can be prepared: for values that runs wait for."""
        with self._db.connection() as connection:
            (rows,) = connection.wire.execute((self._sql.raw(sql), values))
        return rows
