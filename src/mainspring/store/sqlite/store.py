"""The store's verbs on SQLite. Writers take turns, so a transaction sees everything that matters and nothing changes under it."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.errors import SchemaError, StoreError, StoreUnavailable
from mainspring.model.states import State
from mainspring.store import migrations, sql
from mainspring.store.functions import Functions
from mainspring.store.management import Management
from mainspring.store.message_sql import SqlMessages
from mainspring.store.ops import Written, is_checkpoint
from mainspring.store.protocol import Poke, Signal
from mainspring.store.run_filters import SQLITE_ATTRIBUTES, SQLITE_MESSAGE, Filters
from mainspring.store.run_glances import runs_page
from mainspring.store.sqlite import schema, stops, turns
from mainspring.store.sqlite.batch import BAD_DATA, Batch
from mainspring.store.sqlite.claims import Claiming
from mainspring.store.sqlite.database import Database
from mainspring.store.sqlite.queues import SqliteQueues
from mainspring.store.sqlite.retention import SqliteRetention
from mainspring.store.sqlite.run_writes import SqliteDesk
from mainspring.store.sqlite.schedules import SqliteSchedules
from mainspring.store.sqlite.statements import ENDING
from mainspring.store.sqlite.step_writes import checkpoint
from mainspring.store.sqlite.transactions import SqliteTransactions
from mainspring.store.stopped import Stops
from mainspring.store.telling import Telling
from mainspring.store.tick_glances import SQLITE_SPANS
from mainspring.store.unknown import Unknown
from mainspring.store.watching import Watching

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from mainspring.model.records import Ending, Run, Step, Worker
    from mainspring.store.desk import Desk
    from mainspring.store.inspection import Oddity
    from mainspring.store.message_sql import Rows
    from mainspring.store.ops import Op, Result
    from mainspring.store.protocol import Claimed, ClaimRequest, RunFilter, SchemaReport

log = logging.getLogger("mainspring.store")

T = TypeVar("T")

_WATCH_SECONDS = 0.025
_KEEN_SECONDS = 0.003
_KEEN_LOOKS = 200
"""Who has just seen another process commit looks more often for a while: where there was one word, others follow."""
_BESIDE = (
    "the tables of {url} are not there yet, or not up to date, and cannot be made while a transaction is open on the file; roll it "
    "back, and make them before: enter the app or use any other verb of it first, or run `mainspring db migrate --url {url}`"
)

_SAME_SOURCE = """SELECT 1 FROM workers, json_each(CASE WHEN json_valid(workers.functions) THEN workers.functions END) f
      WHERE f.key = workflow AND (f.value = fingerprint OR f.value LIKE 'patched-%')"""
_STRAND = f"""
  UPDATE runs SET stranded = json_object('versions', json_array(), 'reason',
    CASE WHEN EXISTS ({_SAME_SOURCE}) THEN 'no live worker has the instance ' || {sql.SQLITE_INSTANCE} || ' that ' || workflow || ' needs'
      WHEN workflow IN (SELECT key FROM json_each(:functions))
      THEN 'the source of ' || workflow || ' has changed since this run began under version ' || coalesce(version, '?')
           || '; no live worker has that source'
      ELSE 'no live worker knows ' || workflow END)
  WHERE state = 'queued' AND stranded IS NULL AND fingerprint <> ''
    AND NOT EXISTS ({_SAME_SOURCE} AND (
      NOT EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(workers.instances) THEN workers.instances END) m WHERE m.key = workflow)
      OR EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(workers.instances) THEN workers.instances END) m, json_each(m.value) i
                 WHERE m.key = workflow AND i.value IS {sql.SQLITE_INSTANCE})))
