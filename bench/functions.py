"""Scheduled functions with few and with very many of them pending: what is done all the time must cost the same.

| what it yields, with few and many pending | of what                                                                        |
|-------------------------------------------|--------------------------------------------------------------------------------|
| picking up                                | ms, p50, to take one function that is due                                      |
| reading by id                             | ms, p50, of `app.scheduled_functions.get`                                      |
| listing by name and state                 | ms, p50, of the first 50 pending ones of one name among a hundred              |
| listing by due time                       | ms, p50, of the first 50 that are due on a day in the middle                   |
| scheduling one more                       | ms, p50, of `run_after`, its commit included                                   |

PENDING (`BENCH_PENDING`, a million) are put there by the database itself; how fast the library schedules is measured in
`bench.transactions`.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from bench.harness import Figure, Target, seconds
from bench.transactions import execute
from mainspring import App
from mainspring.model.clock import SystemClock, to_datetime
from mainspring.queues.fairness import FAIR
from mainspring.store.open import open_store
from mainspring.store.protocol import ClaimRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

PENDING = int(os.environ.get("BENCH_PENDING", "1000000"))
FEW = 10_000
NAMES = 100
TIMES = 50
PENDING_COSTS = (
    "picking up",
    "reading by id",
    "listing by name and state",
    "listing by due time",
    "scheduling one more",
)
DAY = 86_400_000_000


def functions(target: Target) -> Iterator[Figure]:
    for name, count in (("few", FEW), ("many", PENDING)):
        url = target.fresh()
        now = SystemClock().now()
        took = _filled(url, count, now)
        note = f"{count:,} pending, p50"
        yield Figure("database", f"filling, {name} pending", target.kind, took * 1e3, "ms", f"{count:,} rows at once")
        for what, ms in _measured(url, now):
            yield Figure("mainspring", f"{what}, {name} pending", target.kind, ms, "ms", note)


def _filled(url: str, count: int, now: int) -> float:
    """Rows of functions that become due from tomorrow on, evenly over thirty days, and a few that are due; in seconds."""
    app = App(url)
    store = open_store(url, app.settings)
    store.open()
    store.close()
    begin = time.perf_counter()
    _fill(url, "later", count, now + DAY, 30 * DAY // count)
    _fill(url, "due", 2 * TIMES, now - DAY, 1)
    execute(url, "ANALYZE")
    return time.perf_counter() - begin


def _fill(url: str, prefix: str, count: int, first: int, every: int) -> None:
    sqlite = url.startswith("sqlite")
    number = "n" if sqlite else "n::bigint"
    numbers = (
        f"WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count})"
        if sqlite
        else f"WITH numbers AS (SELECT n FROM generate_series(1, {count}) n)"
    )
    name = f"'f' || ({number} % {NAMES})"
    uid = (
        f"'{prefix}' || {'printf' if sqlite else 'format'}({chr(39)}{'%012d' if sqlite else '%12s'}{chr(39)}, {number})"
    )
    due = f"{first} + {number} * {every}"
    execute(
        url,
        f"INSERT INTO {'mainspring_runs' if sqlite else 'mainspring.runs'} "
        f"(id, uid, workflow, kind, state, input, due, created, scheduled_time) {numbers} "
        f"SELECT {uid}, {uid}, {name}, 'step', 'scheduled', '{{}}', {due}, {first}, {due} FROM numbers",
    )


def _measured(url: str, now: int) -> Iterator[tuple[str, float]]:
    app = App(url, version="bench")
    store: Any = open_store(url, app.settings)
    store.open()
    request = ClaimRequest(
        worker="w", version="v", functions={f"f{number}": "x" for number in range(NAMES)}, limit=1, now=now, policy=FAIR
    )

    def claim() -> None:
        assert len(store.claim(request).claims) == 1

    claim()
    yield "picking up", statistics.median(seconds(claim) for _ in range(TIMES)) * 1e3
    store.close()
    yield from asyncio.run(_asked(app, now))


async def _asked(app: App, now: int) -> list[tuple[str, float]]:
    @app.step(name="f7")
    async def f7() -> None: ...

    found = app.scheduled_functions
    middle = to_datetime(now + 15 * DAY)
    (some,) = await found.list(name="f7", state="pending", limit=1)

    async def by_name() -> None:
        assert await found.list(name="f7", state="pending")

    async def by_time() -> None:
        assert await found.list(state="pending", due_after=middle, due_before=middle + timedelta(days=1))

    asked: list[tuple[str, Callable[[], Awaitable[Any]]]] = [
        ("reading by id", lambda: found.get(some.id)),
        ("listing by name and state", by_name),
        ("listing by due time", by_time),
        ("scheduling one more", lambda: app.run_after("30d", f7.bind())),
    ]
    figures = [(what, await _p50(ask)) for what, ask in asked]
    await asyncio.to_thread(app.close)
    return figures


async def _p50(ask: Callable[[], Awaitable[Any]]) -> float:
    took: list[float] = []
    for _ in range(TIMES):
        begin = time.perf_counter()
        await ask()
        took.append(time.perf_counter() - begin)
    return statistics.median(took[5:]) * 1e3
