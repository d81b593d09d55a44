"""One row that cannot be read, because somebody changed it by hand or a disk did, stops nothing else."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import pytest

from mainspring import App, Interval, Policy, Settings, Spec, run
from mainspring.errors import StoreError
from mainspring.operations.connect import connect
from mainspring.store import bad_rows
from mainspring.store.open import sqlite_path
from mainspring.store.schedules import TickFilter
from mainspring.store.sql.dialect import prefixed
from mainspring.testing import world

if TYPE_CHECKING:
    from mainspring.operations.connect import Operations


class Bad(NamedTuple):
    """A change, in SQLite and in PostgreSQL, whose columns take JSON only; and how the row is called in the log."""

    sqlite: str
    postgres: str
    table: str
    key: str


def column(table: str, name: str, of: str, sqlite: str, postgres: str) -> Bad:
    key = "name" if table == "queues" else "id"
    text = f"UPDATE {table} SET {name} = '{{}}' WHERE {key} = '{of}'"
    return Bad(text.format(sqlite), text.format(postgres), table, of)


_PARTITION = "INSERT INTO queue_partitions VALUES ('other', 'p', '{}')"
_TICK = "INSERT INTO ticks (schedule, nominal, request, source, due, outcome, overlap) VALUES ('made', 1, 'x', 'trigger', 1, 'pending', 'odd')"
_BACKFILL = "INSERT INTO backfills (id, schedule, since, until, overlap, created, cursor) VALUES ('b', 'made', 1, 2, 'odd', 1, 0)"
_TIMEOUT = "UPDATE schedules SET action = replace({0}, '\"timeout\":null', '\"timeout\":99999999999999999999'){1} WHERE id = 'made'"
_STATE = "UPDATE runs SET state = 'odd', owner = NULL WHERE id = 'asleep'"
_DEEP = f'{{"a": {"[" * 12_000}{"]" * 12_000}}}'
"""JSON that no decoder of Python's follows to its end. Another program can store it: a database takes it."""
BAD = {
    "spec of a declared schedule": column("schedules", "spec", "declared", "{", '"odd"'),
    "policy of a declared schedule": column("schedules", "policy", "declared", "{", '{"overlap":"odd"}'),
    "spec of a schedule": column("schedules", "spec", "made", "{", '"odd"'),
    "policy of a schedule": column("schedules", "policy", "made", '{"overlap":"odd"}', '{"overlap":"odd"}'),
    "timeout that no database can store": Bad(
        _TIMEOUT.format("action", ""), _TIMEOUT.format("CAST(action AS text)", "::json"), "schedules", "made"
    ),
    "limits of a queue": column("queues", "limits", "other", "{", "[]"),
    "a limit of a queue": column("queues", "limits", "other", '{"concurrency":"x"}', '{"concurrency":"x"}'),
    "limits of a partition": Bad(_PARTITION.format("{"), _PARTITION.format("[]"), "queue_partitions", "other/p"),
    "state of a run": Bad(_STATE, f"ALTER TABLE runs DROP CONSTRAINT runs_state_check; {_STATE}", "runs", "asleep"),
    "attributes of a run": column("runs", "attributes", "asleep", "{", "7"),
    "deep input of a run": column("runs", "input", "asleep", _DEEP, _DEEP),
    "deep attributes of a run": column("runs", "attributes", "asleep", _DEEP, _DEEP),
    "deep input of a run that is due": column("runs", "input", "waits", _DEEP, _DEEP),
    "deep policy of a schedule": column("schedules", "policy", "made", _DEEP, _DEEP),
    "deep input of a schedule": column("schedules", "input", "made", _DEEP, _DEEP),
    "tick of a run": column("runs", "tick", "asleep", "{", "[]"),
    "mark of a run": column("runs", "blocked", "waits", "{", '{"versions":7}'),
    "a tick": Bad(_TICK, f"ALTER TABLE ticks DROP CONSTRAINT ticks_overlap_check; {_TICK}", "ticks", "made/1/x"),
    "a backfill": Bad(
        _BACKFILL, f"ALTER TABLE backfills DROP CONSTRAINT backfills_overlap_check; {_BACKFILL}", "backfills", "b"
    ),
}