"""


class SqliteStore:
    """A store in a SQLite file. See `mainspring.store.protocol.Store` for what each verb promises."""

    def __init__(self, path: str, *, url: str, synchronous: str = "FULL", lease: float = 15.0) -> None:
        self.url = url
        self._db = Database(path, synchronous=synchronous, lease=lease)
        self.at_once = self._db.at_once if self._db.prompt else None
        self.functions = Functions(self._read)
        self.retention = SqliteRetention(self._db)
        self.transactions = SqliteTransactions(self._db, self._hear_signal)
        self._hear: Callable[[Signal], None] | None = None
        self._closing = threading.Event()
        self._watcher: threading.Thread | None = None
        self.schedules = SqliteSchedules(self._db, self._tell)
        self.messages = SqlMessages(self._rows)
        self._claims = 0
        self._turns: dict[str, str] = {}
        self.queues = SqliteQueues(self._db, self._wake_claimers)
        self._filters = Filters(SQLITE_ATTRIBUTES, SQLITE_MESSAGE)
        self.management = Management(self._manage, self._rows, self._snapshot, self._filters)
        self.unknown = Unknown(self._manage, self._rows, sql.SQLITE_INSTANCE)
        self.telling = Telling(self._manage, self._rows)
        self.watching = Watching(self._rows, self._do, SQLITE_SPANS, self._filters)

    # -- life ----------------------------------------------------------------------------------------------------------
    def open(self, *, migrate: bool = True, beside: bool = False) -> None:
        try:
            self._db.open()
            self._make_ready(migrate=migrate, beside=beside)
        except StoreUnavailable as error:
            if beside:  # a file that was never ours is made ready alone
                raise SchemaError(_BESIDE.format(url=self.url)) from error
            raise

    def _make_ready(self, *, migrate: bool, beside: bool) -> None:
        report = self.schema_report()
        if not migrate:
            migrations.require_current(report, self.url)
        migrations.refuse_unknown(report, self.url)
        if report.pending and beside:
            raise SchemaError(_BESIDE.format(url=self.url))
        if report.pending:
            self._migrate()

    def _migrate(self) -> None:
        with self._db.write() as db:
            schema.migrate(db, self._db.path)

    def close(self) -> None:
        self._closing.set()
        if self._watcher is not None:
            self._watcher.join()
        self._db.close()

    def hear_only_self(self, hear: Callable[[Signal], None]) -> None:
        """Like `listen`, but without a thread that watches for other processes: for a simulation of them in this one."""
        self._hear = hear

    def changes(self) -> int:
        """How many rows this object has ever changed."""
        return self._db.changes()

    def listen(self, hear: Callable[[Signal], None]) -> None:
        self._hear = hear
        seen = self._db.foreign_commits()  # taken before this returns: what is committed from now on will be heard
        self._watcher = threading.Thread(target=self._watch, args=(hear, seen), name="mainspring-watcher", daemon=True)
        self._watcher.start()

    def _watch(self, hear: Callable[[Signal], None], seen: int) -> None:
        """Other processes' commits show as a change of the file's version; what they changed has to be looked for."""
        keen = 0
        while not self._closing.is_set():
            time.sleep(_KEEN_SECONDS if keen else _WATCH_SECONDS)  # half of what it costs to wait for an event
            keen = max(0, keen - 1)
            try:
                version = self._db.foreign_commits()
            except StoreError as error:
                log.warning("cannot watch the database for the work of other processes: %s", error)
                continue
            if version != seen:
                keen = _KEEN_LOOKS
                hear(Signal(ready=True, ended=None, poked=None, due=True, said=None))
            seen = version

    def blockers(self, *, everywhere: bool = False) -> list[str]:
        del everywhere  # who writes, writes alone
        return [str(holder) for holder in turns.holders(self._db.path)]

    def clock_offset(self) -> None:
        return None

    def schema_report(self) -> SchemaReport:
        with self._db.read() as db:
            return schema.report(db)

    def inspect(self, now: int, *, thorough: bool) -> list[Oddity]:
        return list(schema.inspect(self._rows_as_they_are, now, thorough=thorough))

    def _rows_as_they_are(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """Rows, or the database's own error: where something is wrong with it, that is what was asked for."""
        with self._db.read_untranslated() as db:
            return db.execute(statement, values).fetchall()

    def size(self) -> int:
        return self._db.size()

    # -- the committer's -----------------------------------------------------------------------------------------------
    def apply(self, ops: Sequence[Op], now: int) -> list[Result | Exception]:
        try:
            if len(ops) == 1 and is_checkpoint(ops[0]):
                with self._db.write_alone() as db:
                    if checkpoint(db, ops[0]):
                        return [Written()]
            with self._db.write() as db:
                batch = Batch(db, now)
                answers = batch.apply(ops)
        except BAD_DATA as error:
            if len(ops) > 1:
                raise
            return [error]
        self._tell(batch)
        return answers

    def _wake_claimers(self) -> None:
        self._hear_signal(Signal(ready=True))

    def _tell(self, batch: Batch) -> None:
        if batch.ready or batch.due or batch.ended or batch.poked or batch.said:
            self._hear_signal(batch.signal())

    def _hear_signal(self, signal: Signal) -> None:
        if self._hear is not None:
            self._hear(signal)

    # -- workers -------------------------------------------------------------------------------------------------------
    def register(self, worker: Worker) -> None:
        columns = sql.WORKER_COLUMNS
        with self._db.write() as db:
            db.execute(
                f"INSERT INTO workers ({', '.join(columns)}) VALUES ({', '.join(':' + name for name in columns)}) "
                "ON CONFLICT (id) DO NOTHING",
                {name: getattr(worker, name) for name in columns},
            )

    def list_crontab(self, worker: str, entries: str) -> None:
        with self._db.write() as db:
            db.execute("UPDATE workers SET crontab = ? WHERE id = ?", (entries, worker))

    def list_instances(self, worker: str, instances: str) -> None:
        with self._db.write() as db:
            db.execute("UPDATE workers SET instances = ? WHERE id = ?", (instances, worker))

    def beat(self, worker: str, now: int) -> list[Worker] | None:
        with self._db.write() as db:
            if not db.execute("UPDATE workers SET beat = beat + 1, seen = ? WHERE id = ?", (now, worker)).rowcount:
                return None
            return [sql.to_worker(row) for row in db.execute(sql.WORKERS)]

    def workers(self) -> list[Worker]:
        with self._db.read() as db:
            return [sql.to_worker(row) for row in db.execute(sql.WORKERS)]

    def retire(self, worker: str, now: int, max_recoveries: int | None) -> int:
        most = 2**62 if max_recoveries is None else max_recoveries
        values = {"worker": worker, "now": now, "most": most, "exhausted": sql.exhausted_record(most)}
        with self._db.write() as db:
            rows = db.execute(stops.RETIRE, values).fetchall()
            db.execute("DELETE FROM workers WHERE id = ?", (worker,))
            batch = Batch(db, now)
            batch.ready = bool(rows)
            batch.ended = {run for run, state in rows if State(state).ended}
            batch.due = bool(batch.ended)
            batch.unblock(batch.ended)
        self._tell(batch)
        return len(rows)

    def orphaned(self) -> list[str]:
        with self._db.read() as db:
            return [row[0] for row in db.execute(sql.ORPHANED)]

    def remember_version(self, version: str, now: int) -> None:
        with self._db.write() as db:
            db.execute(
                "INSERT INTO versions (version, first_seen) VALUES (?, ?) ON CONFLICT DO NOTHING", (version, now)
            )

    # -- executing -----------------------------------------------------------------------------------------------------
    def claim(self, request: ClaimRequest) -> Claimed:
        self._claims += 1
        with self._db.write() as db:
            return Claiming(db, request, self._claims, self._turns).claim()

    def pokes(self, worker: str) -> list[Poke]:
        look = "SELECT id, epoch, state, reason FROM runs WHERE owner = ? AND poked = 1"
        with self._db.read() as db:
            if db.execute(look, (worker,)).fetchone() is None:
                return []
        with self._db.write() as db:
            rows = db.execute(look, (worker,)).fetchall()
            db.execute(
                """
                UPDATE runs SET poked = 0,
                  owner = CASE WHEN state IN ('succeeded', 'failed', 'cancelled') THEN NULL ELSE owner END
                WHERE owner = ? AND poked = 1
                """,
                (worker,),
            )
        return [Poke(run, epoch, State(state), reason) for run, epoch, state, reason in rows]

    def in_hand(self, worker: str) -> list[Poke]:
        return [
            Poke(run, epoch, State(state), reason)
            for run, epoch, state, reason in self._rows(sql.IN_HAND, worker=worker)
        ]

    def expire(self, now: int) -> int:
        with self._db.write() as db:
            batch = Batch(db, now)
            batch.ready = bool(db.execute(stops.EXPIRE_UNDOABLE, {"now": now}).fetchall())
            batch.ended = {row[0] for row in db.execute(stops.EXPIRE, {"now": now})}
            batch.due = bool(batch.ended)
            batch.unblock(batch.ended)
        self._tell(batch)
        return len(batch.ended)

    def strand(self, worker: str, functions: Mapping[str, str], now: int) -> int:
        del worker, now
        with self._db.write() as db:
            return db.execute(_STRAND, {"functions": json.dumps(dict(functions))}).rowcount

    # -- from anywhere -------------------------------------------------------------------------------------------------
    def cancel(self, ids: Sequence[str], reason: str | None, now: int) -> dict[str, bool]:
        values = {"ids": json.dumps(list(ids)), "reason": reason, "now": now}
        with self._db.write() as db:
            in_hand = Stops(db.execute(stops.CANCEL_IN_HAND, values).fetchall(), State.CANCELLING, reason)
            later = {row[0] for row in db.execute(stops.CANCEL_UNDOABLE, values).fetchall()}
            at_once = {row[0] for row in db.execute(stops.CANCEL_AT_ONCE, values)}
            batch = Batch(db, now)
            batch.ready = bool(later)
            batch.ended = at_once
            batch.due = bool(at_once)
            batch.poked, batch.stops = in_hand.owners, in_hand.pokes
            batch.unblock(at_once)
        self._tell(batch)
        return {run: run in in_hand.runs or run in at_once or run in later for run in ids}

    def terminate(self, ids: Sequence[str], reason: str | None, now: int) -> dict[str, bool]:
        with self._db.write() as db:
            rows = db.execute(stops.TERMINATE, {"ids": json.dumps(list(ids)), "reason": reason, "now": now}).fetchall()
            batch = Batch(db, now)
            batch.ended = {row[0] for row in rows}
            batch.due = bool(rows)
            owned = Stops(rows, State.CANCELLED, reason)
            batch.poked, batch.stops = owned.owners, owned.pokes
            batch.unblock(batch.ended)
        self._tell(batch)
        return {run: run in batch.ended for run in ids}

    def endings(self, ids: Iterable[str]) -> dict[str, Ending | None]:
        with self._db.read() as db:
            return {row[0]: sql.to_ending(row) for row in db.execute(ENDING, (json.dumps(list(ids)),))}

    def run(self, run_id: str) -> Run | None:
        with self._db.read() as db:
            row = db.execute(sql.RUN, {"id": run_id}).fetchone()
            return sql.to_run(row) if row else None

    def steps(self, run_id: str) -> list[Step]:
        with self._db.read() as db:
            return [sql.to_step(row) for row in db.execute(sql.STEPS, {"run": run_id})]

    def step(self, run_id: str, position: str) -> Step | None:
        with self._db.read() as db:
            row = db.execute(sql.STEP, {"run": run_id, "position": position}).fetchone()
            return sql.to_step(row) if row else None

    def _read(self, statement: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        with self._db.read() as db:
            return db.execute(statement, values).fetchall()

    def runs(self, wanted: RunFilter) -> list[Run]:
        return runs_page(self._rows, self._filters, wanted)

    def _manage(self, ids: Sequence[str], now: int, act: Callable[[Desk], T]) -> T:
        del ids  # whoever writes holds everything
        with self._db.write() as db:
            batch = Batch(db, now)
            answer = act(SqliteDesk(batch, db))
            batch.unblock(batch.ended)
        self._tell(batch)
        return answer

    def counts(self) -> dict[str, int]:
        return dict(self._rows(sql.COUNTS))

    @contextlib.contextmanager
    def _snapshot(self, ids: Sequence[str]) -> Generator[Rows]:
        del ids  # nothing is held
        with self._db.snapshot() as db:
            yield lambda statement, **values: db.execute(statement, values).fetchall()

    def _rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        with self._db.read() as db:
            return db.execute(statement, values).fetchall()

    def _do(self, *work: tuple[str, Sequence[Mapping[str, Any]]]) -> None:
        with self._db.write() as db:
            for statement, values in work:
                db.executemany(statement, values)


def script() -> str:
    """The whole schema as SQL."""
    return schema.script()
