"""Connections that break, servers that restart, poolers in between, processes that fork."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

import psycopg
import pytest

from mainspring.errors import InvalidInput, StoreFull, StoreUnavailable
from mainspring.model.clock import SystemClock
from mainspring.model.states import State
from mainspring.store.committer import Committer
from mainspring.store.postgres.database import describe, translate
from mainspring.store.postgres.store import PostgresStore
from mainspring.store.writes import Recorded, RecordStep, Start, Started
from tests.store.build import NOW, claim, done, finish, get, owned, rest, run, start, step, wait_for, worker, write
from tests.store.proxies import TransactionPooler
from tests.store.test_conformance_signals import Ear

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainspring.store.changes import Signal
    from mainspring.store.protocol import Store
    from tests.support.postgres import PostgresServer

CUT_WHO_WAITS = (
    b"SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    b" WHERE datname = current_database() AND wait_event_type = 'Lock'"
)
CHEAP = pytest.mark.parametrize("own_postgres", [{"fsync": False}], indirect=True)


@pytest.fixture
def store(postgres_url: str) -> Iterator[Store]:
    made = PostgresStore(postgres_url)
    with closing(made):
        made.open()
        yield made


# -- loss --------------------------------------------------------------------------------------------------------------
def test_a_server_that_cannot_be_reached_is_unavailable() -> None:
    store = PostgresStore("postgresql://127.0.0.1:1/none?connect_timeout=1")
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1"):
        store.open()


def test_a_url_that_cannot_be_read_is_refused_at_once() -> None:
    with pytest.raises(InvalidInput):
        PostgresStore("postgresql://host/name?nonsense=1")


def test_connections_that_were_cut_while_they_idled_are_found_out_before_they_are_used(
    store: Store, postgres_url: str, shared_postgres: PostgresServer
) -> None:
    together = threading.Barrier(4)

    def call() -> None:
        together.wait()
        store.counts()

    threads = [threading.Thread(target=call) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert shared_postgres.terminate_backends(postgres_url) >= 1
    for _ in range(4):
        assert store.counts() == {}


def test_a_connection_that_is_cut_while_it_is_used_is_unavailable_and_the_next_call_finds_a_new_one(
    store: Store, postgres_url: str
) -> None:
    start(store, owned("a"))
    with psycopg.connect(postgres_url) as other, ThreadPoolExecutor(1) as pool:
        other.execute(b"SELECT 1 FROM mainspring.runs WHERE id = 'a' FOR UPDATE")
        cut = pool.submit(store.cancel, ["a"], None, NOW)
        while not other.execute(CUT_WHO_WAITS).fetchall():
            assert not cut.done()
        with pytest.raises(StoreUnavailable):
            cut.result(20)
    assert get(store, "a").state is State.RUNNING


@CHEAP
def test_patient_writes_survive_a_restart_of_the_server(own_postgres: PostgresServer) -> None:
    store = PostgresStore(own_postgres.create_database())
    committer = Committer(store.apply, SystemClock())
    with closing(store), closing(committer):
        store.open()
        assert isinstance(committer.commit_sync(Start(owned("a"))), Started)
        own_postgres.stop("immediate")
        answers: list[object] = []
        writer = threading.Thread(target=lambda: answers.append(committer.commit_sync(RecordStep("w1", step("a")))))
        writer.start()
        with pytest.raises(StoreUnavailable):
            committer.commit_sync(RecordStep("w1", step("a", "1")), patient=False)
        own_postgres.start()
        writer.join(30)
        assert answers == [Recorded()]
        assert len(store.steps("a")) == 1


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (psycopg.errors.DiskFull("no space left on device"), StoreFull),
        (psycopg.errors.AdminShutdown("terminating connection"), StoreUnavailable),
        (psycopg.errors.CannotConnectNow("starting up"), StoreUnavailable),
        (psycopg.errors.TooManyConnections("sorry, too many clients already"), StoreUnavailable),
        (psycopg.errors.ReadOnlySqlTransaction("cannot execute INSERT in a read-only transaction"), StoreUnavailable),
        (psycopg.errors.QueryCanceled("canceling statement due to statement timeout"), StoreUnavailable),
        (psycopg.errors.IdleInTransactionSessionTimeout("terminating connection"), StoreUnavailable),
        (psycopg.OperationalError("server closed the connection unexpectedly"), StoreUnavailable),
        (psycopg.InterfaceError("the connection is closed"), StoreUnavailable),
        (psycopg.errors.DeadlockDetected("deadlock detected"), StoreUnavailable),
    ],
)
def test_what_the_database_cannot_help_with_is_told_apart(error: psycopg.Error, kind: type[Exception]) -> None:
    assert isinstance(translate(error, "here"), kind)
    assert "here" in str(translate(error, "here"))


def test_a_closed_store_says_so(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    store.open()
    store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        store.counts()


def test_a_forked_child_does_not_use_its_parents_connections(store: Store) -> None:
    start(store, run("a"))
    child = os.fork()
    if child == 0:  # as gunicorn does with what was loaded before
        os._exit(0 if store.run("a") is not None and store.counts() == {"queued": 1} else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert get(store, "a").id == "a"


# -- hearing -----------------------------------------------------------------------------------------------------------
def test_a_listener_that_was_cut_off_listens_again_and_looks_at_everything_once(
    store: Store, postgres_url: str, shared_postgres: PostgresServer
) -> None:
    ear = Ear(store)
    shared_postgres.terminate_backends(postgres_url)
    ear.wait(lambda signal: signal.notified is None)
    with closing(PostgresStore(postgres_url)) as other:
        ear.wait(lambda signal: signal.notified is None)
        for number in range(100):  # it takes a moment until it awaits again; until then it looks
            start(other, run(f"r{number}"))
            if any(signal.started for signal in ear.arrived):
                break
            ear.wait(lambda signal: signal.ready or bool(signal.started))
            threading.Event().wait(0.05)
        else:
            raise AssertionError("it never arrived anything again")


def test_a_process_hears_its_own_news_once(store: Store) -> None:
    ear = Ear(store)
    start(store, run("a"))
    start(store, owned("b"))
    done(store, finish("b"))
    ear.wait(lambda signal: bool(signal.ended))
    with closing(PostgresStore(store.url)) as other:
        start(other, run("last"))
    ear.wait(lambda signal: {run.id for run in signal.started} == {"last"})
    assert [signal.ended for signal in ear.arrived] == [frozenset(), frozenset({"b"}), frozenset()]


def test_pokes_of_a_great_crowd_fit_into_a_notification(store: Store, postgres_url: str) -> None:
    many = [f"worker-{number:03d}-with-quite-a-long-name" for number in range(300)]
    start(store, owned("child", "w0"), *(owned(f"of {each}", each) for each in many))
    store.apply(
        [RecordStep(each, wait_for("child", f"of {each}"), watch="child", run_state=State.WAITING) for each in many],
        NOW,
    )
    with closing(PostgresStore(postgres_url)) as other:
        ear = Ear(other)
        done(store, finish("child", "w0"))
        ear.wait(lambda signal: signal.notified is None)
        ear.arrived.clear()
        store.cancel([f"of {each}" for each in many], None, NOW)
        ear.wait(lambda signal: signal.notified is None)


# -- clocks ------------------------------------------------------------------------------------------------------------
def test_the_clock_of_the_same_machine_is_the_same_clock(store: Store) -> None:
    assert abs(store.clock_offset() or 0) < 1_000


def test_a_clock_that_differs_is_measured(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    right = SystemClock.now

    def slow(clock: SystemClock) -> int:
        return right(clock) - 5_000_000

    monkeypatch.setattr(SystemClock, "now", slow)
    assert abs((store.clock_offset() or 0) - 5_000_000) < 100_000


# -- poolers -----------------------------------------------------------------------------------------------------------
@pytest.fixture
def pooled(postgres_url: str) -> Iterator[Store]:
    """A store behind a pooler that lends connections by transaction."""
    with TransactionPooler(postgres_url) as pooler:
        made = PostgresStore(pooler.url)
        with closing(made):
            made.open()
            yield made


def test_behind_a_pooler_nothing_of_a_session_is_relied_on(pooled: Store, postgres_url: str) -> None:
    for number in range(10):
        parent, child = f"p{number}", f"c{number}"
        start(pooled, owned(parent), run(child))
        assert write(pooled, wait_for(child, parent), watch=child, run_state=State.WAITING) == Recorded()
        done(pooled, rest(parent))
        (taken,) = claim(pooled, "w2")
        assert taken.run.id == child
        assert write(pooled, step(child), owner="w2") == Recorded()
        done(pooled, finish(child, "w2"))
        assert get(pooled, parent).state is State.QUEUED
        assert pooled.cancel([parent], None, NOW) == {parent: True}
    pooled.register(worker())
    assert pooled.beat("w1", NOW) is not None
    assert pooled.retire("w1", NOW, None) == 0
    with psycopg.connect(postgres_url) as connection:
        left = connection.execute(b"SELECT count(*) FROM pg_prepared_statements").fetchone()
    assert left == (0,)


def test_behind_a_pooler_one_looks_instead_of_listening(pooled: Store, caplog: pytest.LogCaptureFixture) -> None:
    arrived: list[Signal] = []
    looked = threading.Event()

    def notify(signal: Signal) -> None:
        arrived.append(signal)
        looked.set()

    pooled.listen(notify)
    assert looked.wait(20)
    assert arrived[0].notified is None
    assert any("LISTEN does not work here" in record.message for record in caplog.records)


# -- settings of the server --------------------------------------------------------------------------------------------
def test_a_change_whose_answer_was_lost_is_looked_for_everywhere(
    store: Store, postgres_url: str, shared_postgres: PostgresServer
) -> None:
    ear = Ear(store)
    with psycopg.connect(postgres_url) as other, ThreadPoolExecutor(1) as pool:
        start(store, owned("a"))
        other.execute(b"SELECT 1 FROM mainspring.runs WHERE id = 'a' FOR UPDATE")
        cut = pool.submit(store.cancel, ["a"], None, NOW)
        while not other.execute(CUT_WHO_WAITS).fetchall():
            assert not cut.done()
        with pytest.raises(StoreUnavailable):
            cut.result(20)
    ear.wait(lambda signal: signal.notified is None)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ada:secret@db:5433/shop?sslmode=require", "postgresql://ada@db:5433/shop"),
        ("postgresql://ada@/shop?host=%2Fvar%2Frun&port=5433", "postgresql://ada@/shop?host=%2Fvar%2Frun&port=5433"),
        ("postgresql:///shop", "postgresql://localhost/shop"),
        ("postgresql://a:1,b:2/shop", "postgresql://a:1,b:2/shop"),
        ("postgresql://a,b/shop", "postgresql://a,b/shop"),
        ("postgresql://[::1]:5433/shop", "postgresql://[::1]:5433/shop"),
        ("postgresql://a%40b@db/my%2Fshop", "postgresql://a%40b@db/my%2Fshop"),
        ("host=db dbname=shop user=ada password=secret", "postgresql://ada@db/shop"),
    ],
)
def test_the_url_in_messages_can_be_pasted_and_has_no_password(url: str, shown: str) -> None:
    assert describe(url) == shown
    assert describe(shown) == shown
