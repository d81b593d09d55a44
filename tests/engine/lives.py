# pyright: reportPrivateUsage=false
"""A process that dies and another that goes on, a record that is looked at, a record that ends earlier than it did."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import sqlite3
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from mainspring.engine.engine import Engine
from mainspring.model.runs import NewRun, Step, Worker
from mainspring.model.states import State
from mainspring.operations.runs.info import Runs
from mainspring.store.open import sqlite_path
from mainspring.store.sql.dialect import prefixed
from mainspring.store.writes import Recorded, RecordStep, Start, Started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mainspring import App, AsyncFn, RunInfo, StepInfo, SyncFn
    from mainspring.store.protocol import Store
    from mainspring.store.writes import Op, Result
    from mainspring.testing import World

Engine.patience = 0.02
"""A worker that vanishes presses those of its runs that hold on to something; in tests at once."""

T = TypeVar("T")
DEAD = "a worker that has died"


def store_of(app: App) -> Store:
    return app._runtime.connection().store


def info(app: App, run_id: str) -> RunInfo:
    """A run, as an operator sees it."""
    return Runs(store_of(app), app._runtime.clock).get(run_id)


def record(app: App, run_id: str) -> list[StepInfo]:
    """What a run has recorded, in order."""
    return Runs(store_of(app), app._runtime.clock).steps(run_id)


def names(app: App, run_id: str) -> list[str]:
    return [step.name for step in record(app, run_id)]


def count_runs(app: App) -> int:
    return len(Runs(store_of(app), app._runtime.clock).list(limit=1000).runs)


def execute(url: str, statement: str) -> int:
    """Change a database by hand; how many rows it concerned."""
    if not url.startswith("sqlite"):
        with psycopg.connect(url) as session:
            session.execute("SET search_path TO mainspring")
            return session.execute(statement.encode()).rowcount
    with contextlib.closing(sqlite3.connect(sqlite_path(url))) as database, database:
        return database.execute(prefixed(statement)).rowcount


async def another_process(w: World) -> None:
    """The process dies without a word; another one takes its place and its runs."""
    await w.app._vanish()
    await enter_again(w)


async def enter_again(w: World) -> None:
    """A process in the place of one that has vanished or left; what the old one had in hand is free."""
    await w.app.__aenter__()
    free_the_dead(w.app)


def free_the_dead(app: App) -> None:
    engine = app._runtime.engine
    assert engine is not None
    for worker in store_of(app).workers():
        if worker.id != engine.worker_id:
            store_of(app).retire(worker.id, app._runtime.clock.now(), app.settings.max_recoveries)


async def restart(w: World) -> None:
    """An orderly stop, and a start of the same app."""
    await w.app.__aexit__()
    await w.app.__aenter__()


def put(
    app: App,
    function: AsyncFn[..., Any] | SyncFn[..., Any],
    run_id: str,
    steps: Iterable[Step] = (),
    then: Callable[[Store], None] | None = None,
    **changes: Any,
) -> None:
    """Store a run that a worker had begun, with what it had recorded when it died: whoever is there goes on with it.

    `then` does whatever else the worker did before it died.
    """
    store, clock = store_of(app), app._runtime.clock
    code = function._function
    now = clock.now()
    new = NewRun(
        run_id, f"uid-{run_id}", code.name, code.kind, "{}", State.RUNNING, now, now,
        owner=DEAD, version=app.version, fingerprint=code.fingerprint,
    )  # fmt: skip
    store.register(Worker(DEAD, "elsewhere", "", 1, 1, app.version, "{}", now, 0, now))
    (started,) = store.apply([Start(_with(new, **changes))], now)
    assert isinstance(started, Started)
    assert started.created
    writes = [RecordStep(DEAD, _with(copy.copy(step), run=run_id, epoch=1)) for step in steps]
    for written in store.apply(writes, now) if writes else []:
        assert isinstance(written, Recorded), written
        assert written.verdict.value == "done", written
    if then is not None:
        then(store)
    store.retire(DEAD, now, None)


def _with(record: T, **changes: Any) -> T:
    for name, value in changes.items():
        setattr(record, name, value)
    return record


async def until(condition: Callable[[], object], pause: float = 0) -> None:
    """Until something holds in this process; a test that waits in vain fails."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  (what is looked at has no event to wait for)
            await asyncio.sleep(pause)


def engine_of(app: App) -> Engine:
    engine = app._runtime.engine
    assert engine is not None
    return engine


def before_commits(app: App, look: Callable[[Sequence[Op]], None]) -> None:
    """Have a look at every batch before it is committed."""
    committer = app._runtime.connection().committer
    apply = committer._apply

    def looked_at(ops: Sequence[Op], now: int) -> list[Result | Exception]:
        look(ops)
        return apply(ops, now)

    committer._apply = looked_at


async def until_halted(app: App, run_id: str) -> None:
    """Until the worker that has a run in hand has learned that it is to stop."""
    engine = app._runtime.engine
    assert engine is not None
    while (execution := engine.executions.get(run_id)) is not None and execution.signal is None:  # noqa: ASYNC110
        await asyncio.sleep(0)
