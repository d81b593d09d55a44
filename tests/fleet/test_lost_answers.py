"""The database did what a worker asked, and the worker did not notify of it: no run is stuck in a hand that does not know of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from mainspring import App, Client, Settings, run
from mainspring.app.runtime import Parts
from mainspring.errors import RunCancelled, StoreUnavailable
from mainspring.services import claimer
from mainspring.store.committer import Committer
from mainspring.store.postgres.libpq import Wire
from mainspring.store.protocol import Claimed
from mainspring.store.writes import Start
from tests.store.proxies import BrokenLine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainspring.app.settings import Settings as AnySettings
    from mainspring.model.clock import Clock
    from mainspring.store.protocol import Store
    from mainspring.store.writes import Op, Result

PATIENCE = 60


class DeafToStarts(Parts):
    """Stores the first start, and does not notify that it did."""

    arrived = True

    def committer(self, store: Store, clock: Clock) -> Committer:
        def apply(ops: Sequence[Op], now: int) -> list[Result | Exception]:
            answers = store.apply(ops, now)
            if self.arrived and any(isinstance(op, Start) for op in ops):
                self.arrived = False
                raise StoreUnavailable("the line broke")
            return answers

        return Committer(apply, clock)


class Deaf(Parts):
    """Does not notify the first answer to a verb that has something to tell."""

    def __init__(self, verb: str, tells: Callable[[Any], object]) -> None:
        self._verb = verb
        self._tells = tells
        self.missed: list[Any] = []

    def store(self, url: str, settings: AnySettings) -> Store:
        store = super().store(url, settings)
        verb = getattr(store, self._verb)

        def deaf(*args: Any) -> Any:
            answer = verb(*args)
            if not self.missed and self._tells(answer):
                self.missed.append(answer)
                raise StoreUnavailable("the line broke")
            return answer

        setattr(store, self._verb, deaf)
        return store


async def test_a_run_whose_start_was_stored_but_not_acknowledged_is_executed(store_url: str) -> None:
    app = App(store_url, settings=Settings(poll=60))
    app._runtime.parts = DeafToStarts()

    @app.workflow
    async def answer() -> int:
        return 42

    async with app:
        with pytest.raises(StoreUnavailable, match="the line broke"):
            await answer.options(id="r").start()
        handle = await answer.options(id="r").start()
        assert not handle.created
        assert await handle.result(timeout=PATIENCE) == 42


async def test_runs_whose_claim_was_not_heard_of_are_executed_in_the_epoch_of_that_claim(store_url: str) -> None:
    app = App(store_url, settings=Settings(poll=60))
    app._runtime.parts = deaf = Deaf("claim", lambda claimed: claimed.claims)

    app.queue("slow")

    @app.step
    async def number() -> int:
        return 42

    @app.workflow
    async def answer() -> int:
        return await number()

    async with app:
        handles = [await answer.options(queue="slow").start() for _ in range(5)]
        assert [await handle.result(timeout=PATIENCE) for handle in handles] == [42] * 5
        assert deaf.missed
        found = [app._runtime.connection().store.run(handle.id) for handle in handles]
        assert [run.epoch for run in found if run is not None] == [1] * 5


async def test_a_run_that_may_be_started_only_once_is_not_lost_with_the_answer_to_its_claim(store_url: str) -> None:
    app = App(store_url, settings=Settings(poll=60))
    app._runtime.parts = Deaf("claim", lambda claimed: claimed.claims)

    app.queue("slow")

    @app.workflow(at_most_once=True)
    async def once() -> str:
        return "done"

    async with app:
        handle = await once.options(queue="slow").start()
        assert await handle.result(timeout=PATIENCE) == "done"


async def test_a_run_that_is_cancelled_while_nobody_knows_who_has_it_stops(store_url: str) -> None:
    app = App(store_url, settings=Settings(poll=60))
    app._runtime.parts = deaf = Deaf("claim", lambda claimed: claimed.claims)

    app.queue("slow")

    @app.workflow
    async def endless() -> None:
        await run.sleep("1000d")

    async with app:
        store = app._runtime.connection().store
        owned = store.owned

        def cancelled_before_looking(worker: str) -> Any:
            store.cancel([taken.run.id for taken in deaf.missed[0].claims], "enough", 0)
            store.notices(worker)  # told to a worker that knows of no such run
            return owned(worker)

        store.owned = cancelled_before_looking  # type: ignore[method-assign]
        handle = await endless.options(queue="slow").start()
        with pytest.raises(RunCancelled):
            await handle.result(timeout=PATIENCE)


@pytest.mark.parametrize("how", ["cancel", "terminate"])
async def test_a_run_that_rests_stops_although_the_word_to_stop_was_not_heard(store_url: str, how: str) -> None:
    app = App(store_url, settings=Settings(poll=60))
    app._runtime.parts = deaf = Deaf("notices", bool)

    @app.workflow
    async def endless() -> None:
        await run.sleep("1000d")

    async with app, Client(store_url) as another:
        handle = await endless.start()
        await _until(lambda: any(ex.suspended for ex in _engine(app).executions.values()))
        stop = another.runs.cancel if how == "cancel" else another.runs.terminate
        await stop(handle.id)
        await _until(lambda: not _engine(app).executions)
        assert deaf.missed
        with pytest.raises(RunCancelled):
            await handle.result(timeout=PATIENCE)


async def test_a_claim_that_commits_long_after_its_line_was_lost_is_found_out(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claimer, "_COMPARE_EVERY", 0.0)
    app = App(store_url, settings=Settings(poll=0.05))

    app.queue("slow")

    @app.workflow
    async def answer() -> int:
        return 42

    async with app:
        store = app._runtime.connection().store
        claim = store.claim
        lost: list[Any] = []

        def committing_late(request: Any) -> Any:
            """The first claim has been given up, and looked for in vain, when it commits."""
            claimed = claim(request)
            if claimed.claims and not lost:
                lost.append(claimed)
                return Claimed([], None, more=False)
            return claimed

        store.claim = committing_late  # type: ignore[method-assign]
        handle = await answer.options(queue="slow").start()
        assert await handle.result(timeout=PATIENCE) == 42
        assert lost


def _engine(app: App) -> Any:
    engine = app._runtime.engine
    assert engine is not None
    return engine


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110  (nobody tells)
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("sender", ["outside", "a run"])
async def test_a_message_that_was_stored_but_not_acknowledged_wakes_the_run_it_is_for(
    postgres_url: str, sender: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker is not notified by what is said through its own store, so it must not rely on being told."""
    app = App(postgres_url, settings=Settings(poll=600))
    broken: list[bool] = []
    execute = Wire.execute

    @app.workflow
    async def listener() -> int:
        number: int = await run.receive("t")
        return number

    @app.workflow
    async def speaker(to: str) -> None:
        await app.send(to, "t", 7)

    def breaks(self: Wire, *asked: Any) -> Any:
        answers = execute(self, *asked)
        if not broken and any(b"messages (run" in statement.query for statement, _ in asked):
            broken.append(True)
            self._pg.finish()  # pyright: ignore[reportPrivateUsage]
            raise psycopg.OperationalError("the line broke")
        return answers

    async with app:
        waiting = await listener.start()
        while (await waiting.describe()).state != "waiting":
            continue
        monkeypatch.setattr(Wire, "execute", breaks)
        if sender == "outside":
            with pytest.raises(StoreUnavailable):
                await app.send(waiting.id, "t", 7)
        else:
            await speaker(waiting.id)
        assert broken
        assert await waiting.result(timeout=PATIENCE) == 7


async def test_a_message_that_the_server_stores_after_the_line_broke_wakes_the_run_it_is_for(postgres_url: str) -> None:
    """Whoever sent it was told that it failed, and looked in vain whether it had arrived."""
    with BrokenLine(postgres_url) as line:
        app = App(line.url, settings=Settings(poll=0.2))

        @app.workflow
        async def listener() -> str:
            news: str = await run.receive("t")
            return news

        async with app:
            waiting = await listener.start()
            while (await waiting.describe()).state != "waiting":
                continue
            line.hold_request(b"late news")
            with pytest.raises(StoreUnavailable):
                await app.send(waiting.id, "t", "late news")
            worker: Any = app._worker
            await _until(lambda: not worker._inbox._missed)
            await worker._inbox.next_round()
            assert (await waiting.describe()).state == "waiting"
            await asyncio.to_thread(line.deliver)
            assert await waiting.result(timeout=PATIENCE) == "late news"
