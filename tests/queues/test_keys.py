"""Keys: at most one unfinished run has one, and what becomes of requests for it is up to the mode."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, Client, Debounce, Retry, Settings, Tx, run
from mainspring.errors import Conflict, InvalidInput
from mainspring.testing import world

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from datetime import datetime

    from mainspring import Handle
    from mainspring.testing import World


class Shop:
    """An app whose job records what it was given and when, and takes as long as it is told."""

    def __init__(self, url: str) -> None:
        self.app = App(url, settings=Settings(poll=0.05))
        self.seen: list[str] = []
        self.times: list[datetime] = []
        self.world: World

        @self.app.workflow
        async def job(value: str, length: float = 0) -> str:
            self.seen.append(value)
            self.times.append(run.now())
            if length:
                await run.sleep(length)
            return value

        self.job = job


@asynccontextmanager
async def shop_at(url: str) -> AsyncGenerator[Shop]:
    made = Shop(url)
    async with world(made.app, url=url) as made.world:
        yield made


async def test_a_pending_run_becomes_what_is_asked_for_under_its_key(store_url: str) -> None:
    async with shop_at(store_url) as shop:
        first = await shop.job.options(key="k", after=60, priority=4, queue="q").start("a")
        second = await shop.job.options(key="k", after=30).start("b")
        assert (second.id, second.created) == (first.id, False)
        info = await first.describe()
        assert (info.queue, info.priority, info.input["value"]) == (None, 0, "b")
        await shop.world.advance(31)
        assert await first.result() == "b"
    assert shop.seen == ["b"]


async def test_preserve_run_at_keeps_the_time_and_replace_changes_it(store_url: str) -> None:
    async with shop_at(store_url) as shop:
        kept = await shop.job.options(key="k", after=60).start("a")
        due = (await kept.describe()).due
        await shop.job.options(key="k", key_mode="preserve_run_at", after=10).start("b")
        assert (await kept.describe()).due == due
        assert (await kept.describe()).input["value"] == "b"
        await shop.job.options(key="k", key_mode="unsafe_dedupe", after=10).start("c")
        assert (await kept.describe()).input["value"] == "b"
        await shop.job.options(key="k", after=10).start("d")
        assert (await kept.describe()).due != due


async def test_a_key_is_free_again_when_its_run_has_ended(store_url: str) -> None:
    async with shop_at(store_url) as shop:
        first = await shop.job.options(key="k").start("a")
        await first.result()
        second = await shop.job.options(key="k", key_mode="reject").start("b")
        assert second.id != first.id
        assert await second.result() == "b"


async def test_a_run_that_has_begun_goes_on_without_the_key_beside_the_new_one(store_url: str) -> None:
    async with shop_at(store_url) as shop:
        first = await shop.job.options(key="k").start("a", 60)
        await shop.world.advance(1)
        second = await shop.job.options(key="k").start("b")
        assert second.id != first.id
        assert await second.result() == "b"
        assert (await first.describe()).key is None
        assert await first.result() == "a"


@pytest.mark.parametrize("mode", ["return_existing", "unsafe_dedupe"])
async def test_who_asks_for_what_is_under_way_gets_that(store_url: str, mode: Any) -> None:
    async with shop_at(store_url) as shop:
        first = await shop.job.options(key="k").start("a", 60)
        await shop.world.advance(1)
        again = await shop.job.options(key="k", key_mode=mode).start("b")
        assert (again.id, again.created) == (first.id, False)
        assert await again.result() == "a"


async def test_a_duplicate_is_rejected_until_its_run_is_cancelled(store_url: str) -> None:
    async with shop_at(store_url) as shop:
        first = await shop.job.options(key="k", after=60).start("a")
        with pytest.raises(Conflict, match=f"key 'k' is taken by run '{first.id}'"):
            await shop.job.options(key="k", key_mode="reject").start("b")
        await first.cancel()
        assert await (await shop.job.options(key="k", key_mode="reject").start("c")).result() == "c"


async def test_a_key_of_another_function_is_given_to_this_one_or_refused(store_url: str) -> None:
    async with shop_at(store_url) as shop:

        @shop.app.workflow
        async def other() -> str:
            return "other"

        first = await shop.job.options(key="k", after=60).start("a")
        with pytest.raises(Conflict, match="taken"):
            await other.options(key="k", key_mode="return_existing").start()
        second = await other.options(key="k").start()
        assert second.id == first.id
        assert await second.result() == "other"


async def test_keys_inside_a_run_are_recorded_with_what_they_led_to(store_url: str) -> None:
    async with shop_at(store_url) as shop:

        @shop.app.workflow
        async def parent() -> list[str]:
            first = await shop.job.options(key="k", after=60).start("a")
            second = await shop.job.options(key="k", key_mode="return_existing").start("b")
            refused = ""
            try:
                await shop.job.options(key="k", key_mode="reject").start("c")
            except Conflict as error:
                refused = type(error).__name__
            await run.sleep(5)
            many = await shop.app.start_many([shop.job.options(key="k", after=50).bind("d"), shop.job.bind("e")])
            return [str(second.id == first.id), refused, str(many[0].id == first.id), str(many[1].created)]

        handle = await parent.start()
        await shop.world.advance(2)
        assert await handle.result() == ["True", "Conflict", "True", "True"]
        await shop.world.advance(60)
    assert sorted(shop.seen) == ["d", "e"]


async def test_a_key_can_be_part_of_a_transaction(store_url: str) -> None:
    async with shop_at(store_url) as shop:

        @shop.app.transaction
        def order(tx: Tx, value: str, *, fails: bool = False) -> str:
            handle = shop.job.options(key="k", after=60).start.sync(value)
            if fails:
                raise ValueError(value)
            return handle.id

        first = await order.aio("a")
        assert await order.aio("b") == first
        with pytest.raises(ValueError, match="c"):
            await order.aio("c", fails=True)
        await shop.world.advance(61)
        assert await shop.app.handle(first).result() == "b"


async def test_many_requests_for_one_key_at_once_are_one_run_with_the_input_of_the_last(store_url: str) -> None:
    shop = Shop(store_url)
    clients = [Client(store_url) for _ in range(4)]

    async def ask(number: int, client: Client) -> set[str]:
        found = [await client.options(key="k", after=3600).start("job", f"{number}: {count}") for count in range(10)]
        return {handle.id for handle in found}

    async with shop.app:
        ids = set[str]().union(*await asyncio.gather(*(ask(*each) for each in enumerate(clients))))
        assert len(ids) == 1
        (only,) = ids
        assert (await shop.app.runs.get(only)).state == "scheduled"
        await shop.app.runs.reschedule(only, after=0)
        result = await shop.app.handle(only).result(timeout=30)
        assert result in {f"{number}: 9" for number in range(4)}
        assert shop.seen == [result]
        assert [each.id for each in (await shop.app.runs.list()).runs] == [only]
    for client in clients:
        client.close()


# -- debouncing ----------------------------------------------------------------------------------------------------------
async def test_of_many_calls_the_last_ones_input_runs_once_when_all_is_quiet(store_url: str) -> None:
    async with shop_at(store_url) as shop:
        handles: list[Handle[str]] = []
        for value in "abcd":
            handles.append(await shop.job.options(debounce=Debounce("user", "1m")).start(value))
            await shop.world.advance(40)
        assert len({handle.id for handle in handles}) == 1
        assert shop.seen == []
        await shop.world.advance(21)
        assert await handles[0].result() == "d"
    assert shop.seen == ["d"]


async def test_max_wait_caps_the_delay_and_the_key_can_be_used_again(store_url: str) -> None:
    async with shop_at(store_url) as shop:
        for value in "abcde":
            await shop.job.options(debounce=Debounce("user", 60, max_wait=100)).start(value)
            await shop.world.advance(40)
        assert shop.seen == ["c"]
        await shop.world.advance(100)
    assert shop.seen == ["c", "e"]
    assert [(moment - shop.times[0]).total_seconds() for moment in shop.times] == [0, 120]


async def test_debouncing_is_per_function_and_key_and_starts_anew_after_a_cancel(store_url: str) -> None:
    async with shop_at(store_url) as shop:

        @shop.app.workflow
        async def other(value: str) -> str:
            return value

        first = await shop.job.options(debounce=Debounce("u", 60)).start("a")
        beside = await other.options(debounce=Debounce("u", 60)).start("x")
        third = await shop.job.options(debounce=Debounce("v", 60)).start("b")
        assert len({first.id, beside.id, third.id}) == 3
        await first.cancel()
        again = await shop.job.options(debounce=Debounce("u", 60)).start("c")
        assert again.id != first.id
        await shop.world.advance(61)
        assert [await handle.result() for handle in (beside, third, again)] == ["x", "b", "c"]


async def test_a_debounced_run_that_a_run_asks_for_is_no_child_of_it(store_url: str) -> None:
    async with shop_at(store_url) as shop:

        @shop.app.step
        async def ask_in_step() -> str:
            return (await shop.job.options(debounce=Debounce("step", 60)).start("b")).id

        @shop.app.workflow(timeout=90)
        async def typing() -> list[str]:
            one = await shop.job.options(debounce=Debounce("flow", 60)).start("a", length=100)
            (many,) = await shop.app.start_many([shop.job.options(debounce=Debounce("many", 60)).bind("c")])
            return [one.id, many.id, await ask_in_step()]

        ids = await typing.options(id="typing")()
        for run_id in ids:
            info = await shop.app.runs.get(run_id)
            assert (info.parent, info.scheduled_by, info.deadline) == (None, "typing", None)
            assert not run_id.startswith("typing/")
        await shop.app.runs.delete("typing")
        await shop.world.advance(300)
        assert [(await shop.app.runs.get(run_id)).output for run_id in ids] == ["a", "c", "b"]


async def test_debouncing_inside_a_run_is_recorded(store_url: str) -> None:
    async with shop_at(store_url) as shop:

        @shop.app.workflow
        async def typing() -> set[str]:
            found: set[str] = set()
            for value in "abc":
                found.add((await shop.job.options(debounce=Debounce("u", 60)).start(value)).id)
                await run.sleep(10)
            return found

        (only,) = await typing()
        await shop.world.advance(61)
        assert await shop.app.handle(only).result() == "c"
    assert shop.seen == ["c"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"key": ""}, "key is a text"),
        ({"key": "k" * 513}, "key is a text"),
        ({"key_mode": "replace"}, "give key="),
        ({"key": "k", "key_mode": "overwrite"}, "key_mode is one of"),
        ({"key": "k", "debounce": Debounce("k", 1)}, "leave out key"),
        ({"after": 5, "debounce": Debounce("k", 1)}, "leave out after"),
        ({"debounce": "k"}, "Debounce"),
    ],
)
def test_bad_keys_are_errors_at_the_call(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        Shop("sqlite://").job.options(**options)


def test_a_bad_debounce_is_an_error() -> None:
    for wrong in (("", 5, None), ("k", 0, None), ("k", 10, 5)):
        with pytest.raises(InvalidInput):
            Debounce(*wrong)


@pytest.mark.parametrize("kind", ["workflow", "def workflow", "step", "transaction", "step with its own policy"])
async def test_a_run_whose_key_was_taken_while_it_ran_is_not_tried_again(store_url: str, kind: str) -> None:
    app, said, go = App(store_url, settings=Settings(poll=0.05)), list[str](), threading.Event()
    running = asyncio.Event()
    loop = asyncio.get_running_loop()

    def work(value: str) -> str:
        said.append(value)
        if value == "first":
            loop.call_soon_threadsafe(running.set)
            go.wait(10)
            raise ValueError(value)
        return value

    async def awaited(value: str) -> str:
        return await asyncio.to_thread(work, value)

    def transacted(_tx: Tx, value: str) -> str:
        return work(value)

    jobs: dict[str, Callable[[], Any]] = {
        "workflow": lambda: app.workflow(name="job")(awaited),
        "def workflow": lambda: app.workflow(name="job")(work),
        "step": lambda: app.step(name="job")(work),
        "transaction": lambda: app.transaction(name="job")(transacted),
        "step with its own policy": lambda: app.step(name="job", retry=Retry(25, first=60))(work),
    }
    job = jobs[kind]()
    own = {} if kind == "step with its own policy" else {"retry": Retry(25, first=60)}
    async with world(app, url=store_url) as w:
        first = await job.options(key="k", **own).start("first")
        await running.wait()
        taking = asyncio.ensure_future(job.options(key="k", **own).start("second"))
        if kind == "transaction" and store_url.startswith("sqlite"):
            go.set()  # it has the database for itself until it is over
        second = await taking
        go.set()
        assert await second.result() == "second"
        await w.advance("1d")
        with pytest.raises(ValueError, match="first"):
            await first.result()
        assert (second.id != first.id, (await first.describe()).attempts) == (True, 1)
    assert sorted(said) == ["first", "second"]


async def test_a_request_that_replaces_another_between_its_attempts_gets_nothing_of_that_one(store_url: str) -> None:
    """Ids of children, keys of messages and `run.step_key` are made from positions, which both requests have in common."""
    app = App()
    keys: list[str] = []

    @app.workflow
    async def doubled(value: int) -> int:
        return value * 2

    @app.step
    async def noted() -> None:
        keys.append(run.step_key)

    @app.workflow
    async def job(value: int) -> int:
        await noted()
        found = await doubled(value)
        await run.set_event("value", value)
        if value == 1:
            raise ValueError(value)
        return found

    async with world(app, url=store_url) as w:
        keyed = job.options(key="one", retry=Retry(3, first="10m"))
        first = await keyed.start(1)
        await w.advance("1m")
        assert (await first.describe()).state == "scheduled"
        second = await keyed.start(2)
        assert second.id == first.id
        assert await second.result() == 4
        assert (await second.describe()).started == w.now
        assert await app.get_event(second.id, "value") == 2
    assert len(set(keys)) == 2


@pytest.mark.parametrize("continued", ["rescheduled", "retried", "resumed"])
async def test_a_request_that_replaces_one_whose_run_is_to_continue_gets_nothing_of_that_one(
    store_url: str, continued: str
) -> None:
    app = App()
    app.queue("shop")

    @app.step
    async def doubled(value: int) -> int:
        return value * 2

    @app.workflow
    async def job(value: int) -> int:
        found = await doubled(value)
        if value == 1 and continued == "resumed":
            await run.sleep("1h")
        if value == 1:
            raise ValueError(value)
        return found

    async with world(app, url=store_url) as w:
        keyed = job.options(key="one", queue="shop")
        first = await keyed.start(1)
        await w.drain()
        if continued == "resumed":
            await first.cancel()
            await w.drain()
        await app.queues.pause("shop")
        if continued == "rescheduled":
            await app.runs.reschedule(first.id, after="1h")
        else:
            await (app.runs.retry if continued == "retried" else app.runs.resume)(first.id)
        second = await keyed.start(2)
        assert second.id == first.id
        await app.queues.resume("shop")
        assert await second.result() == 4


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_run_that_owes_compensations_has_begun_and_keeps_its_request(store_url: str, cancelled: bool) -> None:
    app = App()
    app.queue("shop")
    done: list[str] = []

    @app.step
    async def book(value: int) -> None:
        done.append(f"book {value}")

    @app.step
    async def give_back(value: int) -> None:
        done.append(f"give back {value}")

    @app.workflow
    async def job(value: int) -> int:
        async with run.undo() as undo:
            await book(value)
            undo.push(give_back.bind(value))
            await run.sleep("1m")
        return value

    async with world(app, url=store_url) as w:
        keyed = job.options(key="one", queue="shop")
        first = await keyed.start(1)
        await w.drain()
        await app.queues.pause("shop")
        await first.terminate()
        await app.runs.resume(first.id)
        if cancelled:
            await first.cancel()
        second = await keyed.start(2)
        assert second.id != first.id
        await app.queues.resume("shop")
        assert await second.result() == 2
        await w.advance("1h")
        assert (await first.describe()).state == ("cancelled" if cancelled else "succeeded")
    assert done == ["book 1", *(["give back 1"] if cancelled else []), "book 2"]
