"""However many functions are pending, and however many have ended: what is done all the time goes by an index."""

from __future__ import annotations

import asyncio
import itertools
import threading
from typing import TYPE_CHECKING, Any

from mainspring import App, State, Tx
from mainspring.operations.scheduled_functions import STATES
from mainspring.queues.fairness import FAIR
from mainspring.store.open import open_store
from mainspring.store.protocol import ClaimRequest
from mainspring.store.sql.dialect import prefixed
from mainspring.store.sql.runs import COUNT_BY_STATE as COUNTS
from mainspring.store.verbs.prune import Keep
from mainspring.store.verbs.scheduled_functions import FunctionFilter
from mainspring.testing import world
from tests.transactions import bank

if TYPE_CHECKING:
    from mainspring import SyncFn
    from mainspring.app.settings import Settings
    from mainspring.store.protocol import Store

MANY = 20_000
DAY = 86_400_000_000
NOW = 1_800_000_000_000_000
COLUMNS = "id, uid, workflow, kind, state, input, due, created, completed, scheduled_time"


def fill(url: str, prefix: str, state: str, workflow: str, *, ended: bool, function: bool) -> None:
    """Many rows: pending ones are due later, ended ones have ended before."""
    number = "n" if bank.is_sqlite(url) else "n::bigint"
    numbers = (
        f"WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {MANY})"
        if bank.is_sqlite(url)
        else f"WITH numbers AS (SELECT n FROM generate_series(1, {MANY}) n)"
    )
    time = f"{NOW} {'-' if ended else '+'} {number} * 1000000"
    # One name for each hundred: a query for one of them has little to do with the rest.
    name = f"'{workflow}' || ({number} % 100)"
    bank.execute(
        url,
        f"INSERT INTO {bank.runs_table(url)} ({COLUMNS}) {numbers} "
        f"SELECT '{prefix}' || n, '{prefix}' || n, {name}, 'step', '{state}', '{{}}', {time}, {NOW}, "
        f"{time if ended else 'NULL'}, {time if function else 'NULL'} FROM numbers",
    )


def filled(url: str, settings: Settings) -> None:
    store = open_store(url, settings)
    store.open()
    store.close()
    fill(url, "a", "scheduled", "later", ended=False, function=True)
    fill(url, "b", "succeeded", "later", ended=True, function=True)
    fill(url, "c", "failed", "plain", ended=True, function=False)
    bank.execute(url, "ANALYZE")


def everyday(store: Store) -> None:
    """What workers, users and the pruner ask all the time."""
    request = ClaimRequest(
        worker="w", version="v", functions={"later1": "f", "plain1": "f"}, limit=10, now=NOW, policy=FAIR
    )
    assert store.claim(request).claims == []
    due = ClaimRequest(worker="w", version="v", functions={"later1": "f"}, limit=1, now=NOW + 2_000_000, policy=FAIR)
    assert len(store.claim(due).claims) == 1
    functions = store.functions
    assert functions.get("a5") is not None
    for wanted in (
        FunctionFilter(limit=10),
        FunctionFilter(names=["later7"], limit=10),
        FunctionFilter(names=["later7"], states=STATES["pending"], limit=10),
        FunctionFilter(states=STATES["success"], due_after=NOW - DAY, limit=10),
        FunctionFilter(due_before=NOW + 60_000_000, states=STATES["pending"], limit=10),
    ):
        assert len(functions.page(wanted)) == 10
    keep = Keep(runs=DAY, functions=DAY, names={"plain7": 2 * DAY})
    assert store.retention.prune(store.retention.due(keep, NOW), 100) == 0
    assert store.retention.prune(store.retention.due(keep, NOW + DAY - (MANY - 50) * 1_000_000), 10) == 10


def test_on_sqlite_no_statement_reads_all_runs(sqlite_url: str) -> None:
    app = App(sqlite_url)
    filled(sqlite_url, app.settings)
    store: Any = open_store(sqlite_url, app.settings)
    store.open()
    said: list[str] = []
    connect = store._db._connect

    def traced() -> Any:
        made = connect()
        made.set_trace_callback(said.append)
        return made

    store._db._connect = traced
    store._db._writer.set_trace_callback(said.append)
    everyday(store)
    store.close()
    with bank.database(sqlite_url) as db:
        for statement in dict.fromkeys(said):
            if statement.lstrip().startswith(("SELECT", "UPDATE", "DELETE", "WITH", "INSERT")):
                for step in db.execute(f"EXPLAIN QUERY PLAN {statement}"):
                    whole = step[3].startswith("SCAN") and "INDEX" not in step[3]
                    names = step[3].split()
                    assert not (whole and names[1] in {"runs", "r", "f", "n", "o", "p", "c"}), (step[3], statement)


