"""With a codec, nothing that comes from the user's values is in any table, whatever is done with them."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from mainspring import App, Client, Debounce, Policy, Question, Retry, Settings, Spec, Tx, run
from mainspring.operations.audit import Audit, Intent
from mainspring.payloads import Encryption
from mainspring.recurrence import Interval
from mainspring.store.open import sqlite_path
from mainspring.testing import World, world

if TYPE_CHECKING:
    from pathlib import Path

CANARY = "cAnArY"
KEY = Encryption.new_key()
EVERY_HOUR = Spec(intervals=[Interval("1h")])
price = Question("price", dict[str, str], str)
log = logging.getLogger("shop")


class Declined(Exception):
    def __init__(self, message: str, card: str) -> None:
        super().__init__(message)
        self.card = card


def shop(elsewhere: str) -> tuple[App, dict[str, Any]]:  # noqa: C901
    """An app that has its values everywhere, and its functions."""
    app = App(settings=Settings(keep_logs="info"), payloads=Encryption(KEY))

    @app.step(retry=Retry(2, first=0))
    async def flaky(word: str) -> str:
        log.warning("about %s", word)
        if run.attempt == 1:
            raise Declined(f"no {word}", card=word)
        return f"step {word}"

    @app.transaction
    def save(tx: Tx, word: str) -> str:
        tx.execute("CREATE TABLE IF NOT EXISTS ledger (entry text)")
        child.options(id="of-transaction").start.sync(word)
        app.send.sync("main", "news", {"from": word})
        return word

    @app.transaction(database=elsewhere)
    def save_elsewhere(tx: Tx, word: str) -> str:
        del tx
        child.options(id="of-elsewhere").start.sync(word)
        return word

    @app.step
    async def refund(word: str) -> str:
        return word

    @app.workflow
    async def child(word: str) -> str:
        return f"child {word}"

    @app.workflow
    async def failing(word: str) -> None:
        raise Declined(f"declined {word}", card=word) from KeyError(word)

    @app.workflow
    async def undone(word: str) -> None:
        async with run.undo() as undo:
            undo.push(refund.bind(word))
            raise Declined(word, card=word)

    @app.workflow
    async def tick(word: str) -> str:
        assert run.tick is not None
        if run.tick.last_result is not None:
            raise Declined(f"{word} after {run.tick.last_result}", card=word)
        return word

    @app.workflow
    async def again(word: str, left: int) -> str:
        if left:
            await run.continue_as(word, left - 1)
        return word

    @app.workflow
    async def main(word: str) -> list[Any]:
        await run.set_event("event", word)
        await run.write_stream("stream", word)
        run.answer(price, lambda asked: f"{asked['for']} costs {word}")
        news = await run.receive("news")
        return [news, await flaky(word), await save.aio(word), await save_elsewhere.aio(word), await child(word)]

    app.schedule("hourly", tick.bind(CANARY), EVERY_HOUR, Policy(pause_on_failure=True))
    return app, {"main": main, "child": child, "failing": failing, "undone": undone, "again": again}


def dump(url: str) -> str:
    """Everything that a database has, as text."""
    if url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(sqlite_path(url))) as db:
            return "\n".join(db.iterdump())
    with psycopg.connect(url) as postgres:
        tables = postgres.execute(
            "SELECT format('%I.%I', table_schema, table_name) FROM information_schema.tables"
            " WHERE table_schema NOT IN ('pg_catalog', 'information_schema')"
        ).fetchall()
        found = [postgres.execute(f"SELECT t::text FROM {name} t".encode()).fetchall() for (name,) in tables]
    return "\n".join(str(row) for rows in found for row in rows)


async def exercise(app: App, functions: dict[str, Any], w: World) -> None:
    """Have values stored in every way there is."""
    handle = await functions["main"].options(id="main").start(CANARY)
    await w.drain()
    assert await app.get_event("main", "event") == CANARY
    assert await app.ask("main", price, {"for": CANARY}) == f"{CANARY} costs {CANARY}"
    await app.send("main", "news", {"word": CANARY})
    assert await handle.result() == [
        {"word": CANARY},
        f"step {CANARY}",
        CANARY,
        CANARY,
        f"child {CANARY}",
    ]
    assert [value async for value in app.read_stream("main", "stream")] == [CANARY]
    for name in ("of-transaction", "of-elsewhere"):
        assert await app.handle(name).result() == f"child {CANARY}"
    for name in ("failing", "undone"):
        with pytest.raises(Declined, match=CANARY) as caught:
            await functions[name].options(id=name)(CANARY)
        assert caught.value.card == CANARY
    assert await functions["again"](CANARY, 2) == CANARY
    for word in ("first", CANARY):
        options = functions["child"].options(debounce=Debounce("key", "1m"))
        debounced = await options.start(word)
    await app.run_after("2h", functions["child"].options(id="later").bind(CANARY))
    await w.advance("130m")
    assert await debounced.result() == f"child {CANARY}"
    assert await app.handle("later").result() == f"child {CANARY}"
    found = await app.schedules.describe("hourly")
    assert (found.last_result, found.paused, found.failures) == (CANARY, True, 1)
    assert found.last_failure is not None
    assert CANARY in found.last_failure["message"]
    assert found.differs == []
    assert CANARY in str(await app.runs.steps("main"))
    audit = Audit(app._runtime.connection().store, app._runtime.clock, app._runtime.ids)
    audit.carry_out(Intent("ada", "send", ["main"], None, {"message": CANARY}), lambda: CANARY, str)
    (entry,) = audit.list().entries
    assert (entry.details, entry.outcome) == ({"message": CANARY}, CANARY)


async def test_no_table_shows_a_value(store_url: str, tmp_path: Path) -> None:
    other = f"sqlite:///{tmp_path / 'other.db'}"
    app, functions = shop(other)
    async with world(app, url=store_url) as w:
        await exercise(app, functions, w)
    for text in (dump(store_url), dump(other)):
        assert CANARY not in text
    with Client(store_url) as client:  # without the codec: everything is shown, nothing fails
        for page in await client.runs.list(limit=100):
            described = await client.runs.get(page.id)
            assert described.input == {"encrypted": True}
            assert described.output in {"encrypted", None}
            assert CANARY not in str(await client.runs.steps(page.id)) + str(described)
        seen = await client.schedules.describe("hourly")
        assert (seen.last_result, seen.action["input"], seen.differs) == ("encrypted", {"encrypted": True}, [])
        assert {line.message for line in await client.runs.logs("main")} == {"encrypted"}
    with Client(store_url, payloads=Encryption(KEY)) as trusted:
        assert [line.message for line in await trusted.runs.logs("main")] == [f"about {CANARY}"] * 2
