"""The store's verbs on PostgreSQL. What is more than a statement lives next door: batches, claims, changes of whole sets."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.model.clock import SystemClock
from mainspring.model.ids import IdMaker
from mainspring.model.states import State
from mainspring.store import migrations, sql
from mainspring.store.functions import Functions
from mainspring.store.management import Management
from mainspring.store.message_sql import SqlMessages
from mainspring.store.postgres import blocking, stops
from mainspring.store.postgres import schema as tables
from mainspring.store.postgres import statements as text
from mainspring.store.postgres.batch import Applier
from mainspring.store.postgres.claims import Claims
from mainspring.store.postgres.database import Database
from mainspring.store.postgres.dialect import Dialect
from mainspring.store.postgres.listener import Listener
from mainspring.store.postgres.news import LOST, News
from mainspring.store.postgres.queues import PostgresQueues
from mainspring.store.postgres.retention import PostgresRetention
from mainspring.store.postgres.schedules import PostgresSchedules
from mainspring.store.postgres.transactions import PostgresTransactions
from mainspring.store.postgres.whole import Whole
from mainspring.store.protocol import Poke
from mainspring.store.run_filters import POSTGRES_ATTRIBUTES, POSTGRES_MESSAGE, Filters
from mainspring.store.run_glances import runs_page
from mainspring.store.stopped import Stops
from mainspring.store.telling import Telling
from mainspring.store.tick_glances import POSTGRES_EACH, POSTGRES_SPANS
from mainspring.store.unknown import Unknown
from mainspring.store.watching import Watching

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from mainspring.model.records import Ending, Run, Step, Worker
    from mainspring.store.desk import Desk
    from mainspring.store.inspection import Oddity
    from mainspring.store.message_sql import Rows
    from mainspring.store.ops import Op, Result
    from mainspring.store.postgres.whole import Change
    from mainspring.store.protocol import Claimed, ClaimRequest, RunFilter, SchemaReport, Signal

T = TypeVar("T")

_CLOCK_LOOKS = 5
_SIZE = """
  SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = :schema AND c.relkind = 'r'
"""
_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_REGISTER = f"""
  INSERT INTO workers ({", ".join(sql.WORKER_COLUMNS)}) VALUES ({", ".join(":" + name for name in sql.WORKER_COLUMNS)})
  ON CONFLICT (id) DO NOTHING
"""
_SAME_SOURCE = """SELECT 1 FROM workers w
        WHERE (w.functions ->> r.workflow = r.fingerprint OR w.functions ->> r.workflow LIKE 'patched-%')"""
_STRAND = f"""
  WITH lost AS MATERIALIZED (
    SELECT id FROM runs r
    WHERE state = 'queued' AND stranded IS NULL AND fingerprint <> ''
      AND NOT EXISTS ({_SAME_SOURCE}
        AND CASE WHEN w.instances -> r.workflow IS NOT NULL
                 THEN jsonb_exists(w.instances -> r.workflow, {sql.POSTGRES_INSTANCE}) ELSE true END)
    ORDER BY id FOR NO KEY UPDATE OF r SKIP LOCKED)
  UPDATE runs r SET stranded = json_build_object('versions', json_build_array(), 'reason',
    CASE WHEN EXISTS ({_SAME_SOURCE}) THEN 'no live worker has the instance ' || {sql.POSTGRES_INSTANCE} || ' that ' || workflow || ' needs'
      WHEN workflow = ANY(:names)
      THEN 'the source of ' || workflow || ' has changed since this run began under version ' || coalesce(version, '?')
           || '; no live worker has that source'
      ELSE 'no live worker knows ' || workflow END)
  FROM lost WHERE r.id = lost.id RETURNING r.id
