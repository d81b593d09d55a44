"""What one job costs a fleet that has nothing else to do: one worker claims it, and the others need not look."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from mainspring import App, Client, Settings, State
from mainspring.services import claimer
from mainspring.services.claimer import Turns
from mainspring.store.changes import Changes, ReadyRun, Signal, parse
from mainspring.store.postgres.database import Connection
from mainspring.store.postgres.libpq import Wire
from tests.store.build import NOW, owned, run, worker

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

WORKERS = 12
QUIET = Settings(poll=120, lease=120)
"""Neither polls nor heartbeats while a test counts."""


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Generator[list[str]]:
    """The statements that all apps of this process send meanwhile."""
    sent: list[str] = []
    wire, cursor = Wire.execute, psycopg.Cursor.execute

    def by_wire(self: Wire, *asked: Any) -> Any:
        sent.extend(statement.query.decode() for statement, _ in asked)
        return wire(self, *asked)

    def by_cursor(self: psycopg.Cursor[Any], query: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(self.connection, Connection):
            sent.append(str(query))
        return cursor(self, query, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Wire, "execute", by_wire)
        patch.setattr(psycopg.Cursor, "execute", by_cursor)
        yield sent


def until(condition: Callable[[], bool]) -> None:
    for _ in range(2_000):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not come to that")


def fleet(url: str, size: int, done: list[str]) -> list[App]:
    apps: list[App] = []
    for _ in range(size):
        app = App(url, settings=QUIET)

        @app.workflow(name="job")
        async def job(name: str) -> None:
            done.append(name)

        apps.append(app)
    return apps


def claimers(apps: list[App]) -> list[Any]:
    return [app._worker._claimer for app in apps if app._worker is not None]


async def test_one_job_with_twelve_idle_workers_costs_twenty_statements_at_most(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claimer, "STEP", 20.0)  # a busy machine needs longer for a claim
    monkeypatch.setattr(claimer, "LONGEST", 600.0)
    done: list[str] = []
    apps = fleet(postgres_url, WORKERS, done)
    async with AsyncExitStack() as stack:
        for app in apps:
            await stack.enter_async_context(app)
        fleet_of = [app._worker for app in apps]
        for each in fleet_of:
            assert each is not None
            await asyncio.to_thread(each._heartbeat.run_once)  # all of them are there by now
            await each.drained()
        async with Client(postgres_url) as client:
            await client.runs.list(limit=1)  # it is connected
            with counted(monkeypatch) as sent:
                handle = await client.start("job", "a")
                await asyncio.to_thread(until, lambda: done == ["a"])
                await asyncio.to_thread(until, lambda: not any(each._expected for each in claimers(apps)))
                assert await handle.result(timeout=20) is None
        assert len(sent) <= 20, "\n".join(sent)


async def test_who_does_not_serve_a_run_is_not_woken_by_it(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    (app,) = fleet(postgres_url, 1, done)
    app._runtime.settings = Settings(poll=120, lease=120, queues={"mail"})
    app.queue("mail")
    app.queue("other")
    async with app, Client(postgres_url) as client:
        here = app._worker
        assert here is not None
        await here.drained()
        await client.runs.list(limit=1)
        with counted(monkeypatch) as sent:
            await client.options(queue="other").start("job", "not mine")
            await client.options(queue="mail").start("job", "mine")
            await asyncio.to_thread(until, lambda: done == ["mine"])
        assert sum("pg_try_advisory_xact_lock" in text for text in sent) == 1  # one claim, for two runs


@pytest.mark.parametrize("first", ["a", "b"])
def test_all_workers_agree_on_whose_turn_it_is(first: str) -> None:
    workers = [worker(name, functions=json.dumps({"job": "print"})) for name in ("w1", "w2", "w3")]
    stranger = worker("w4", functions=json.dumps({"other": "print"}))
    delays: list[float] = []
    for each in workers:
        mine = Turns(each.id)
        assert mine.alone
        mine.update([*workers, stranger])
        delays.append(mine.delay(first, "job"))
    assert sorted(delays) == [0, claimer.STEP, 2 * claimer.STEP]


def test_a_notification_names_runs_and_without_room_only_what_they_are_of() -> None:
    few = Changes()
    few.start([run("a b,=%", workflow="wf", queue="q 1"), owned("owned")], NOW)
    assert parse(few.payload("me"), "you") == Signal(started=frozenset({ReadyRun("wf", "q 1", "a b,=%")}))
    many = Changes()
    many.start((run(f"r{number}") for number in range(50)), NOW)
    assert parse(many.payload("me"), "you") == Signal(started=frozenset({ReadyRun("wf", "", "")}))
    later = Changes()
    later.start([run("a"), run("b", state=State.SCHEDULED)], NOW)
    assert parse(later.payload("me"), "you") == Signal(ready=True)
    old = Changes()
    old.start([run("a", due=NOW - 1_000_000)], NOW)
    assert parse(old.payload("me"), "you") == Signal(overdue=True, started=frozenset({ReadyRun("wf", "", "a")}))


@pytest.mark.parametrize("notify", [True, False])
async def test_without_notifications_workers_poll(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, *, notify: bool
) -> None:
    app = App(postgres_url, settings=Settings(notify=notify, poll=0.05))

    @app.workflow(name="echo")
    async def echo(word: str) -> str:
        return word

    arrived: list[str] = []
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(b'LISTEN "mainspring:mainspring"')
        connection.add_notify_handler(lambda told: arrived.append(told.payload))
        monkeypatch.setenv("MAINSPRING_NOTIFY", str(notify))
        async with app, Client(postgres_url) as client:
            handle = await client.start("echo", "x")
            assert await handle.result(timeout=20) == "x"
        connection.execute(b"SELECT 1")
    assert bool(arrived) is notify
