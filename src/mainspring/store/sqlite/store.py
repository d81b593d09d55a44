"""The store's verbs on SQLite. Writers take turns, so no row changes during a write transaction."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from mainspring.errors import SchemaError, StoreError, StoreUnavailable
from mainspring.store import migrations
from mainspring.store.changes import EVERYTHING
from mainspring.store.sql.dialect import prefixed
from mainspring.store.sql.records import to_notices
from mainspring.store.sql.runs import NOTICE_READ
from mainspring.store.sql_store import SqlStore
from mainspring.store.sqlite import schema, turns
from mainspring.store.sqlite.batch import BAD_DATA, Batch, record_alone
from mainspring.store.sqlite.claims import Claiming
from mainspring.store.sqlite.database import Database
from mainspring.store.sqlite.executor import SqliteTransactor
from mainspring.store.sqlite.transactions import SqliteTransactions
from mainspring.store.writes import Recorded, is_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainspring.store.changes import Notice, Signal
    from mainspring.store.protocol import Claimed, ClaimRequest, SchemaReport
    from mainspring.store.verbs.defects import Defect
    from mainspring.store.writes import Op, Result

log = logging.getLogger("mainspring.store")

_WATCH_SECONDS = 0.025
_KEEN_SECONDS = 0.003
_KEEN_LOOKS = 200
"""A watcher that has just noticed a commit of another process polls more often for a while, because more commits may follow."""
_BESIDE = (
    "the tables of {url} are not there yet, or not up to date, and cannot be made while a transaction is open on the file; roll it "
    "back, and make them before: enter the app or use any other verb of it first, or run `mainspring db migrate --url {url}`"
)


_NOTIFIED = "owner = :worker AND needs_attention = 1"
_HAS_NOTICES = f"SELECT 1 FROM runs WHERE {_NOTIFIED} LIMIT 1"
_TAKE_NOTICES = f"UPDATE runs SET {NOTICE_READ} WHERE {_NOTIFIED} RETURNING id, epoch, state, reason"


class SqliteStore(SqlStore):
    """A store in a SQLite file, as `mainspring.store.protocol.Store` specifies it."""

    def __init__(self, path: str, *, url: str, synchronous: str = "FULL", lease: float = 15.0) -> None:
        self.url = url
        self._db = Database(path, synchronous=synchronous, lease=lease)
        self.at_once = self._db.at_once if self._db.prompt else None
        transactor = SqliteTransactor(self._db, self._publish)
        super().__init__(transactor)
        self.transactions = SqliteTransactions(self._db, self._signal)
        self._closing = threading.Event()
        self._watcher: threading.Thread | None = None
        self._claims: Counter[frozenset[str]] = Counter()
        """By functions: the number of claims. Claims for some functions and for all take turns, and each kind serves all queues."""
        self._turns: dict[str, str] = {}

    # -- opening and closing -------------------------------------------------------------------------------------------
    def open(self, *, migrate: bool = True, beside: bool = False) -> None:
        try:
            self._db.open(wait=not beside)
            self._make_ready(migrate=migrate, beside=beside)
        except StoreUnavailable as error:
            if beside:  # the tables of a new file cannot be made beside a transaction
                raise SchemaError(_BESIDE.format(url=self.url)) from error
            raise

    def _make_ready(self, *, migrate: bool, beside: bool) -> None:
        report = self.schema_report()
        if not migrate:
            migrations.require_current(report, self.url)
        migrations.refuse_foreign(report, self.url)
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

    def notify_only_self(self, notify: Callable[[Signal], None]) -> None:
        """Like `listen`, but without a thread that watches for other processes: for a simulation of them in this process."""
        self._notify = notify

    def changes(self) -> int:
        """The number of rows that this object has changed so far."""
        return self._db.changes()

    def listen(self, notify: Callable[[Signal], None]) -> None:
        self._notify = notify
        seen = self._db.foreign_commits()  # read before this returns, so that every later commit is noticed
        self._watcher = threading.Thread(
            target=self._watch, args=(notify, seen), name="mainspring-watcher", daemon=True
        )
        self._watcher.start()

    def _watch(self, notify: Callable[[Signal], None], seen: int) -> None:
        """Watch the file's version, which other processes' commits change, and notify that anything may have changed."""
        keen = 0
        while not self._closing.is_set():
            time.sleep(_KEEN_SECONDS if keen else _WATCH_SECONDS)  # costs half as much as waiting for an event
            keen = max(0, keen - 1)
            try:
                version = self._db.foreign_commits()
            except StoreError as error:
                log.warning("cannot poll the database for changes of other processes; retrying: %s", error)
                continue
            if version != seen:
                keen = _KEEN_LOOKS
                notify(EVERYTHING)
            seen = version

    def announce(self, claimed: Sequence[str]) -> None:
        """Do nothing: other processes notice that the file has changed."""

    def blockers(self, *, everywhere: bool = False) -> list[str]:
        del everywhere  # there is only one writer
        return [str(holder) for holder in turns.holders(self._db.path)]

    def server_state(self) -> None:
        return None

    def clock_offset(self) -> None:
        return None

    def schema_report(self) -> SchemaReport:
        with self._db.read() as db:
            return schema.report(db)

    def inspect(self, now: int, *, thorough: bool) -> list[Defect]:
        return list(schema.inspect(self._rows_as_they_are, now, thorough=thorough))

    def _rows_as_they_are(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """Rows, or the database's own error: a check reports what is wrong with the database."""
        with self._db.read_untranslated() as db:
            return db.execute(prefixed(statement), values).fetchall()

    def size(self) -> int:
        return self._db.size()

    # -- writes of the committer ---------------------------------------------------------------------------------------
    def apply(self, ops: Sequence[Op], now: int) -> list[Result | Exception]:
        try:
            if len(ops) == 1 and is_checkpoint(op := ops[0]):
                with self._db.write_alone() as connection:
                    if self._db.patiently(partial(record_alone, connection, op)):
                        return [Recorded()]
            with self._db.write() as connection:
                batch = Batch(connection, now)
                answers = batch.apply(ops)
        except BAD_DATA as error:
            if len(ops) > 1:
                raise
            return [error]
        self._publish(batch.changes)
        return answers

    # -- verbs of workers that execute runs ----------------------------------------------------------------------------
    def claim(self, request: ClaimRequest) -> Claimed:
        functions = frozenset(request.functions)
        self._claims[functions] += 1
        with self._db.write() as connection:
            return Claiming(connection, request.at_present(), self._claims[functions], self._turns).claim()

    def notices(self, worker: str) -> list[Notice]:
        if not self._transactor.read(_HAS_NOTICES, worker=worker):
            return []
        return to_notices(self._transactor.execute(_TAKE_NOTICES, worker=worker))