"""


class PostgresStore:
    """A store in one schema of a PostgreSQL database. See `mainspring.store.protocol.Store` for what each verb promises."""

    def __init__(
        self, url: str, *, schema: str = "mainspring", prepare: bool | None = None, lease: float = 15.0
    ) -> None:
        self.url = url
        self.at_once = None
        self._sql = Dialect(schema)
        self._db = Database(url, prepare=prepare, lease=lease)
        origin = IdMaker(SystemClock()).new()[-10:]
        self._origin = origin
        self._applier = Applier(self._db, self._sql, origin)
        self._claims = Claims(self._db, self._sql)
        self._whole = Whole(self._db, self._sql, origin)
        self.schedules = PostgresSchedules(self._db, self._sql, origin, self._tell)
        self.retention = PostgresRetention(self._db, self._sql)
        self.functions = Functions(lambda text, values: self._rows(text, **values))
        self.transactions = PostgresTransactions(self._db, self._sql, origin, self._hear_signal)
        self.queues = PostgresQueues(self._db, self._sql, origin, self._tell)
        self._hear: Callable[[Signal], None] | None = None
        self._listener: Listener | None = None
        self.messages = SqlMessages(self._quickly)
        self._filters = Filters(POSTGRES_ATTRIBUTES, POSTGRES_MESSAGE)
        self.management = Management(self._manage, self._rows, self._snapshot, self._filters)
        self.unknown = Unknown(self._manage, self._rows, sql.POSTGRES_INSTANCE)
        self.telling = Telling(self._manage, self._rows)
        self.watching = Watching(self._rows, self._do_all, POSTGRES_SPANS, self._filters, POSTGRES_EACH)

    # -- life ----------------------------------------------------------------------------------------------------------
    def open(self, *, migrate: bool = True, beside: bool = False) -> None:
        del beside  # tables are made beside any transaction, and seen by it
        if migrate:
            tables.migrate(self._db, self._sql, self._db.where)
        else:
            migrations.require_current(self.schema_report(), self._db.where)

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        self.transactions.close()
        self._db.close()

    def listen(self, hear: Callable[[Signal], None]) -> None:
        self._hear = hear
        self._db.on_loss = lambda: hear(LOST)
        self._listener = Listener(self._db, self._sql, self._origin, hear)

    def blockers(self, *, everywhere: bool = False) -> list[str]:
        return blocking.blockers(self._db, everywhere=everywhere)

    def clock_offset(self) -> int:
        """The midpoint between asking and hearing, of the quickest look. What is within its error counts as the same clock."""
        here = SystemClock()
        looks: list[tuple[int, int]] = []
        for _ in range(_CLOCK_LOOKS):
            asked = here.now()
            there = self._rows(_NOW)[0][0]
            heard = here.now()
            looks.append((heard - asked, there - (asked + heard) // 2))
        took, offset = min(looks)
        return 0 if abs(offset) <= took else offset

    def inspect(self, now: int, *, thorough: bool) -> list[Oddity]:
        return list(tables.inspect(self._db, self._sql, now, thorough=thorough))

    def size(self) -> int:
        found: int = self._rows(_SIZE, schema=self._sql.name)[0][0]
        return found

    def schema_report(self) -> SchemaReport:
        with self._db.connection() as db:
            return tables.report(db, self._sql)

    # -- the committer's -----------------------------------------------------------------------------------------------
    def apply(self, ops: Sequence[Op], now: int) -> list[Result | Exception]:
        news = News()
        try:
            return self._applier.apply(ops, now, news)
        finally:
            self._tell(news)  # also of the part that was committed, if the rest could not be

    def _tell(self, news: News) -> None:
        if news:
            self._hear_signal(news.signal())

    def _hear_signal(self, signal: Signal) -> None:
        if self._hear is not None:
            self._hear(signal)

    # -- workers -------------------------------------------------------------------------------------------------------
    def register(self, worker: Worker) -> None:
        self._applier.here.add(worker.id)
        self._do(_REGISTER, **{name: getattr(worker, name) for name in sql.WORKER_COLUMNS})

    def list_crontab(self, worker: str, entries: str) -> None:
        self._do("UPDATE workers SET crontab = :entries WHERE id = :id", entries=entries, id=worker)

    def list_instances(self, worker: str, instances: str) -> None:
        self._do(
            "UPDATE workers SET instances = CAST(:instances AS jsonb) WHERE id = :id", instances=instances, id=worker
        )

    def beat(self, worker: str, now: int) -> list[Worker] | None:
        if not self._do("UPDATE workers SET beat = beat + 1, seen = :now WHERE id = :id", now=now, id=worker):
            return None
        return self.workers()

    def workers(self) -> list[Worker]:
        return [sql.to_worker(row) for row in self._rows(sql.WORKERS)]

    def retire(self, worker: str, now: int, max_recoveries: int | None) -> int:
        most = 2**62 if max_recoveries is None else max_recoveries
        values = {"worker": worker, "now": now, "most": most, "exhausted": sql.exhausted_record(most)}

        def act(change: Change) -> int:
            rows = change.rows(stops.RETIRE)
            change.rows("DELETE FROM workers WHERE id = :worker RETURNING id")
            change.news.ready = bool(rows)
            change.news.ended = {run for run, state in rows if State(state).ended}
            return len(rows)

        return self._changed(stops.RETIRE_FIND, values, act, part=True)  # the rest is orphaned, and so found again

    def orphaned(self) -> list[str]:
        return [row[0] for row in self._rows(sql.ORPHANED)]

    def remember_version(self, version: str, now: int) -> None:
        insert = "INSERT INTO versions (version, first_seen) VALUES (:version, :now) ON CONFLICT DO NOTHING"
        self._do(insert, version=version, now=now)

    # -- executing -----------------------------------------------------------------------------------------------------
    def claim(self, request: ClaimRequest) -> Claimed:
        return self._claims.claim(request)

    def pokes(self, worker: str) -> list[Poke]:
        return self._claims.pokes(worker)

    def in_hand(self, worker: str) -> list[Poke]:
        return [
            Poke(run, epoch, State(state), reason)
            for run, epoch, state, reason in self._rows(sql.IN_HAND, worker=worker)
        ]

    def expire(self, now: int) -> int:
        def act(change: Change) -> int:
            change.news.ready = bool(change.rows(stops.EXPIRE_UNDOABLE))
            change.news.ended = {row[0] for row in change.rows(stops.EXPIRE)}
            return len(change.news.ended)

        return self._changed(stops.EXPIRE_FIND, {"now": now}, act, part=True)

    def strand(self, worker: str, functions: Mapping[str, str], now: int) -> int:
        del worker, now
        return len(self._rows(_STRAND, names=list(functions)))

    # -- from anywhere -------------------------------------------------------------------------------------------------
    def cancel(self, ids: Sequence[str], reason: str | None, now: int) -> dict[str, bool]:
        def act(change: Change) -> dict[str, bool]:
            in_hand = Stops(change.rows(stops.CANCEL_IN_HAND), State.CANCELLING, reason)
            later = {row[0] for row in change.rows(stops.CANCEL_UNDOABLE)}
            change.news.ready = bool(later)
            change.news.ended = {row[0] for row in change.rows(stops.CANCEL_AT_ONCE)}
            change.news.poked, change.news.stops = in_hand.owners, in_hand.pokes
            return {run: run in in_hand.runs or run in later or run in change.news.ended for run in ids}

        return self._changed(stops.TREE_FIND, {"ids": list(ids), "reason": reason, "now": now}, act)

    def terminate(self, ids: Sequence[str], reason: str | None, now: int) -> dict[str, bool]:
        def act(change: Change) -> dict[str, bool]:
            rows = change.rows(stops.TERMINATE)
            owned = Stops(rows, State.CANCELLED, reason)
            change.news.ended = {row[0] for row in rows}
            change.news.poked, change.news.stops = owned.owners, owned.pokes
            return {run: run in change.news.ended for run in ids}

        return self._changed(stops.TREE_FIND, {"ids": list(ids), "reason": reason, "now": now}, act)

    def endings(self, ids: Iterable[str]) -> dict[str, Ending | None]:
        return {row[0]: sql.to_ending(row) for row in self._rows(text.ENDINGS, ids=list(ids))}

    def run(self, run_id: str) -> Run | None:
        rows = self._rows(sql.RUN, id=run_id)
        return sql.to_run(rows[0]) if rows else None

    def steps(self, run_id: str) -> list[Step]:
        return [sql.to_step(row) for row in self._rows(sql.STEPS, run=run_id)]

    def step(self, run_id: str, position: str) -> Step | None:
        rows = self._rows(sql.STEP, run=run_id, position=position)
        return sql.to_step(rows[0]) if rows else None

    def runs(self, wanted: RunFilter) -> list[Run]:
        return runs_page(self._rows, self._filters, wanted)

    def _manage(self, ids: Sequence[str], now: int, act: Callable[[Desk], T]) -> T:
        return self._changed(stops.TREE_FIND, {"ids": list(ids), "now": now}, act)

    def counts(self) -> dict[str, int]:
        return dict(self._rows(sql.COUNTS))

    # -- ways to the database ------------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def _snapshot(self, ids: Sequence[str]) -> Generator[Rows]:
        del ids  # nothing is held
        with self._db.snapshot() as db:
            yield lambda statement, **values: db.execute(self._sql(statement), values).fetchall()

    def _rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        with self._db.connection() as db:
            return db.execute(self._sql(statement), values).fetchall()

    def _quickly(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """For what runs wait for: prepared, where that can be."""
        with self._db.connection() as db:
            (rows,) = db.wire.execute((self._sql.raw(statement), values))
        return rows

    def _do(self, statement: str, **values: Any) -> int:
        with self._db.connection() as db:
            return db.execute(self._sql(statement), values).rowcount

    def _do_all(self, *work: tuple[str, Sequence[Mapping[str, Any]]]) -> None:
        with self._db.transaction() as db, db.cursor() as cursor:
            for statement, values in work:
                cursor.executemany(self._sql(statement), values)

    def _changed(self, find: str, values: dict[str, Any], act: Callable[[Change], T], *, part: bool = False) -> T:
        answer, news = self._whole.change(find, values, act, part=part)
        self._tell(news)
        return answer


def script(schema: str = "mainspring") -> str:
    """The whole schema as SQL."""
    return tables.script(Dialect(schema))
