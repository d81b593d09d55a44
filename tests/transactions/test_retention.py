"""What has ended is kept as long as it was promised, then forgotten with all that belongs to it, unless somebody needs it."""

from __future__ import annotations

import asyncio
import re
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from mainspring import App, Settings, State, run
from mainspring.cli.main import main
from mainspring.errors import InvalidInput, NotFound
from mainspring.model.clock import SystemClock
from mainspring.operations.metrics import Metrics, as_text
from mainspring.operations.retention import Pruning
from mainspring.services.pruner import next_batch
from mainspring.store.postgres.store import PostgresStore
from mainspring.store.sql.retention import TABLES_OF_RUN
from mainspring.store.verbs.prune import Due, Keep
from mainspring.testing import world
from tests.store.build import NOW, finish, owned, start
from tests.store.proxies import Distance
from tests.transactions import bank

if TYPE_CHECKING:
    from mainspring.store.protocol import Store

DAY = 86_400_000_000
app = App("sqlite://", settings=Settings(retention=30 * 86_400))
plain = App("sqlite://")


@app.workflow(retention="1d")
async def short(what: str) -> str:
    await run.set_event("said", what)
    await run.write_stream("lines", what)
    return await run.receive("news", timeout="1m") or what


@app.workflow
async def long() -> str:
    return "long"


@app.workflow(retention="forever")
async def eternal() -> str:
    return "eternal"


@app.step
async def function(what: str) -> str:
    return what


@app.workflow
async def parent() -> list[str]:
    """Its child ends at once; it waits for it after three months."""
    handle = await short.options(id="child").start("child")
    await run.sleep("90d")
    return [await handle.result()]


async def there(an_app: App, run_id: str) -> bool:
    try:
        await an_app.handle(run_id).describe()
    except NotFound:
        return False
    return True


async def test_each_is_kept_as_long_as_its_function_or_the_app_says(store_url: str) -> None:
    async with world(app, url=store_url) as w:
        for fn, run_id in ((short, "short"), (long, "long"), (eternal, "eternal")):
            made: Any = fn.options(id=run_id)
            await made.start("x") if fn is short else await made.start()
        scheduled = await app.run_after("1d", function.bind("x"))
        pending = await app.run_after("200d", function.bind("pending"))
        await w.advance("12h")
        assert [await there(app, each) for each in ("short", "long", "eternal")] == [True, True, True]
        await w.advance("13h")
        assert [await there(app, each) for each in ("short", "long", "eternal")] == [False, True, True]
        await w.advance("6d")
        assert await there(app, scheduled.id)
        await w.advance("2d")
        assert not await there(app, scheduled.id)
        with pytest.raises(NotFound):
            await app.scheduled_functions.get(scheduled.id)
        await w.advance("30d")
        assert [await there(app, each) for each in ("short", "long", "eternal")] == [False, False, True]
        assert (await pending.describe()).state is State.SCHEDULED
    for table in TABLES_OF_RUN:
        where = f"mainspring_{table}" if bank.is_sqlite(store_url) else f"mainspring.{table}"
        assert bank.value(store_url, f"SELECT count(*) FROM {where} WHERE run = 'short'") == 0


async def test_without_a_setting_runs_are_kept_for_ever_and_functions_for_a_week(store_url: str) -> None:
    @plain.workflow
    async def work() -> int:
        return 1

    async with world(plain, url=store_url) as w:
        kept = await work.start()
        gone = await plain.run_after(0, work.bind())
        await w.advance("6d")
        assert await there(plain, gone.id)
        await w.advance("100d")
        assert await there(plain, kept.id)
        assert not await there(plain, gone.id)


def with_work(url: str) -> tuple[App, Any]:
    an_app = App(url)

    @an_app.step
    async def work() -> int:
        return 1

    return an_app, work


async def test_what_became_too_old_while_no_worker_ran_is_deleted_minutes_after_the_start(store_url: str) -> None:
    an_app, work = with_work(store_url)
    async with world(an_app, url=store_url, at="2026-01-01T00:00Z") as w:
        gone = await an_app.run_after(0, work.bind())
        await w.drain()
    async with world(an_app, url=store_url, at="2026-01-09T00:00Z") as w:
        assert await there(an_app, gone.id)
        await w.advance("6m")
        assert not await there(an_app, gone.id)