def test_on_postgres_no_statement_reads_all_runs(postgres_url: str) -> None:
    app = App(postgres_url)
    filled(postgres_url, app.settings)
    scans = "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'runs'"
    before = bank.value(postgres_url, scans)
    store = open_store(postgres_url, app.settings)
    store.open()
    everyday(store)
    store.close()  # when a connection ends, its figures are there
    for _ in range(100):
        if bank.value(postgres_url, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()") == 1:
            break
    assert bank.value(postgres_url, scans) == before


def test_what_is_alive_is_counted_without_a_look_at_what_has_ended(url: str) -> None:
    app = App(url)
    store = open_store(url, app.settings)
    store.open()
    fill(url, "c", "failed", "plain", ended=True, function=False)
    bank.execute(url, "ANALYZE")
    assert store.counts() == {}
    store.close()
    with bank.database(url) as db:
        plan = "EXPLAIN QUERY PLAN" if bank.is_sqlite(url) else "EXPLAIN"
        text = prefixed(COUNTS) if bank.is_sqlite(url) else COUNTS.replace("FROM runs", f"FROM {bank.runs_table(url)}")
        steps = [str(row[-1]) for row in db.execute(f"{plan} {text}")]
    assert any("runs_owner" in step for step in steps)
    assert not [step for step in steps if step == "SCAN runs" or "Seq Scan on runs" in step], steps


# -- racing ------------------------------------------------------------------------------------------------------------
async def test_of_two_workers_that_have_the_same_run_one_commits(postgres_url: str) -> None:
    """The first is declared dead in the middle of its transaction; the second makes it; the first one's rows are rolled back."""
    bank.execute(postgres_url, "CREATE TABLE ledger (entry text NOT NULL)")
    began, go_on = threading.Event(), threading.Event()
    tried: list[str] = []

    def bank_of(number: int) -> tuple[App, SyncFn[[str], int]]:
        app = App("sqlite://")

        @app.transaction
        def enter(tx: Tx, entry: str) -> int:
            tried.append(f"{entry} by {number}")
            tx.execute("INSERT INTO ledger VALUES (?)", (f"{entry} by {number}",))
            if number == 0:
                began.set()
                assert go_on.wait(60)
            return number

        return app, enter

    (first, enter), (second, _) = bank_of(0), bank_of(1)

    async with world(first, url=postgres_url) as w:
        handle = await first.run_after(0, enter.bind("x"))
        await asyncio.to_thread(began.wait, 60)
        store = first._runtime.connection().store
        engine = first._runtime.engine
        assert engine is not None
        first.pause()
        await asyncio.to_thread(store.retire, engine.worker_id, first._runtime.clock.now(), None)
        async with world(second, url=postgres_url, at=w.now):
            assert await second.handle(handle.id).result() == 1
        go_on.set()
        await engine.wait_until_empty(60)
        assert (await handle.describe()).state is State.SUCCEEDED
    assert tried == ["x by 0", "x by 1"]
    assert bank.rows(postgres_url, "SELECT entry FROM ledger") == [("x by 1",)]


async def test_a_worker_that_lost_its_run_before_the_transaction_leaves_no_trace(store_url: str) -> None:
    """Whoever was declared dead and does not know it has its rows rolled back with its record; the next one's stay."""
    bank.execute(store_url, "CREATE TABLE ledger (entry text NOT NULL)")
    began, go_on = asyncio.Event(), asyncio.Event()
    tries = itertools.count(1)
    app = App("sqlite://")

    @app.transaction
    def enter(tx: Tx) -> int:
        number = next(tries)
        tx.execute("INSERT INTO ledger VALUES (?)", (f"try {number}",))
        return number

    @app.workflow
    async def entering() -> int:
        began.set()
        await go_on.wait()
        return await enter.aio()

    async with world(app, url=store_url):
        handle = await entering.start()
        await asyncio.wait_for(began.wait(), 60)
        engine, store = app._runtime.engine, app._runtime.connection().store
        assert engine is not None
        await asyncio.to_thread(store.retire, engine.worker_id, app._runtime.clock.now(), None)
        go_on.set()
        # It is taken anew, and made once; what the one who lost it does, sooner or later, is in vain.
        made = await handle.result()
        await engine.wait_until_empty(60)
    assert bank.rows(store_url, "SELECT entry FROM ledger") == [(f"try {made}",)]
