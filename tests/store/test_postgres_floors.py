"""Claims that begin at a floor, as they do while an old snapshot makes a look at everything slow, find what a look at everything finds.

No claim of these tests looks at everything by the clock: what they find, they find because something told them.
"""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from mainspring import App, Declaration, Spec, testing
from mainspring.model.queues import Limits, Queue
from mainspring.model.states import State
from mainspring.store.open import open_store
from mainspring.store.postgres import floors
from mainspring.store.postgres.claim_statements import ABOVE_FLOORS, COUNT_PLACED, FULL
from mainspring.store.postgres.dialect import Dialect
from mainspring.store.sql import schedules as sql
from mainspring.store.sql.retention import PRUNE
from mainspring.store.verbs.prune import Keep
from tests.store.build import (
    NOW,
    SECOND,
    StoreSettings,
    claim,
    done,
    finish,
    owned,
    release,
    request,
    rest,
    run,
    sleep,
    start,
    write,
)
from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainspring.model.runs import Claim
    from mainspring.store.changes import Signal
    from mainspring.store.protocol import Store


@pytest.fixture
def store(other: Store, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store whose claims begin at floors."""
    monkeypatch.setattr(floors, "_QUICK", -1)
    monkeypatch.setattr(floors, "_PAUSE", 3600.0)
    other.queues.set(Queue("q", Limits(concurrency=50), created=NOW))
    with closing(open_store(postgres_url, StoreSettings())) as made:
        yield made


@pytest.fixture
def other(postgres_url: str) -> Iterator[Store]:
    """The store of another process."""
    with closing(open_store(postgres_url, StoreSettings())) as made:
        made.open()
        yield made


@pytest.fixture(params=["q", None], ids=["queue", "no queue"])
def queue(request: pytest.FixtureRequest) -> str | None:
    name: str | None = request.param
    return name


def ids(claims: list[Claim]) -> list[str]:
    return [each.run.id for each in claims]


def end(store: Store, claims: list[Claim]) -> None:
    for each in claims:
        done(store, finish(each.run.id, epoch=each.run.epoch))


def begin(store: Store, queue: str | None, **changes: Any) -> None:
    """Claim and finish runs, so that there are floors at NOW and a second later."""
    for number, due in enumerate((NOW, NOW, NOW + SECOND)):
        start(store, run(f"before-{changes.get('partition')}-{number}", queue=queue, due=due, **changes))
        end(store, claim(store, now=NOW + SECOND))


def test_runs_are_claimed_in_their_order_once(store: Store, queue: str | None) -> None:
    start(store, *(run(f"{number:03}", queue=queue, due=NOW + number * SECOND // 5) for number in range(40)))
    found: list[str] = []
    while claims := claim(store, limit=3, now=NOW + 60 * SECOND):
        found += ids(claims)
        end(store, claims)
    assert found == [f"{number:03}" for number in range(40)]


def test_a_run_that_was_due_long_ago_is_found_at_once(store: Store, queue: str | None) -> None:
    begin(store, queue)
    start(store, run("late", queue=queue, due=NOW - 60 * SECOND))
    assert ids(claim(store, now=NOW + SECOND)) == ["late"]


def test_a_run_of_another_process_that_was_due_long_ago_is_found_at_once(
    store: Store, other: Store, queue: str | None
) -> None:
    """As when a transaction of a user commits long after it has started a run."""
    begin(store, queue)
    arrived: list[Signal] = []
    store.listen(arrived.append)
    eventually(lambda: bool(arrived), "it listens")
    claim(store, now=NOW + SECOND)
    start(other, run("late", queue=queue, due=NOW - 60 * SECOND))
    eventually(lambda: any(signal.overdue and bool(signal.started) for signal in arrived), "it is notified")
    assert ids(claim(store, now=NOW + SECOND)) == ["late"]


def test_a_run_with_a_smaller_priority_is_found_at_once(store: Store, queue: str | None) -> None:
    begin(store, queue)
    start(store, run("urgent", queue=queue, priority=-1, due=NOW + SECOND), run("next", queue=queue, due=NOW + SECOND))
    assert ids(claim(store, now=NOW + SECOND, limit=1)) == ["urgent"]
    assert ids(claim(store, now=NOW + SECOND)) == ["next"]


def test_a_run_that_is_handed_back_is_found_at_once(store: Store, queue: str | None) -> None:
    start(store, run("first", queue=queue))
    (first,) = claim(store, now=NOW + SECOND)
    begin(store, queue)
    done(store, release("first", epoch=first.run.epoch, unbegun=first.run.uid))
    assert ids(claim(store, now=NOW + SECOND)) == ["first"]


def test_a_run_of_a_dead_worker_is_found_at_once(store: Store, queue: str | None) -> None:
    start(store, run("first", queue=queue))
    claim(store, "dead", now=NOW + SECOND)
    begin(store, queue)
    store.retire("dead", NOW + SECOND, None)
    assert ids(claim(store, now=NOW + SECOND)) == ["first"]


def test_a_run_whose_time_comes_is_found_at_once(store: Store, queue: str | None) -> None:
    begin(store, queue)
    start(store, owned("sleeper"))
    write(store, sleep("sleeper", NOW + 3 * SECOND), run_state=State.WAITING)
    done(store, rest("sleeper"))
    assert not claim(store, now=NOW + 2 * SECOND)
    assert ids(claim(store, now=NOW + 4 * SECOND)) == ["sleeper"]


def test_a_run_that_has_long_been_under_way_counts(store: Store) -> None:
    store.queues.set(Queue("two", Limits(concurrency=2), created=NOW))
    start(store, *(run(f"{number:03}", queue="two", due=NOW + number) for number in range(10)))
    claim(store, "long", limit=1, now=NOW)
    for number in range(1, 9):
        now = NOW + number * 60 * SECOND
        claims = claim(store, now=now)
        assert ids(claims) == [f"{number:03}"]
        assert not claim(store, now=now), "the limit is reached"
        end(store, claims)


@pytest.mark.parametrize(
    "arrives", [{"partition": "p1"}, {"partition": "p3"}, {"partition": ""}, {"workflow": "other"}]
)
def test_a_run_of_another_group_is_found_at_once(store: Store, arrives: dict[str, str]) -> None:
    """A partition, or a function, that has no floor yet, before, between or after those that have one."""
    for partition in ("p0", "p2"):
        begin(store, "q", partition=partition)
    start(store, run("new", queue="q", due=NOW + SECOND, **arrives))
    assert ids(claim(store, now=NOW + SECOND)) == ["new"]


def test_a_run_of_a_function_that_has_floors_is_found_behind_one_of_an_unknown_function(
    store: Store, queue: str | None
) -> None:
    begin(store, queue)
    start(store, *(run(f"{name}", workflow=name, queue=queue, due=NOW + SECOND) for name in ("a", "x")))
    start(store, run("mine", queue=queue, due=NOW + SECOND))
    assert ids(claim(store, now=NOW + SECOND)) == ["mine"]


@pytest.mark.parametrize(
    ("search", "queue", "partitions"),
    [
        ("known", None, 1),
        ("more", None, 1),
        ("unpartitioned", "q", 1),
        ("partitions", "q", 10),
        *((search, "q", partitions) for search in ("known", "waiting") for partitions in (1, 10)),
    ],
)
def test_a_search_from_floors_does_not_read_what_was_claimed(
    store: Store, postgres_url: str, search: str, queue: str | None, partitions: int
) -> None:
    """The entries of claimed runs stay in the index while an old snapshot is open: a search of everything passes over all of them."""
    names = [f"p{number}" for number in range(partitions)] if partitions > 1 else [""]
    with psycopg.connect(postgres_url) as old, psycopg.connect(postgres_url, autocommit=True) as watch:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT 1 FROM mainspring.runs")
        for part in range(10):
            due = NOW + part * SECOND
            each = (names[number % partitions] for number in range(200))
            start(store, *(run(f"{part}-{n}", queue=queue, partition=name, due=due) for n, name in enumerate(each)))
            while claims := claim(store, limit=50, now=due):
                store.apply([finish(each.run.id, epoch=each.run.epoch) for each in claims], due)
        claims_of: Any = store
        (mine,) = claims_of._claims._floors.values()
        from_the_beginning = "known" if search == "waiting" else search  # which has been read for that
        everything = _pages_read(watch, getattr(FULL, from_the_beginning), "[]")
        above = _pages_read(watch, getattr(ABOVE_FLOORS, search), mine.ranges())
    assert everything > 3 * above, (everything, above)


def _pages_read(connection: psycopg.Connection, text: str, ranges: str) -> int:
    asked = request()
    values = {
        "floors": ranges,
        "queue": "q",
        "known": json.dumps([{"queue": queue, "name": "wf"} for queue in ("", "q")]),
        "names": list(asked.functions),
        "functions": json.dumps(dict(asked.functions)),
        "methods": [],
        "instances": [],
        "compatible": False,
        "version": asked.version,
        "after": "",
        "most": 100,
    }
    return _pages_of(connection, text, values)


def _pages_of(connection: psycopg.Connection, text: str, values: dict[str, Any]) -> int:
    return _pages_of_plan(connection, Dialect("mainspring")(text).decode(), values)


def _pages_of_plan(connection: psycopg.Connection, statement: str, values: dict[str, Any] | None = None) -> int:
    row = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}".encode(), values).fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def test_a_count_of_running_runs_does_not_pass_over_those_that_have_ended(store: Store, postgres_url: str) -> None:
    """Whatever the statistics say: a plan that is good for an empty index is deadly for one full of dead entries."""
    with psycopg.connect(postgres_url) as old, psycopg.connect(postgres_url, autocommit=True) as watch:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT 1 FROM mainspring.runs")
        for part in range(10):
            due = NOW + part * SECOND
            start(store, *(run(f"{part}-{number}", queue="q", due=due) for number in range(200)))
            while claims := claim(store, limit=50, now=due):
                store.apply([finish(each.run.id, epoch=each.run.epoch) for each in claims], due)
        watch.execute("ANALYZE mainspring.runs")
        last = NOW + 9 * SECOND
        values: dict[str, int | str] = {"recent": last, "queue": "q", "earlier": "{0-1,0-2}"}
        statement = Dialect("mainspring").raw(COUNT_PLACED)
        watch.execute("SET plan_cache_mode = force_generic_plan")
        watch.execute("SET enable_seqscan = off")  # the table is small enough to be read instead
        watch.execute(b"PREPARE counting AS " + statement.query)
        everything, recent = (
            _pages_of_plan(
                watch,
                "EXECUTE counting ("
                + ", ".join(repr((values | {"since": since})[name]) for name in statement.order)
                + ")",
            )
            for since in (0, last)
        )
    assert everything > 3 * recent, (everything, recent)


def test_a_run_that_goes_on_is_found_at_once(store: Store) -> None:
    """Also one that was due long before others that went on."""
    start(store, *(run(f"{number}", queue="q") for number in range(4)))
    begun = {each.run.id: each for each in claim(store, now=NOW)}
    for number, epoch in (("0", 1), ("1", 1), ("0", 2)):
        now = NOW + 10 * SECOND * epoch
        write(store, sleep(number, now, str(epoch), epoch=epoch), run_state=State.WAITING)
        done(store, rest(number, epoch=epoch))
        assert ids(claim(store, now=now)) == [number]
    done(store, release("3", epoch=begun["3"].run.epoch))
    assert ids(claim(store, now=NOW + 30 * SECOND)) == ["3"]


async def test_schedules_act_at_their_times_and_on_changes_at_once(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(floors, "_QUICK", -1)
    monkeypatch.setattr(floors, "_PAUSE", 3600.0)
    app, acted = App(), list[str]()

    @app.workflow
    async def act(who: str) -> None:
        acted.append(who)

    async with testing.world(app, url=postgres_url) as world:
        await app.schedules.create("a", act.bind("a"), Spec(intervals=["1m"]))
        await world.advance("10m")
        assert acted == ["a"] * 10
        await app.schedules.create("b", act.bind("b"), Spec(intervals=["1m"]))
        await world.advance("5m")
        assert (acted.count("a"), acted.count("b")) == (15, 5)
        await app.schedules.pause("a")
        await world.advance("5m")
        await app.schedules.resume("a")
        await world.advance("5m")
        assert (acted.count("a"), acted.count("b")) == (20, 15)
        await app.schedules.trigger("a")
        await world.drain()
        assert acted.count("a") == 21


def test_batches_of_retention_do_not_pass_over_what_was_deleted(store: Store, postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as old, psycopg.connect(postgres_url, autocommit=True) as watch:
        watch.execute(
            "INSERT INTO mainspring.runs (id, uid, workflow, kind, state, input, output, due, created, started, completed, epoch)"
            " SELECT 'old-' || n, 'old-' || n, 'wf', 'workflow', 'succeeded', '{}', '1', n, n, n, n, 1"
            " FROM generate_series(1, 4000) n"
        )
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT 1 FROM mainspring.runs")
        due = store.retention.due(Keep(runs=0), NOW)
        for _ in range(39):
            assert store.retention.prune(due, 100) == 100
        retention: Any = store.retention
        ((_, last),) = retention._ends.items()
        (rule,) = json.loads(due.rules)
        everything, above = (
            _pages_of(watch, PRUNE, {"rules": json.dumps([rule | {"oldest": oldest}]), "limit": 10})
            for oldest in (rule["oldest"], last)
        )
        assert store.retention.prune(due, 100) == 80, "both looks were made by EXPLAIN, which deletes"
    assert everything > 2 * above, (everything, above)


async def test_a_pass_reads_as_much_after_many_ticks_under_an_old_snapshot(postgres_url: str) -> None:
    """Runs are searched from the oldest whose end is unprocessed, and ends by their index, however small the table is."""
    app = App()

    @app.workflow
    async def act() -> None: ...

    since = datetime(2026, 1, 1, tzinfo=UTC)
    ids, pages = [f"{number}" for number in range(20)], list[tuple[int, int]]()
    with psycopg.connect(postgres_url) as old, psycopg.connect(postgres_url, autocommit=True) as watch:
        async with testing.world(app, at=since, url=postgres_url) as world:
            await app.schedules.apply([Declaration(each, act.bind(), Spec(intervals=["1h"])) for each in ids])
            old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            old.execute("SELECT 1 FROM mainspring.runs")
            for _ in range(2):
                await world.advance("20h")
                now = int(world.now.timestamp() * SECOND)
                due: dict[str, Any] = {"now": now, "limit": 250, "passed": [], "due_floor": now, "ended_floor": now}
                present = _pages_of(watch, sql.PRESENT.postgres, {"ids": ids})
                pages.append((_pages_of(watch, sql.DUE.postgres, due), present))
    assert all(last < 1.5 * first for first, last in zip(*pages, strict=True)), pages
