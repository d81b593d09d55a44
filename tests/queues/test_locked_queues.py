"""A queue whose lock another claim has: what begins when it is free begins then, not when it was first asked for."""

from __future__ import annotations

import psycopg

from mainspring import App, Rate, run
from tests.engine.lives import info, until

_LOCK = b"SELECT pg_advisory_xact_lock(hashtextextended('mainspring.' || %s, 7290116))"
_WAITERS = b"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


async def test_a_run_begins_when_its_queue_is_free(postgres_url: str) -> None:
    app = App(postgres_url)
    slow = app.queue("slow", rate=Rate(1, per=60))

    @app.workflow(queue=slow)
    async def one() -> str:
        return run.id

    async with app, await psycopg.AsyncConnection.connect(postgres_url) as other:
        await other.execute(_LOCK, ["slow"])
        handle = await one.options(id="r").start()
        with psycopg.connect(postgres_url, autocommit=True) as session:
            await until(lambda: (session.execute(_WAITERS).fetchone() or (0,))[0] > 0)
        free = app._runtime.clock.now()
        await other.rollback()
        assert await handle.result(timeout=30) == "r"
        started = info(app, "r").started
        assert started is not None
        assert started.timestamp() * 1_000_000 >= free
