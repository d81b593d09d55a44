"""Runs from SQL: what `mainspring.start`, `.send` and `.cancel` do is what the library does, in the caller's own transaction."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import psycopg
import pytest

from mainspring import App, Client, Settings, State, run
from mainspring.errors import Conflict, InvalidInput, NotSerializable
from mainspring.model.ids import id_at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator


COLUMNS = (
    "workflow, kind, state, reason, timeout, deadline, owner, epoch, began_epoch, needs_attention, recoveries, attempts, version, fingerprint, "
    "parent, scheduled_by, scheduled_time, schedule, queue, partition, priority, key, attempt_started, debounce_until, generation, attributes, "
    "blocked, retry, input, output, error, end_unreported"
)


class Shop:
    """An app on one database that executes nothing by itself, and plain SQL beside it."""

    def __init__(self, url: str, schema: str = "mainspring") -> None:
        self.app = App(url, settings=Settings(poll=3600, schema=schema))
        self.sql = psycopg.connect(url, autocommit=True)
        self.url = url
        self.schema = schema

        @self.app.workflow
        async def checkout(order: int, express: bool = False) -> str:
            return f"{order} {express}"

        @self.app.workflow
        async def label(order: int, **others: str) -> str:
            return f"{order} {others}"

        @self.app.workflow
        async def decide() -> Any:
            return await run.receive("decided")

        @self.app.workflow
        async def parent() -> Any:
            return await decide()

        self.checkout, self.decide, self.parent = checkout, decide, parent

    def __call__(self, call: str, *values: Any) -> Any:
        row = self.sql.execute(f"SELECT {self.schema}.{call}".encode(), values).fetchone()
        assert row is not None
        return row[0]

    def row(self, run_id: str) -> Any:
        query = f"SELECT {COLUMNS} FROM {self.schema}.runs WHERE id = %s"
        return self.sql.execute(query.encode(), [run_id]).fetchone()

    def states(self) -> dict[str, tuple[str, str | None]]:
        found = self.sql.execute(f"SELECT id, state, reason FROM {self.schema}.runs".encode()).fetchall()
        return {row[0]: (row[1], row[2]) for row in found}


@pytest.fixture
def shop(postgres_url: str) -> Iterator[Shop]:
    made = Shop(postgres_url)
    made.app.runs.list.sync()  # makes the tables
    yield made
    made.sql.close()
    made.app.close()


@pytest.fixture
async def open_shop(shop: Shop) -> AsyncIterator[Shop]:
    """With a worker that does not poll: what it notices was notified."""
    async with shop.app:
        yield shop


def _id_of(value: object) -> str:
    return ",".join(cast("dict[str, Any]", value)) if isinstance(value, dict) else ""


@pytest.mark.parametrize(
    ("options", "sql"),
    [
        ({}, ""),
        ({"queue": "mail", "priority": -5, "partition": "eu"}, ", queue => 'mail', priority => -5, partition => 'eu'"),
        ({"key": "k", "key_mode": "reject"}, ", key => 'k', key_mode => 'reject'"),
        ({"after": "10m"}, ", after => interval '10 min'"),
        ({"at": datetime(2030, 1, 1, tzinfo=UTC)}, ", at => '2030-01-01T00:00:00Z'"),
        ({"at": datetime(2020, 1, 1, tzinfo=UTC)}, ", at => '2020-01-01T00:00:00Z'"),
        ({"timeout": "1h30m"}, ", timeout => interval '90 min'"),
        ({"attributes": {"tenant": "acme", "n": 1}}, """, attributes => '{"tenant": "acme", "n": 1}'"""),
        ({"version": "v7"}, ", version => 'v7'"),
    ],
    ids=_id_of,
)
def test_a_run_started_from_sql_is_stored_as_the_library_stores_it(
    shop: Shop, options: dict[str, Any], sql: str
) -> None:
    with Client(shop.url) as client:  # which does not have the function either
        mine = client.options(**options).start.sync("checkout", order=7, express=True)
    expected = shop.row(mine.id)
    due = shop.sql.execute(b"SELECT due - created FROM mainspring.runs WHERE id = %s", [mine.id]).fetchone()
    shop.sql.execute(b"DELETE FROM mainspring.runs")
    run_id = shop(f"""start('checkout', '{{"order": 7, "express": true}}'{sql})""")
    assert shop.row(run_id) == expected
    uid, created, then = shop.sql.execute(
        b"SELECT uid, created, due - created FROM mainspring.runs WHERE id = %s", [run_id]
    ).fetchone() or ("", 0, 0)
    assert run_id == uid
    assert len(uid) == 23
    assert id_at(created) <= uid < id_at(created + 1_000)
    if "at" not in options:
        assert due == (then,)


def test_uids_sort_by_time(shop: Shop) -> None:
    made = [shop("start('checkout')") for _ in range(50)]
    assert sorted(made) == made


@pytest.mark.parametrize("cast", ["", "::text", "::json", "::jsonb"])
async def test_input_is_an_object_by_name_or_a_list(open_shop: Shop, cast: str) -> None:
    named = open_shop(f"""start('checkout', '{{"order": 7, "express": true}}'{cast}, id => 'a')""")
    listed = open_shop(f"start('checkout', '[8]'{cast})")
    assert named == "a"
    assert await open_shop.app.handle(named).result(timeout=20) == "7 True"
    assert await open_shop.app.handle(listed).result(timeout=20) == "8 False"


@pytest.mark.parametrize("cast", ["", "::json", "::jsonb"])
async def test_an_argument_that_the_function_does_not_take_fails_the_run(open_shop: Shop, cast: str) -> None:
    run_id = open_shop(f"""start('checkout', ' {{ "order": 7, "expres": true }}'{cast})""")
    with pytest.raises(NotSerializable, match="unexpected keyword argument 'expres'"):
        await open_shop.app.handle(run_id).result(timeout=20)


async def test_arguments_by_name_reach_a_function_that_takes_any_name(open_shop: Shop) -> None:
    run_id = open_shop("""start('label', '{"order": 7, "colour": "red"}')""")
    assert await open_shop.app.handle(run_id).result(timeout=20) == "7 {'colour': 'red'}"


async def test_a_number_that_python_cannot_read_fails_the_run(open_shop: Shop) -> None:
    for given in ("[1e400]", '{"order": 1e400}'):
        run_id = open_shop("start('checkout', %s)", given)
        with pytest.raises(NotSerializable, match="out of range"):
            await open_shop.app.handle(run_id).result(timeout=20)


async def test_a_run_of_a_transaction_that_is_rolled_back_leaves_nothing(open_shop: Shop) -> None:
    with open_shop.sql.transaction(force_rollback=True):
        open_shop("""start('checkout', '[1]', id => 'gone')""")
        assert "gone" in open_shop.states()
    assert open_shop.states() == {}
    open_shop("start('checkout', '[2]', id => 'kept')")
    assert await open_shop.app.handle("kept").result(timeout=20) == "2 False"


def test_one_id_is_one_run(shop: Shop) -> None:
    assert [shop("start('checkout', '[1]', id => 'x')"), shop("start('checkout', '[2]', id => 'x')")] == ["x", "x"]
    assert json.loads(json.dumps(shop.row("x")[-4])) == {"*": [1]}
    with pytest.raises(psycopg.errors.UniqueViolation, match="is one of checkout, not of decide"):
        shop("start('decide', id => 'x')")
    with pytest.raises(Conflict):
        shop.decide.options(id="x").start.sync()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("''", "the name of a workflow"),
        ("'checkout', '7'", "input is a JSON object"),
        ("'checkout', NULL", "input is a JSON object"),
        ("'checkout', id => 'a/b'", "slash"),
        ("'checkout', id => ' '", "a run id is a text"),
        ("'checkout', id => repeat('x', 513)", "512 characters"),
        ("'checkout', id => E'a\\nb'", "control character"),
        ("'checkout', queue => 'a,b'", "comma"),
        ("'checkout', partition => 'eu'", "give queue"),
        ("'checkout', key_mode => 'reject'", "give key"),
        ("'checkout', key => 'k', key_mode => 'other'", "key_mode is"),
        ("'checkout', after => interval '-1 s'", "negative"),
        ("'checkout', after => interval '1 s', at => now()", "not both"),
        ("'checkout', after => interval '9000 years'", "longer than 365,000 days"),
        ("'checkout', at => 'infinity'", "years 1 to 9999"),
        ("'checkout', at => '-infinity'", "years 1 to 9999"),
        ("'checkout', at => '10000-01-01 00:00+00'", "years 1 to 9999"),
        ("'checkout', timeout => interval '170000000 years'", "longer than 365,000 days"),
        ("'checkout', timeout => interval '0'", "timeout"),
        ("'checkout', attributes => '[1]'", "attributes"),
        ("'checkout', priority => NULL", "priority"),
        ("'checkout', version => ''", "version"),
    ],
)
def test_what_the_library_refuses_is_refused(shop: Shop, arguments: str, words: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=words):
        shop(f"start({arguments})")
    assert shop.states() == {}


def test_text_that_is_no_json_is_refused(shop: Shop) -> None:
    with pytest.raises(psycopg.errors.InvalidTextRepresentation):
        shop("start('checkout', 'seven')")


HOLDERS = {
    "waiting": "state = 'scheduled'",
    "waiting for the turn of its tick": "due = NULL",
    "begun": "attempt_started = 1, attempts = 1, state = 'waiting'",
    "between attempts": "epoch = 1, attempts = 1, started = 1, recoveries = 1, error = '{}'",
    "to continue": "epoch = 1, started = 1, state = 'queued', due = created",
    "compensating": "epoch = 1, started = 1, state = 'queued', due = created, undo_reason = ''",
}


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("mode", ["replace", "preserve_run_at", "unsafe_dedupe", "return_existing", "reject"])
def test_keys_mean_what_they_mean_in_the_library(shop: Shop, mode: Any, holder: str) -> None:
    def outcome(start: Any) -> Any:
        for table in ("steps", "runs"):
            shop.sql.execute(f"DELETE FROM mainspring.{table}".encode())
        shop.checkout.options(id="first", key="k", after="1h").start.sync(1)
        shop.sql.execute(f"UPDATE mainspring.runs SET {HOLDERS[holder]}".encode())
        shop.sql.execute(
            b"INSERT INTO mainspring.steps (run, position, kind, name, epoch) SELECT id, '0', 'step', 'pay', 1 FROM mainspring.runs WHERE epoch > 0"
        )
        try:
            found = start()
        except (Conflict, psycopg.errors.UniqueViolation):
            found = "refused"
        rows = shop.sql.execute(
            b"SELECT id, workflow, state, key, retry, attempts, input ->> 'order', due > created + 1000000, started, recoveries, generation, "
            b"(SELECT count(*) FROM mainspring.steps s WHERE s.run = r.id) FROM mainspring.runs r ORDER BY id"
        ).fetchall()
        return found, rows

    library = outcome(lambda: shop.checkout.options(id="second", key="k", key_mode=mode).start.sync(2).id)
    sql = outcome(
        lambda: shop(f"""start('checkout', '{{"order": 2}}', id => 'second', key => 'k', key_mode => '{mode}')""")
    )
    assert sql == library


async def test_messages_from_sql_wake_their_run_and_keys_count_once(open_shop: Shop) -> None:
    handle = await open_shop.decide.options(id="d").start()
    await waits(open_shop, "d")
    open_shop("send('d', 'other', '1')")
    open_shop("""send('d', 'decided', '{"yes": true}'::jsonb, key => 'once')""")
    open_shop("""send('d', 'decided', '"twice"', key => 'once')""")
    assert await handle.result(timeout=20) == {"yes": True}
    stored = open_shop.sql.execute(
        b"SELECT number, kind, topic, key, sender, body FROM mainspring.messages ORDER BY number"
    ).fetchall()
    assert stored == [(0, "message", "other", None, None, 1), (1, "message", "decided", "once", None, {"yes": True})]


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
async def test_a_message_of_a_transaction_arrives_with_its_commit(open_shop: Shop, isolation: str) -> None:
    handle = await open_shop.decide.options(id="d").start()
    await waits(open_shop, "d")
    with open_shop.sql.transaction():
        open_shop.sql.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}".encode())
        open_shop("send('d', 'decided', '1')")
    assert await handle.result(timeout=20) == 1


async def waits(shop: Shop, run_id: str) -> None:
    """Until the run is stored as waiting for its message."""
    query = b"SELECT 1 FROM mainspring.steps WHERE run = %s AND completed IS NULL"
    while shop.sql.execute(query, [run_id]).fetchone() is None:  # noqa: ASYNC110  (another process commits it)
        await asyncio.sleep(0.01)


def test_a_message_needs_a_run_a_topic_and_json(shop: Shop) -> None:
    with pytest.raises(psycopg.errors.NoDataFound, match="there is no run 'nobody'"):
        shop("send('nobody', 'topic', '1')")
    shop("start('decide', id => 'd')")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="topic"):
        shop("send('d', '', '1')")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="JSON"):
        shop("send('d', 'topic', NULL::text)")
    with pytest.raises(psycopg.errors.InvalidTextRepresentation):
        shop("send('d', 'topic', 'hello')")


def test_cancelling_from_sql_does_what_the_library_does(shop: Shop) -> None:
    def outcome(cancel: Callable[[str], object]) -> Any:
        shop.sql.execute(b"DELETE FROM mainspring.runs")
        shop.checkout.options(id="queued").start.sync(1)
        shop.checkout.options(id="later", after="1h").start.sync(1)
        shop.checkout.options(id="ended").start.sync(1)
        shop.checkout.options(id="running").start.sync(1)
        shop.checkout.options(id="child").start.sync(1)
        shop.sql.execute(b"UPDATE mainspring.runs SET state = 'succeeded', completed = 1 WHERE id = 'ended'")
        shop.sql.execute(b"UPDATE mainspring.runs SET state = 'running', owner = 'w', epoch = 1 WHERE id = 'running'")
        shop.sql.execute(b"UPDATE mainspring.runs SET parent = 'running' WHERE id = 'child'")
        answers = [cancel(run_id) for run_id in ("queued", "later", "ended", "running", "nobody")]
        rows = shop.sql.execute(
            b"SELECT id, state, reason, completed IS NULL, owner, needs_attention, end_unreported FROM mainspring.runs ORDER BY id"
        ).fetchall()
        return answers, rows

    library = outcome(lambda run_id: bool(shop.app.runs.cancel.sync(run_id, reason="why")))
    assert outcome(lambda run_id: shop(f"cancel('{run_id}', reason => 'why')")) == library
    assert library[0] == [True, True, False, True, False]
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        shop("cancel('queued', reason => 'timeout')")
    with pytest.raises(InvalidInput):
        shop.app.runs.cancel.sync("queued", reason="timeout")


async def test_a_cancelled_run_stops_and_its_parent_is_woken(open_shop: Shop) -> None:
    handle = await open_shop.parent.options(id="p").start()
    await waits(open_shop, "p/0")
    assert open_shop("cancel('p/0', reason => 'enough')") is True
    with pytest.raises(Exception, match="enough"):
        await handle.result(timeout=20)
    assert (await open_shop.app.runs.get("p/0")).state is State.CANCELLED


async def test_another_schema_has_functions_of_its_own(postgres_url: str) -> None:
    shop = Shop(postgres_url, schema="other shop".replace(" ", "_"))
    try:
        async with shop.app:
            shop("start('checkout', '[3]', id => 'o')")
            assert await shop.app.handle("o").result(timeout=20) == "3 False"
    finally:
        shop.sql.close()


async def test_delays_are_kept(open_shop: Shop) -> None:
    open_shop("start('checkout', '[1]', id => 'soon', after => interval '0.2 s')")
    assert await open_shop.app.handle("soon").result(timeout=20) == "1 False"
    described = await open_shop.app.runs.get("soon")
    assert described.started is not None
    assert described.started - described.created >= timedelta(seconds=0.2)
