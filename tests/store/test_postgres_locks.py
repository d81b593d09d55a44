"""What happens when somebody else has a row: every interleaving that could lose something, forced with real locks."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from mainspring.errors import StoreUnavailable
from mainspring.model.clock import SystemClock
from mainspring.model.queues import Limits, Queue
from mainspring.model.runs import Step
from mainspring.model.states import State
from mainspring.store.committer import Committer
from mainspring.store.messages import Entry, Post
from mainspring.store.postgres import batch, queue_claims
from mainspring.store.postgres.database import Connection
from mainspring.store.postgres.libpq import Wire
from mainspring.store.postgres.store import PostgresStore
from mainspring.store.sql.runs import FIND_OWNED, RETIRE
from mainspring.store.writes import RecordAndSend, Recorded, RecordStep, Send, Start, Started, Verdict
from tests.store.build import (
    NOW,
    claim,
    finish,
    get,
    owned,
    request,
    rest,
    run,
    start,
    state,
    step,
    wait_for,
    worker,
    write,
)
from tests.store.proxies import TransactionPooler
from tests.store.test_conformance_signals import Ear

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from mainspring.store.protocol import Claimed, Store
    from mainspring.store.transaction import Script, Transaction

PATIENCE = 20
BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.fixture(autouse=True)
def long_moments() -> None:
    """None here: somebody holds runs for long, on purpose."""


@pytest.fixture
def store(postgres_url: str) -> Iterator[Store]:
    made = PostgresStore(postgres_url)
    with closing(made):
        made.open()
        yield made


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as made:
        yield made


class Somebody:
    """A transaction of somebody else's."""

    def __init__(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        self._db = connection

    def does(self, *statements: str) -> None:
        for statement in statements:
            self._db.execute(statement.encode())

    def commits(self) -> None:
        self._db.commit()


@contextmanager
def somebody(url: str) -> Generator[Somebody]:
    connection = psycopg.connect(url)
    try:
        connection.execute(b"SET search_path TO mainspring")
        connection.commit()
        yield Somebody(connection)
        connection.rollback()
    finally:
        connection.close()


def is_blocked(url: str) -> bool:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(BLOCKED.encode()).fetchone()
    return row is not None and row[0] != 0


def until_blocked(url: str, work: Future[Any]) -> None:
    """Wait until somebody waits for a lock, so that what follows comes at the worst of moments."""
    for _ in range(PATIENCE * 100):
        if is_blocked(url):
            return
        assert not work.done(), work.result()
    raise AssertionError("nobody waits")


# -- the fence ---------------------------------------------------------------------------------------------------------
def test_a_takeover_waits_for_a_checkpoint_that_is_being_written_and_sees_it(
    store: Store, postgres_url: str, pool: ThreadPoolExecutor
) -> None:
    start(store, owned("a", "zombie"))
    with somebody(postgres_url) as zombie:
        zombie.does(
            "SELECT 1 FROM runs WHERE id = 'a' AND owner = 'zombie' AND epoch = 1 FOR SHARE",
            "INSERT INTO steps (run, position, kind, name, epoch) VALUES ('a', '0', 'step', 'late', 1)",
        )
        taken = pool.submit(store.retire, "zombie", NOW, None)
        until_blocked(postgres_url, taken)
        zombie.commits()
    assert taken.result(PATIENCE) == 1
    (back,) = claim(store, "w2")
    assert [each.name for each in back.steps] == ["late"]


def test_a_claim_passes_over_what_somebody_has_and_does_not_wait(store: Store, postgres_url: str) -> None:
    start(store, run("a"), run("b"))
    with somebody(postgres_url) as other:
        other.does("SELECT 1 FROM runs WHERE id = 'a' FOR SHARE")
        assert [each.run.id for each in claim(store)] == ["b"]
    assert [each.run.id for each in claim(store)] == ["a"]


def test_a_locked_run_does_not_hold_up_the_writes_of_others(store: Store, postgres_url: str) -> None:
    start(store, *(owned(f"r{number}") for number in range(5)))
    with somebody(postgres_url) as other:
        other.does("SELECT 1 FROM runs WHERE id = 'r2' FOR UPDATE")
        answers = store.apply([RecordStep("w1", step(f"r{number}")) for number in range(5)], NOW)
        assert answers == [Recorded(), Recorded(), Verdict.HELD, Recorded(), Recorded()]
        assert [len(store.steps(f"r{number}")) for number in range(5)] == [1, 1, 0, 1, 1]
        ends = store.apply([finish(f"r{number}") for number in range(5)], NOW)
        assert ends == [Verdict.DONE, Verdict.DONE, Verdict.HELD, Verdict.DONE, Verdict.DONE]
    assert write(store, step("r2")) == Recorded()


def test_later_writes_about_a_locked_run_are_held_up_with_the_first(store: Store, postgres_url: str) -> None:
    start(store, owned("a"))
    with somebody(postgres_url) as other:
        other.does("SELECT 1 FROM runs WHERE id = 'a' FOR UPDATE")
        assert store.apply([RecordStep("w1", step("a")), rest("a"), finish("a")], NOW) == [Verdict.HELD] * 3


def test_the_committer_makes_a_held_write_again_until_it_goes(
    store: Store, postgres_url: str, pool: ThreadPoolExecutor
) -> None:
    start(store, owned("a"), owned("b"))
    committer = Committer(store.apply, SystemClock())
    with closing(committer), somebody(postgres_url) as other:
        other.does("SELECT 1 FROM runs WHERE id = 'a' FOR UPDATE")
        held = pool.submit(committer.commit_sync, RecordStep("w1", step("a")))
        until_blocked(postgres_url, held)
        for number in range(3):
            assert committer.commit_sync(RecordStep("w1", step("b", str(number)))) == Recorded()
        other.commits()
        assert held.result(PATIENCE) == Recorded()


def test_an_id_in_somebodys_open_transaction_does_not_hold_up_other_starts(
    store: Store, postgres_url: str, pool: ThreadPoolExecutor
) -> None:
    with somebody(postgres_url) as other:
        other.does(
            "INSERT INTO runs (id, uid, workflow, kind, state, input, due, created)"
            " VALUES ('a', 'theirs', 'other', 'workflow', 'queued', '{}', 1, 1)"
        )
        answers = store.apply([Start(run(each)) for each in ("x", "a", "y")], NOW)
        assert [isinstance(answer, Started) for answer in answers] == [True, False, True]
        assert answers[1] is Verdict.HELD
        late = pool.submit(store.apply, [Start(run("a"))], NOW)
        until_blocked(postgres_url, late)
        other.commits()
        assert late.result(PATIENCE) == [Started(created=False, workflow="other", state=State.QUEUED)]


# -- wake-ups ----------------------------------------------------------------------------------------------------------
ENDS = "UPDATE runs SET state = 'succeeded', owner = NULL, output = '7', completed = 1 WHERE id = 'b'"
LOOKS_FOR_WAITERS = "SELECT run FROM steps WHERE child = 'b' AND completed IS NULL"
BEGINS_TO_WAIT = "INSERT INTO steps (run, position, kind, name, epoch, child) VALUES ('a', '0', 'result', 'b', 1, 'b')"


def test_who_begins_to_wait_while_the_run_is_just_ending_sees_the_end(
    store: Store, postgres_url: str, pool: ThreadPoolExecutor
) -> None:
    """The finisher has looked for waiters and found none; it has not committed. The waiter must not believe it goes on."""
    start(store, owned("a", "w1"), owned("b", "w2"))
    with somebody(postgres_url) as finisher:
        finisher.does(ENDS, LOOKS_FOR_WAITERS)
        waiting = pool.submit(write, store, wait_for("b"), "w1", watch="b", run_state=State.WAITING)
        until_blocked(postgres_url, waiting)
        finisher.commits()
    answer = waiting.result(PATIENCE)
    assert answer.ending is not None
    assert answer.ending.output == "7"
    assert state(store, "a") is State.RUNNING


def test_who_ends_while_somebody_is_just_beginning_to_wait_wakes_them(
    store: Store, postgres_url: str, pool: ThreadPoolExecutor
) -> None:
    """The waiter has seen that the run goes on; it has not committed. The finisher must not overlook it."""
    start(store, owned("a", "w1"), owned("b", "w2"))
    with somebody(postgres_url) as waiter:
        waiter.does("SELECT 1 FROM runs WHERE id IN ('a', 'b') ORDER BY id FOR SHARE", BEGINS_TO_WAIT)
        ending = pool.submit(store.apply, [finish("b", "w2")], NOW)
        until_blocked(postgres_url, ending)
        waiter.commits()
    assert ending.result(PATIENCE) == [Verdict.DONE]
    assert [notice.run for notice in store.notices("w1")] == ["a"]


def test_who_parks_while_a_child_is_just_ending_is_refused(
    store: Store, postgres_url: str, pool: ThreadPoolExecutor
) -> None:
    """Both are this worker's, so the finisher does not notice; it holds the waiter's row, and that must be enough."""
    start(store, owned("a"), owned("b"))
    write(store, wait_for("b"), watch="b", run_state=State.WAITING)
    with somebody(postgres_url) as finisher:
        finisher.does(ENDS, "SELECT 1 FROM runs WHERE id = 'a' FOR NO KEY UPDATE")
        parking = pool.submit(store.apply, [rest("a")], NOW)
        until_blocked(postgres_url, parking)
        finisher.commits()
    assert parking.result(PATIENCE) == [Verdict.NOTIFIED]
    assert get(store, "a").owner == "w1"


def test_who_ends_while_the_waiting_one_is_just_parking_readies_it(
    store: Store, postgres_url: str, pool: ThreadPoolExecutor
) -> None:
    start(store, owned("a"), owned("b"))
    write(store, wait_for("b"), watch="b", run_state=State.WAITING)
    with somebody(postgres_url) as parker:
        parker.does("UPDATE runs SET owner = NULL WHERE id = 'a'")
        ending = pool.submit(store.apply, [finish("b")], NOW)
        until_blocked(postgres_url, ending)
        parker.commits()
    assert ending.result(PATIENCE) == [Verdict.DONE]
    assert (state(store, "a"), get(store, "a").owner) == (State.QUEUED, None)


def test_an_end_whose_waiter_is_locked_for_long_is_held_up_and_others_are_not(store: Store, postgres_url: str) -> None:
    start(store, owned("a"), *(owned(f"r{number}", "w2") for number in range(20)))
    write(store, wait_for("r7"), watch="r7", run_state=State.WAITING)
    with somebody(postgres_url) as other:
        other.does("SELECT 1 FROM runs WHERE id = 'a' FOR SHARE")
        answers = store.apply([finish(f"r{number}", "w2") for number in range(20)], NOW)
        assert [number for number, answer in enumerate(answers) if answer is Verdict.HELD] == [7]
        assert state(store, "r7") is State.RUNNING
    assert store.apply([finish("r7", "w2")], NOW) == [Verdict.DONE]
    assert len(store.notices("w1")) == 1


def test_what_a_lost_worker_took_after_its_runs_were_locked_is_not_waited_for(
    store: Store, postgres_url: str, pool: ThreadPoolExecutor
) -> None:
    """Whoever waits with its hands full can be waited for in turn. Runs that are left with a lost worker are found as orphans."""
    start(store, owned("a"), owned("b"), owned("late", "w2"))
    with somebody(postgres_url) as other:

        def work(tx: Transaction) -> Script[list[tuple[Any, ...]]]:
            found = yield from tx.lock_found(FIND_OWNED, worker="w1")
            other.does("UPDATE runs SET owner = 'w1' WHERE id = 'late'")
            other.commits()
            other.does("SELECT 1 FROM runs WHERE id = 'late' FOR UPDATE")
            return (
                yield from tx.execute(RETIRE, ids=found, worker="w1", most=10, exhausted="{}", limits="{}", now=NOW)
            )

        transactor: Any = vars(store)["_transactor"]
        rows: Any = pool.submit(transactor.change, work, NOW).result(PATIENCE)
    assert sorted(row[0] for row in rows) == ["a", "b"]
    assert store.orphaned() == ["w1"]


# -- trees -------------------------------------------------------------------------------------------------------------
def test_a_child_that_is_just_being_started_is_cancelled_with_its_parent(
    store: Store, postgres_url: str, pool: ThreadPoolExecutor
) -> None:
    start(store, owned("a"))
    with somebody(postgres_url) as starter:
        starter.does(
            "SELECT 1 FROM runs WHERE id = 'a' FOR SHARE",
            "INSERT INTO runs (id, uid, workflow, kind, state, input, due, created, parent)"
            " VALUES ('a/0', 'u', 'wf', 'workflow', 'queued', '{}', 1, 1, 'a')",
        )
        cancelled = pool.submit(store.cancel, ["a"], None, NOW)
        until_blocked(postgres_url, cancelled)
        starter.commits()
    assert cancelled.result(PATIENCE) == {"a": True}
    assert (state(store, "a"), state(store, "a/0")) == (State.CANCELLING, State.CANCELLED)


def test_a_poke_that_somebody_is_just_holding_is_waited_for(
    store: Store, postgres_url: str, pool: ThreadPoolExecutor
) -> None:
    start(store, owned("a"), owned("b"))
    store.cancel(["a", "b"], None, NOW)
    with somebody(postgres_url) as other:
        other.does("SELECT 1 FROM runs WHERE id = 'a' FOR SHARE")
        notices = pool.submit(store.notices, "w1")
        until_blocked(postgres_url, notices)
        other.commits()
    assert {notice.run for notice in notices.result(PATIENCE)} == {"a", "b"}


# -- what stands still -------------------------------------------------------------------------------------------------
HOLD_QUEUE = "SELECT pg_advisory_xact_lock(hashtextextended('mainspring.q', 7290116))"


def take(store: Store, **changes: Any) -> Claimed:
    return store.claim(request("w1", 10, **changes))


def ids(claimed: Claimed) -> list[str]:
    return sorted(each.run.id for each in claimed.claims)


def test_a_queue_that_another_claim_has_locked_is_passed_over_and_everything_else_is_taken(
    store: Store, postgres_url: str
) -> None:
    for name in ("q", "free"):
        store.queues.set(Queue(name, Limits(concurrency=5), created=NOW))
    start(store, run("a", queue="q"), run("b", queue="free"), run("c"))
    with somebody(postgres_url) as other:
        other.does(HOLD_QUEUE)
        found = take(store)
        assert (ids(found), found.passed) == (["b", "c"], True)
        found = take(store)
        assert (ids(found), found.passed) == ([], True)
    found = take(store)
    assert (ids(found), found.passed) == (["a"], False)


def test_a_claim_that_finds_nothing_else_waits_a_moment_for_a_queue(
    store: Store, postgres_url: str, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_claims, "PATIENCE", "60s")
    store.queues.set(Queue("q", Limits(concurrency=5), created=NOW))
    start(store, run("a", queue="q"))
    with somebody(postgres_url) as other:
        other.does(HOLD_QUEUE)
        found = pool.submit(take, store)
        until_blocked(postgres_url, found)
        other.commits()
        assert (ids(found.result(PATIENCE)), found.result().passed) == (["a"], False)


def test_queues_that_are_as_they_are_declared_are_not_locked(store: Store, postgres_url: str) -> None:
    declared = [Queue("q", Limits(concurrency=5), declared='{"concurrency":5}', version="v1")]
    assert store.queues.declare(declared, NOW) == ["q"]
    with somebody(postgres_url) as other:
        other.does("SELECT 1 FROM queues FOR UPDATE", HOLD_QUEUE)
        assert store.queues.declare(declared, NOW) == []


@pytest.mark.parametrize("pooled", [False, True], ids=["direct", "pooled"])
def test_the_server_ends_a_transaction_that_stands_still(store: Store, postgres_url: str, *, pooled: bool) -> None:
    start(store, run("a"))
    with (
        TransactionPooler(postgres_url) if pooled else nullcontext() as pooler,
        closing(PostgresStore(pooler.url if pooler else postgres_url, lease=0.3)) as frozen,
    ):
        with pytest.raises(StoreUnavailable):
            stand_still(frozen, lambda: ids(take(store)) == ["a"])
        assert frozen.counts() == {"running": 1}  # over a new connection


def stand_still(store: Any, is_free: Callable[[], bool]) -> None:
    with store._db.transaction() as transaction:
        transaction.execute(b"SELECT 1 FROM mainspring.runs WHERE id = 'a' FOR UPDATE")
        assert not is_free()
        for _ in range(PATIENCE * 100):
            if is_free():
                break
            threading.Event().wait(0.01)
        else:
            raise AssertionError("it holds the run for ever")
        transaction.execute(b"SELECT 1")


def test_behind_a_pooler_the_limit_of_a_transaction_is_left_to_nobody(postgres_url: str) -> None:
    with TransactionPooler(postgres_url) as pooler, closing(PostgresStore(pooler.url, lease=10)) as pooled:
        pooled.open()
        start(pooled, run("a"))
        pooled.cancel(["a"], None, NOW)
        with psycopg.connect(pooler.url, autocommit=True) as stranger:
            shown = stranger.execute(b"SHOW idle_in_transaction_session_timeout").fetchone()
    assert shown == ("0",)


def test_a_run_that_is_locked_does_not_hold_up_the_recovery_of_the_others(store: Store, postgres_url: str) -> None:
    store.register(worker("w1"))
    start(store, owned("a"), owned("b"))
    with somebody(postgres_url) as frozen:
        frozen.does("SELECT 1 FROM runs WHERE id = 'a' FOR SHARE")
        assert store.retire("w1", NOW, None) == 1
        assert state(store, "b") is State.QUEUED
        assert store.orphaned() == ["w1"]
    assert store.retire("w1", NOW, None) == 1
    assert state(store, "a") is State.QUEUED


def test_a_run_that_is_locked_does_not_hold_up_the_time_limits_of_the_others(store: Store, postgres_url: str) -> None:
    start(store, run("a", deadline=NOW - 1), run("b", deadline=NOW - 1))
    with somebody(postgres_url) as frozen:
        frozen.does("SELECT 1 FROM runs WHERE id = 'a' FOR SHARE")
        assert store.expire(NOW) == 1
    assert store.expire(NOW) == 1


# -- talking -----------------------------------------------------------------------------------------------------------
def tell(run_id: str) -> Send:
    return Send(run_id, [Post(run_id, "t", "1", NOW)])


def test_whoever_holds_a_run_does_not_hold_up_what_is_said_to_others(store: Store, postgres_url: str) -> None:
    start(store, *(owned(f"r{number}") for number in range(5)))
    with somebody(postgres_url) as other:
        other.does("SELECT 1 FROM runs WHERE id = 'r2' FOR UPDATE")
        answers = store.apply([tell(f"r{number}") for number in range(5)], NOW)
        assert answers == [Recorded(), Recorded(), Verdict.HELD, Recorded(), Recorded()]
    assert store.apply([tell("r2")], NOW) == [Recorded()]
    assert [len(store.messages.received(f"r{number}")) for number in range(5)] == [1] * 5


def test_a_message_that_waits_for_its_run_has_a_number_after_the_one_it_waited_for(
    store: Store, postgres_url: str, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "_MOMENT", 60.0)
    start(store, owned("a"), owned("b"))
    with somebody(postgres_url) as other:
        other.does(
            "SELECT 1 FROM runs WHERE id = 'a' FOR NO KEY UPDATE",
            f"INSERT INTO messages (run, number, kind, topic, body, sent) VALUES ('a', 0, 'message', 't', '0', {NOW})",
        )
        said = pool.submit(store.apply, [tell("a"), tell("b"), tell("a")], NOW)
        until_blocked(postgres_url, said)
        other.commits()
    assert said.result(PATIENCE) == [Recorded()] * 3
    assert [(each.number, each.body) for each in store.messages.received("a")] == [(0, "0"), (1, "1"), (2, "1")]


def test_a_waiter_that_somebody_holds_is_woken_when_it_is_free(
    store: Store, postgres_url: str, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "_MOMENT", 60.0)
    start(store, owned("a"), owned("b"), owned("c"))
    write(store, Step("a", "0", "event", "e", started=NOW, epoch=1, child="b"), run_state=State.WAITING)
    with somebody(postgres_url) as other:
        other.does("SELECT 1 FROM runs WHERE id = 'a' FOR UPDATE")
        event = Send("b", [Entry("events", "b", "e", "1", NOW)])
        said = pool.submit(store.apply, [event, tell("c")], NOW)
        until_blocked(postgres_url, said)
        assert not said.done()
    assert said.result(PATIENCE) == [Recorded()] * 2
    assert [notice.run for notice in store.notices("w1")] == ["a"]


def test_sending_and_receiving_are_one_round_trip_each(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    start(store, owned("a"))
    write(store, Step("a", "0", "receive", "t", started=NOW, epoch=1, child="a"), run_state=State.WAITING)
    store.apply([tell("a")], NOW)  # prepared now
    trips: list[str] = []
    count(monkeypatch, Wire, "execute", trips)
    count(monkeypatch, Connection, "execute", trips)
    assert store.apply([tell("a")], NOW) == [Recorded()]
    assert trips == ["execute"]
    taken = Step("a", "0", "receive", "t", seq=0, output="1", completed=NOW, epoch=1, child="a")
    assert store.apply([RecordAndSend("w1", taken, run_state=State.RUNNING, takes=0)], NOW) == [Recorded()]
    assert trips == ["execute"] * 2


def test_starts_of_one_batch_with_the_same_key_do_not_fail_the_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips: list[str] = []
    count(monkeypatch, Wire, "execute", trips)
    made = store.apply([Start(run(f"r{number}", key=f"k{max(1, number)}")) for number in range(20)], NOW)
    assert [each.created for each in made if isinstance(each, Started)] == [True, False, *[True] * 18]
    assert trips == ["execute"]  # the one that is left is applied alone


def test_a_worker_of_the_same_store_hears_what_is_said_without_a_poke(store: Store) -> None:
    store.register(worker("w1"))
    start(store, owned("a", "w1"), owned("b", "w2"))
    for each, owner in (("a", "w1"), ("b", "w2")):
        waits = Step(each, "0", "receive", "t", started=NOW, epoch=1, child=each)
        write(store, waits, owner=owner, run_state=State.WAITING)
    ear = Ear(store)
    store.apply([tell("a"), tell("b")], NOW)
    assert [each.published for each in ear.arrived] == [frozenset({("a", "receive", "t"), ("b", "receive", "t")})]
    assert [each.notified for each in ear.arrived] == [frozenset({"w2"})]
    assert store.notices("w1") == []
    assert [notice.run for notice in store.notices("w2")] == ["b"]


def test_what_was_said_but_not_acknowledged_wakes_once_more_when_it_is_said_again(store: Store) -> None:
    start(store, owned("a", "w2"), owned("b"))
    write(store, Step("a", "0", "receive", "t", started=NOW, epoch=1, child="a"), owner="w2", run_state=State.WAITING)
    speak = RecordAndSend("w1", step("b"), outgoing=[Post("a", "t", "1", NOW)])
    for _ in range(2):
        assert store.apply([speak], NOW) == [Recorded()]
        assert [notice.run for notice in store.notices("w2")] == ["a"]
    assert len(store.messages.received("a")) == 1


def count(monkeypatch: pytest.MonkeyPatch, of: type, name: str, trips: list[str]) -> None:
    plain = getattr(of, name)

    def counted(*args: Any, **kwargs: Any) -> Any:
        trips.append(name)
        return plain(*args, **kwargs)

    monkeypatch.setattr(of, name, counted)


# -- transactions of users' functions in a frozen process ----------------------------------------------------------------
_STANDS_STILL = """
  SELECT count(*) FROM pg_stat_activity
  WHERE application_name LIKE 'mainspring %' AND state = 'idle in transaction' AND state_change < clock_timestamp() - interval '1 s'
"""


def test_transactions_that_stand_still_in_a_worker_that_is_declared_dead_end_with_it(postgres_url: str) -> None:
    """The next owner of its runs waits for the rows that a function of the user's has locked there. Other processes' transactions go on."""
    store = PostgresStore(postgres_url, lease=1)
    store.open()
    with (
        closing(store),
        closing(psycopg.connect(postgres_url, application_name="mainspring host-1")) as frozen,
        closing(psycopg.connect(postgres_url, application_name="mainspring host-12")) as alive,
        closing(psycopg.connect(postgres_url, autocommit=True)) as watcher,
    ):
        watcher.execute("CREATE TABLE accounts AS SELECT 1 AS id")
        frozen.execute("UPDATE accounts SET id = 2")
        alive.execute("SELECT 1")
        while watcher.execute(_STANDS_STILL).fetchall() != [(2,)]:
            time.sleep(0.01)
        store.register(worker("other-1-x"))
        store.retire("other-1-x", NOW, None)
        store.retire("host-1-abcd1234", NOW, None)
        watcher.execute("UPDATE accounts SET id = 3")
        with pytest.raises(psycopg.OperationalError):
            frozen.commit()
        alive.commit()