async def test_a_worker_that_only_drains_deletes_what_is_too_old(store_url: str) -> None:
    an_app, work = with_work(store_url)
    async with world(an_app, url=store_url, at="2020-01-01T00:00Z") as w:
        gone = await an_app.run_after(0, work.bind())
        await w.drain()
    async with an_app:
        await an_app.drain()
        assert not await there(an_app, gone.id)


async def test_what_an_unfinished_run_needs_is_kept(store_url: str) -> None:
    async with world(app, url=store_url) as w:
        handle = await parent.start()
        await w.advance("80d")
        assert await there(app, "child")
        assert await handle.result() == ["child"]
        await w.advance("40d")
        assert not await there(app, "child")
        assert not await there(app, handle.id)


def store_of(an_app: App) -> Store:
    return an_app._runtime.connection().store


async def test_pruning_goes_in_batches_and_says_when_there_will_be_more(store_url: str) -> None:
    async with world(app, url=store_url) as w:
        handles = await app.start_many([long.bind() for _ in range(7)])
        await handles[-1].result()
        await w.drain()
        store = store_of(app)
        now = app._runtime.clock.now()
        keep = Keep(runs=DAY)

        def prune(at: int, limit: int) -> tuple[int, int | None]:
            due = store.retention.due(keep, at)
            return store.retention.prune(due, limit), due.next_due

        assert await asyncio.to_thread(prune, now, 5) == (0, now + DAY)
        assert await asyncio.to_thread(store.retention.expired, keep, now + DAY) == {"long": 7}
        assert await asyncio.to_thread(prune, now + DAY, 5) == (5, None)
        assert await asyncio.to_thread(prune, now + DAY, 5) == (2, None)
        assert await asyncio.to_thread(prune, now + DAY, 5) == (0, None)
        assert await asyncio.to_thread(store.retention.due, Keep(), now + DAY) == Due()


async def test_it_is_known_how_far_pruning_is_behind(store_url: str) -> None:
    async with world(app, url=store_url) as w:
        await long()
        await eternal()
        await w.drain()
        store, now = store_of(app), app._runtime.clock.now()
        assert await asyncio.to_thread(Pruning(store, _At(now)).behind) == 0
        late = await asyncio.to_thread(Pruning(store, _At(now + 31 * DAY)).behind)
        assert late == pytest.approx(86_400, abs=60)
        text = as_text(await asyncio.to_thread(Metrics(store, _At(now + 31 * DAY)).families))
        assert re.search(r"^mainspring_retention_behind_seconds 86[34]\d\d", text, re.MULTILINE)


class _At(SystemClock):
    """A clock that stands."""

    def __init__(self, time: int) -> None:
        super().__init__()
        self._time = time

    def now(self) -> int:
        return self._time


def test_a_batch_that_takes_long_makes_the_next_one_smaller_but_never_small() -> None:
    assert [next_batch(400, took) for took in (0.2, 0.03, 0.001)] == [200, 400, 500]
    assert next_batch(100, 60.0) == 100


def test_a_batch_is_one_round_trip_on_postgres(postgres_url: str) -> None:
    with Distance(postgres_url) as far, closing(PostgresStore(far.url)) as store:
        store.open()
        start(store, *(owned(f"r{number}") for number in range(300)))
        store.apply([finish(f"r{number}") for number in range(300)], NOW)
        due = store.retention.due(Keep(runs=0), NOW + DAY)
        before = far.requests
        assert store.retention.prune(due, 250) == 250
        assert far.requests - before == 1


async def test_an_id_can_be_used_again_once_its_run_is_forgotten(store_url: str) -> None:
    async with world(app, url=store_url) as w:
        first = await short.options(id="again").start("first")
        assert (await first.result(), first.created) == ("first", True)
        assert not (await short.options(id="again").start("second")).created
        await w.advance("2d")
        second = await short.options(id="again").start("second")
        assert (await second.result(), second.created) == ("second", True)