class Shop:
    def __init__(self, url: str) -> None:
        self.url = url
        self.app = App(url, settings=Settings(lease=2, poll=0.2))

        @self.app.workflow
        async def beat() -> int:
            return 1

        @self.app.workflow
        async def sleeper() -> None:
            await run.sleep(3_600)

        self.beat, self.sleeper = beat, sleeper
        for name in ("good", "declared"):
            self.app.schedule(name, beat.bind(), Spec(intervals=[Interval("1s")]), Policy("allow_all"))
        for name in ("mails", "other"):
            self.app.queue(name, concurrency=3)

    def ticks(self) -> int:
        store = self.app._runtime.connection().store
        return len(store.schedules.ticks(TickFilter(schedule="good", limit=1_000)))


def spoil(url: str, bad: Bad) -> None:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(sqlite_path(url), isolation_level=None)) as file:
            file.execute("PRAGMA ignore_check_constraints = ON")
            file.execute(prefixed(bad.sqlite))
    else:
        with psycopg.connect(url) as session:
            session.execute(f"SET search_path TO mainspring; {bad.postgres}".encode())


def look_everywhere(operations: Operations) -> None:
    operations.runs.list()
    operations.runs.summaries()
    operations.runs.lag()
    operations.schedules.list()
    operations.pictures.cards()
    operations.queues.list()
    operations.workers.list()


@pytest.mark.parametrize("what", list(BAD))
async def test_everything_else_goes_on(store_url: str, caplog: pytest.LogCaptureFixture, what: str) -> None:
    bad_rows._reported.clear()  # pyright: ignore[reportPrivateUsage]
    bad = BAD[what]
    shop = Shop(store_url)
    async with world(shop.app, url=store_url):
        await shop.app.schedules.create("made", shop.beat.bind(), Spec(intervals=[Interval("1s")]))
        await shop.sleeper.options(id="asleep").start()
        await shop.beat.options(id="waits", after=0.5).start()
        await shop.beat.options(id="in other", queue="other", after=0.5).start()
    spoil(store_url, bad)
    shop = Shop(store_url)
    with caplog.at_level(logging.WARNING):
        async with world(shop.app, url=store_url) as w:
            assert await (await shop.beat.start()).result(timeout=10) == 1
            assert await (await shop.beat.options(queue="mails").start()).result(timeout=10) == 1
            before = shop.ticks()
            await w.advance("3s")
            assert shop.ticks() == before + 3  # the other schedule goes on
            with connect(store_url, shop.app.settings) as operations:
                look_everywhere(operations)
                look_everywhere(operations)
    assert not [each for each in caplog.messages if "failed; retrying" in each], caplog.messages
    named = [each for each in caplog.messages if f"the row {bad.key!r} of table {bad.table} cannot be read" in each]
    assert len(named) <= 1
    planned = [each for each in caplog.messages if f"schedule {bad.key} (a row of table schedules) cannot" in each]
    assert len(planned) <= 1
    assert named or planned or bad.table == "runs"


async def test_a_page_is_full_whatever_cannot_be_read(store_url: str) -> None:
    shop = Shop(store_url)
    async with shop.app:
        for number in range(6):
            await (await shop.beat.options(id=f"r{number}").start()).result(timeout=10)
    spoil(
        store_url,
        BAD["state of a run"]._replace(
            sqlite="UPDATE runs SET state = 'odd' WHERE id IN ('r3', 'r4')",
            postgres="ALTER TABLE runs DROP CONSTRAINT runs_state_check; UPDATE runs SET state = 'odd' WHERE id IN ('r3', 'r4')",
        ),
    )
    with connect(store_url, shop.app.settings) as operations:
        for way in (operations.runs.list, operations.runs.summaries):
            found: list[str] = []
            after: str | None = None
            while True:
                page: Any = way(limit=2, after=after, id_prefix="r")
                found += [each.id for each in page.runs]
                after = page.next
                if after is None:
                    break
            assert found == ["r5", "r2", "r1", "r0"]
        with pytest.raises(StoreError, match="the row 'r3' of table runs cannot be read: ValueError: 'odd'"):
            operations.runs.get("r3")
