"""Schedules that another transaction holds: on PostgreSQL, where a row is locked and not the whole database.

Inside a transaction of the user's a verb never retries by itself: its locks and its snapshot stay what they are, so only the owner
can. A scheduler that finds a row locked looks at the others, and does not spin.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import psycopg
import pytest

from mainspring import App, Overlap, Policy, Spec, Tx, run
from mainspring.model.clock import SECOND
from mainspring.schedules.definition import Definition
from mainspring.store.open import open_store
from mainspring.testing import VirtualClock
from tests.schedules.conftest import BEGIN, Stepped
from tests.store.build import StoreSettings, worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from psycopg import Connection

    from mainspring.store.protocol import Store

ALL = Policy(Overlap.ALLOW_ALL)


class Shop:
    """An app without a worker, a schedule that is only triggered, and a run that waits for a message."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.clock = VirtualClock(BEGIN)
        self.app = App(url, clock=self.clock)

        @self.app.workflow
        async def job() -> None:
            await run.receive("news")

        self.job = job
        self.app.schedules.create.sync("manual", job.bind(), Spec(), ALL)
        job.options(id="listener").start.sync()


def together(*work: Callable[[], object]) -> list[BaseException | None]:
    """What each raised, all at once. An end is waited for, not assumed."""
    raised: list[BaseException | None] = [None] * len(work)

    def one(number: int) -> None:
        try:
            work[number]()
        except BaseException as error:  # noqa: BLE001  (whatever it is, the test looks at it)
            raised[number] = error

    threads = [threading.Thread(target=one, args=(number,), daemon=True) for number in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "somebody has not come to an end"
    return raised


def test_of_two_transactions_that_wait_for_each_other_over_a_schedule_one_is_rolled_back(postgres_url: str) -> None:
    shop = Shop(postgres_url)
    both = threading.Barrier(2)

    def run_then_schedule() -> None:
        with psycopg.connect(postgres_url) as db, shop.app.joined(db):
            shop.app.send.sync("listener", "news", 1)
            both.wait()
            shop.app.schedules.trigger.sync("manual")

    def schedule_then_run() -> None:
        with psycopg.connect(postgres_url) as db, shop.app.joined(db):
            shop.app.schedules.trigger.sync("manual")
            both.wait()
            shop.app.send.sync("listener", "news", 2)

    raised = together(run_then_schedule, schedule_then_run)
    (lost,) = [error for error in raised if error is not None]
    assert isinstance(lost, psycopg.errors.DeadlockDetected)
    assert shop.app.schedules.describe.sync("manual").starts == 1


def test_a_transaction_whose_snapshot_is_older_than_the_schedule_is_retried_as_a_whole(postgres_url: str) -> None:
    shop = Shop(postgres_url)
    tried: list[int] = []

    @shop.app.transaction(isolation="repeatable read")
    def report(tx: Tx) -> str:
        tx.execute("SELECT 1")
        tried.append(len(tried))
        if len(tried) == 1:
            together(lambda: shop.app.schedules.trigger.sync("manual"))
        shop.app.schedules.trigger.sync("manual")
        return "done"

    assert together(report) == [None]
    assert tried == [0, 1]
    assert shop.app.schedules.describe.sync("manual").starts == 2


def test_a_plan_is_never_made_from_an_older_snapshot_than_what_a_trigger_has_added(postgres_url: str) -> None:
    """A trigger that has to wait changes no counter; the row is written all the same."""
    shop = Shop(postgres_url)
    shop.app.schedules.create.sync("one", shop.job.bind(), Spec(), Policy(Overlap.BUFFER_ONE))
    shop.app.schedules.trigger.sync("one")
    with psycopg.connect(postgres_url) as db:
        db.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        db.execute("SELECT 1 FROM mainspring.schedules")
        together(lambda: shop.app.schedules.trigger.sync("one"))  # waits, so that no other may
        with pytest.raises(psycopg.errors.SerializationFailure), shop.app.joined(db):
            shop.app.schedules.trigger.sync("one")
        db.rollback()
    assert shop.app.schedules.describe.sync("one").buffered == 1


def test_a_run_id_that_is_taken_behind_the_back_of_a_snapshot_is_for_the_owner_of_the_transaction(
    postgres_url: str,
) -> None:
    shop = Shop(postgres_url)
    shop.app.schedules.create.sync("s", shop.job.bind(), Spec(intervals=["5m"]), ALL)
    shop.clock._now += 300 * SECOND
    with psycopg.connect(postgres_url) as db:
        db.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        db.execute("SELECT 1 FROM mainspring.schedules")
        together(shop.job.options(id="s-2022-06-01T00:05:00Z").start.sync)

        def joined() -> None:
            with shop.app.joined(db):
                shop.app.schedules.pause.sync("s")

        (raised,) = together(joined)
        assert isinstance(raised, psycopg.errors.SerializationFailure)
        db.rollback()
    shop.app.schedules.pause.sync("s")
    assert [str(tick.outcome) for tick in shop.app.schedules.ticks.sync("s")] == ["start_failed"]


# -- schedulers ----------------------------------------------------------------------------------------------------------
@pytest.fixture
def store(postgres_url: str) -> Iterator[Store]:
    made = open_store(postgres_url, StoreSettings())
    made.open()
    made.register(worker())
    yield made
    made.close()


def held(db: Connection[tuple[object, ...]], prefix: str) -> None:
    db.execute("SELECT 1 FROM mainspring.schedules WHERE starts_with(id, %s) FOR UPDATE", (prefix,))


def test_a_scheduler_rests_while_another_transaction_holds_what_is_due(store: Store, postgres_url: str) -> None:
    stepped = Stepped(store)
    stepped.create("5m")
    stepped.to("00:05")
    with psycopg.connect(postgres_url) as db:
        held(db, "s")
        passed = stepped.pass_once()
        assert (passed.planned, passed.more) == (0, False)
        assert passed.next_due is not None
        assert stepped.time + SECOND // 10 < passed.next_due <= stepped.time + SECOND
        db.rollback()
    assert stepped.pass_once().planned == 1


def test_a_scheduler_that_finds_one_held_is_on_time_for_the_next(store: Store, postgres_url: str) -> None:
    stepped = Stepped(store)
    stepped.create("5m")
    soon = Definition("soon", "wf", "{}", Spec(intervals=["1s"]))
    stepped.to("00:05")
    stepped.schedules.create(soon)
    stepped.time += SECOND - 1_000
    with psycopg.connect(postgres_url) as db:
        db.execute("SELECT 1 FROM mainspring.schedules WHERE id = 's' FOR UPDATE")
        assert stepped.pass_once().next_due == stepped.time + 1_000


def test_many_schedules_that_are_held_keep_no_other_waiting(store: Store, postgres_url: str) -> None:
    stepped = Stepped(store)
    for name in [*(f"held-{number}" for number in range(25)), "zfree"]:
        stepped.schedules.create(Definition(name, "wf", "{}", Spec(intervals=["5m"])))
    stepped.to("00:05")
    with psycopg.connect(postgres_url) as db:
        held(db, "held-")
        assert stepped.pass_once().planned == 1  # of ten at a time
        assert stepped.schedules.describe("zfree").starts == 1