async def test_the_command_forgets_what_it_is_told_to(store_url: str) -> None:
    async with app_at(store_url):
        for _ in range(3):
            await long()
        await eternal()
        await (await app.run_after(0, function.bind("x"))).result()

    def command(*words: str) -> str:
        found = CliRunner().invoke(main, ["db", "prune", "--url", store_url, *words])
        assert found.exit_code == 0, found.output
        return found.output

    assert "0 runs could be" in command("--dry-run")
    said = command("--older-than", "0s", "--functions-older-than", "0s", "--dry-run")
    assert "3\tlong" in said
    assert "1\tfunction" in said
    assert "5 runs could be" in said
    assert "deleted 3 runs" in command("--older-than", "0s", "--name", "long")
    assert "deleted 1 runs" in command("--older-than", "0s")
    assert "deleted 1 runs" in command("--functions-older-than", "0s")
    wrong = CliRunner().invoke(main, ["db", "prune", "--url", store_url, "--name", "long"])
    assert wrong.exit_code == 2


def app_at(url: str) -> App:
    app._runtime.url = url
    return app


def test_a_retention_of_nothing_is_an_error_at_registration() -> None:
    def nothing() -> None: ...

    with pytest.raises(InvalidInput, match="retention"):
        App("sqlite://").workflow(retention=0)(nothing)


counted = App("sqlite://", settings=Settings(keep_last=5))


@counted.workflow(keep_last=2)
async def few(number: int) -> int:
    return number


@counted.workflow
async def some(number: int) -> int:
    return number


@counted.workflow(retention="forever")
async def every(number: int) -> int:
    return number


@counted.workflow(retention="forever", keep_last=1)
async def latest(number: int) -> int:
    return number


async def test_as_many_runs_are_kept_as_the_function_or_the_app_says(store_url: str) -> None:
    async with world(counted, url=store_url) as w:
        for number in range(7):
            for fn in (few, some, every, latest):
                await fn.options(id=f"{fn.name}-{number}")(number)
                await counted.run_after("1s", fn.options(id=f"later-{fn.name}-{number}").bind(number))
            await w.advance("1m")
        await w.advance("15m")
        kept = {item.id for item in await counted.runs.list(limit=100)}
        for fn, many in ((few, 2), (some, 5), (every, 7), (latest, 1)):
            for prefix in ("", "later-"):
                of_fn = {each for each in kept if each.startswith(f"{prefix}{fn.name}-")}
                assert of_fn == {f"{prefix}{fn.name}-{number}" for number in range(7 - many, 7)}


async def test_age_and_number_hold_together(store_url: str) -> None:
    """Whatever comes first: too old, or one too many. What ended in the same moment is not told apart."""
    both = App("sqlite://", settings=Settings(retention="1h", keep_last=3))

    @both.workflow
    async def ping(number: int) -> int:
        return number

    async with world(both, url=store_url) as w:
        for number in range(5):
            await ping.options(id=f"old-{number}")(number)
            await w.advance("1s")
        await w.advance("10m")
        assert {item.id for item in await both.runs.list()} == {"old-2", "old-3", "old-4"}
        await w.advance("1h")
        assert list(await both.runs.list()) == []
        for number in range(5):
            await ping.options(id=f"same-{number}")(number)
        await w.advance("10m")
        assert len(await both.runs.list()) == 5


@pytest.mark.parametrize("number", [0, -1, True, 1.5, "3"])
def test_a_number_to_keep_is_a_whole_one_from_one(number: Any) -> None:
    with pytest.raises(InvalidInput, match="keep_last is a whole number from 1"):
        App("sqlite://").workflow(keep_last=number)(lambda_workflow)


async def lambda_workflow() -> None:
    """To be registered."""


async def test_the_command_line_deletes_all_but_the_latest(store_url: str) -> None:
    async with world(plain_jobs, url=store_url) as w:
        for number in range(4):
            await job(number)
            await w.advance("1s")
    await asyncio.to_thread(_prune_all_but_the_latest, store_url)


plain_jobs = App("sqlite://")


@plain_jobs.workflow
async def job(number: int) -> int:
    return number


def _prune_all_but_the_latest(store_url: str) -> None:
    done = CliRunner().invoke(main, ["db", "prune", "--url", store_url, "--keep-last", "1", "--name", "other"])
    assert done.exit_code == 0
    assert "deleted 0 runs" in done.stderr
    done = CliRunner().invoke(main, ["db", "prune", "--url", store_url, "--keep-last", "1"])
    assert done.exit_code == 0
    assert "deleted 3 runs" in done.stderr
    refused = CliRunner().invoke(main, ["db", "prune", "--url", store_url, "--name", "other"])
    assert refused.exit_code == 2
    assert "--keep-last" in refused.stderr
