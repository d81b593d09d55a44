"""What stands at the position of an operation that a retry or a resume has forgotten has ids and keys of its own."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import Any, cast

import pytest

from mainspring import App, Question, Retry, Tx, run
from mainspring.errors import Interrupted
from mainspring.testing import world
from tests.engine.lives import another_process

TWICE = Retry(2, first=1)
_double = Question("double", str, str)


class Shop:
    """An app whose check fails in the first attempt. The handler of that and what comes after it stand at one position."""

    def __init__(self) -> None:  # noqa: C901  (all its functions)
        self.app = app = App()
        self.keys: dict[str, list[str]] = {}

        @app.step
        async def check(fails: bool) -> str:
            if fails:
                raise ConnectionError("no answer")
            return "checked"

        @app.step
        async def outside(what: str) -> str:
            self.keys.setdefault(what, []).append(f"{run.step_key} {run.uuid()}")
            return what

        @app.workflow
        async def child(what: str) -> str:
            return what

        @app.workflow
        async def other(what: str) -> str:
            return f"other {what}"

        @app.workflow
        async def servant() -> list[Any]:
            async def answer(what: str) -> str:
                return f"answer to {what}"

            run.answer(_double, answer)
            return [await run.receive("t", timeout=5), await run.receive("t", timeout=5)]

        @app.step
        async def start_in_step(what: str) -> str:
            return (await child.start(what)).id

        @app.step
        async def send_in_step(to: str, what: str) -> None:
            await app.send(to, "t", what)

        @app.transaction
        def start_in_transaction(tx: Tx, what: str) -> str:
            del tx
            return child.start.sync(what).id

        @app.transaction
        def send_in_transaction(tx: Tx, to: str, what: str) -> None:
            del tx
            app.send.sync(to, "t", what)

        self.check, self.outside, self.child, self.other, self.servant = check, outside, child, other, servant
        self.start_in_step, self.send_in_step = start_in_step, send_in_step
        self.start_in_transaction, self.send_in_transaction = start_in_transaction, send_in_transaction

    async def do(self, how: str, to: str, what: str) -> Any:  # noqa: PLR0911
        """One operation, at one position."""
        handle = self.app.handle
        if how == "call":
            return await self.child(what)
        if how == "start":
            return await (await self.child.start(what)).result()
        if how == "start_many":
            found = await self.app.start_many([self.child.bind(what), self.child.bind(what)])
            return await found[1].result()
        if how == "run_after":
            return await handle((await self.app.run_after(0, self.child.bind(what))).id).result()
        if how == "in a step":
            return await handle(await self.start_in_step(what)).result()
        if how == "in a transaction":
            return await handle(await self.start_in_transaction.aio(what)).result()
        if how == "send in a step":
            await self.send_in_step(to, what)
        elif how == "send in a transaction":
            await self.send_in_transaction.aio(to, what)
        else:
            return await self.app.ask(to, _double, what)
        return what

    def workflow(self, how: str) -> Any:
        @self.app.workflow(retry=TWICE)
        async def work(to: str) -> Any:
            try:
                await self.check(run.attempt == 1)
            except ConnectionError:
                await self.do(how, to, "handled")
                raise
            return await self.do(how, to, "done")

        return work


@pytest.mark.parametrize("how", ["call", "start", "start_many", "run_after", "in a step", "in a transaction"])
async def test_a_run_is_not_taken_for_one_that_the_attempt_before_has_started(store_url: str, how: str) -> None:
    shop = Shop()
    work = shop.workflow(how)
    async with world(shop.app, url=store_url) as w:
        handle = await work.start("")
        await w.advance("1m")
        assert await handle.result() == "done"


@pytest.mark.parametrize("how", ["send in a step", "send in a transaction"])
async def test_a_message_is_not_taken_for_one_that_the_attempt_before_has_sent(store_url: str, how: str) -> None:
    shop = Shop()
    work = shop.workflow(how)
    async with world(shop.app, url=store_url) as w:
        servant = await shop.servant.start()
        await work.start(servant.id)
        await w.advance("1m")
        assert await servant.result() == ["handled", "done"]


async def test_a_question_is_not_taken_for_one_that_the_attempt_before_has_asked(store_url: str) -> None:
    shop = Shop()
    work = shop.workflow("ask")
    async with world(shop.app, url=store_url) as w:
        servant = await shop.servant.start()
        handle = await work.start(servant.id)
        await w.advance("1m")
        assert await handle.result() == "answer to done"


async def test_a_question_whose_answer_failed_is_asked_again(store_url: str) -> None:
    app, asked = App(), list[str]()

    @app.workflow
    async def servant() -> None:
        async def answer(what: str) -> str:
            asked.append(what)
            if len(asked) == 1:
                raise ConnectionError("no answer")
            return f"answer to {what}"

        run.answer(_double, answer)
        await run.receive("stop", timeout="2m")

    @app.workflow(retry=TWICE)
    async def work(to: str) -> str:
        return await app.ask(to, _double, "this")

    async with world(app, url=store_url) as w:
        handle = await work.start((await servant.start()).id)
        await w.advance("1m")
        assert await handle.result() == "answer to this"
    assert asked == ["this", "this"]


async def test_another_function_may_be_called_where_one_has_failed(store_url: str) -> None:
    app = App()

    @app.workflow
    async def primary() -> str:
        raise ConnectionError("no answer")

    @app.workflow
    async def backup() -> str:
        return "backup"

    @app.workflow(retry=Retry(4, first=1))
    async def work() -> str:
        return await (primary() if run.attempt < 3 else backup())

    async with world(app, url=store_url) as w:
        handle = await work.start()
        await w.advance("1m")
        assert await handle.result() == "backup"
        assert len([*await app.runs.list(workflow="primary")]) == 1, "the child that failed was retried"


async def test_what_is_executed_once_more_has_another_key_and_what_is_repeated_has_the_same(store_url: str) -> None:
    shop = Shop()

    @shop.app.step
    async def pay() -> None:
        shop.keys.setdefault("pay", []).append(run.step_key)
        if len(shop.keys["pay"]) < 3:
            raise TimeoutError("no answer")

    @shop.app.workflow(retry=Retry(9, first=1))
    async def work() -> None:
        try:
            await shop.check(run.attempt < 3)
        finally:
            await shop.outside("handled" if run.attempt < 3 else "done")
        await pay()

    async with world(shop.app, url=store_url) as w:
        handle = await work.start()
        await w.advance("5m")
        await handle.result()
    keys = [*shop.keys["handled"], *shop.keys["done"]]
    assert len({key for each in keys for key in each.split()}) == 6, "three times a key and a uuid"
    assert len(shop.keys["pay"]) == 3
    assert len(set(shop.keys["pay"])) == 1


@pytest.mark.parametrize("how", ["raises", "cancelled", "in a child"])
async def test_a_step_that_begins_at_most_once_does_not_begin_in_the_next_attempt(store_url: str, how: str) -> None:
    app, began, begun = App(), list[int](), asyncio.Event()

    @app.step(at_most_once=True)
    async def pay() -> str:
        began.append(1)
        if len(began) > 1:
            return "paid"
        begun.set()
        if how == "cancelled":
            await asyncio.Event().wait()
        raise ConnectionError("no answer")

    @app.step
    async def check(fails: bool) -> None:
        await begun.wait()
        if fails:
            raise ConnectionError("no answer")

    @app.workflow
    async def child() -> str:
        return await pay()

    @app.workflow(retry=Retry(3, first=1))
    async def work() -> str:
        if how == "in a child":
            return await child()
        if how == "cancelled":
            async with asyncio.TaskGroup() as group:
                group.create_task(check(run.attempt == 1))
                paying = group.create_task(pay())
            return paying.result()
        return await pay()

    async with world(app, url=store_url) as w:
        handle = await work.options(id="r").start()
        await w.advance("1m")
        with pytest.raises((ConnectionError, ExceptionGroup)) as caught:
            await handle.result()
        assert isinstance(caught.value, ConnectionError) or caught.group_contains(Interrupted)
        assert len(began) == 1
        await app.runs.retry("r")  # whoever asks for it wants it
        assert await handle.result() == "paid"
    assert len(began) == 2


async def test_what_was_undone_is_done_anew_by_a_resumed_run_and_undone_anew(store_url: str) -> None:
    shop = Shop()

    @shop.app.workflow
    async def work() -> str:
        async with run.undo() as undo:
            made = await shop.child("made")
            await shop.outside("charge")
            undo.push(shop.outside.bind("refund"))
            await run.receive("go")
        return made

    async with world(shop.app, url=store_url) as w:
        handle = await work.options(id="r").start()
        await w.advance("1s")
        for _ in range(2):
            await handle.cancel()
            await w.advance("1s")
            assert await shop.app.runs.resume("r") == {"r": True}
            await w.advance("1s")
        await shop.app.send("r", "go", None)
        assert await handle.result() == "made"
        assert len([*await shop.app.runs.list(workflow="child")]) == 3
    assert len(set(shop.keys["charge"])) == len(shop.keys["charge"]) == 3
    assert len(set(shop.keys["refund"])) == len(shop.keys["refund"]) == 2


async def test_code_behind_a_forgotten_operation_has_keys_of_its_own(store_url: str) -> None:
    shop = Shop()
    keys: dict[str, set[str]] = {}

    def note(what: str) -> None:
        keys.setdefault(what, set()).add(f"{run.step_key} {run.uuid()}")

    @shop.app.workflow(retry=TWICE)
    async def work() -> None:
        note("before")
        await shop.outside("first")
        note("between")
        try:
            await shop.check(run.attempt == 1)
        except ConnectionError:
            note("in the handler")
            await shop.outside("handled")
            note("after the handler")
            raise
        note("checked")
        await shop.outside("done")
        note("done")
        await run.receive("go")

    async with world(shop.app, url=store_url) as w:
        handle = await work.options(id="r").start()
        await w.advance("1m")
        await another_process(w)
        await shop.app.send("r", "go", None)
        await handle.result()
    assert {what: len(found) for what, found in keys.items()} == dict.fromkeys(keys, 1), (
        "each is the same in every replay"
    )
    found = [key for each in keys.values() for both in each for key in both.split()]
    assert len(set(found)) == len(found) == 12


class Till:
    """An app that charges at most once, after or beside an exception that ends the first attempt of its run."""

    def __init__(self) -> None:
        self.app = app = App()
        self.charged: list[str] = []
        self.failed = asyncio.Event()

        @app.step(at_most_once=True)
        async def charge(what: str) -> str:
            self.charged.append(what)
            if what == "refused":
                raise PermissionError(what)
            return f"charged {what} {len(self.charged)}"

        @app.step
        async def check(fails: bool) -> str:
            if fails:
                raise ConnectionError("no answer")
            return "checked"

        self.charge, self.check = charge, check

    def workflow(self, how: str) -> Any:
        body = getattr(self, how.replace(" ", "_"))

        @self.app.workflow(retry=Retry(3, first=1))
        async def work() -> list[str]:
            return cast("list[str]", await body(run.attempt < 3))

        return work

    async def above_a_branch(self, fails: bool) -> list[str]:
        branch = asyncio.create_task(self.check(fails))
        await asyncio.wait([branch])
        return [await self.charge("a"), await branch]

    async def refused_above_a_branch(self, fails: bool) -> list[str]:
        branch = asyncio.create_task(self.check(fails))
        await asyncio.wait([branch])
        try:
            return [await self.charge("refused")]
        except PermissionError as error:
            return [str(error), await branch]

    async def in_a_finally(self, fails: bool) -> list[str]:
        found: list[str] = []
        try:
            found.append(await self.check(fails))
        finally:
            found.append(await self.charge("a"))
        return found

    async def after_other_operations(self, fails: bool) -> list[str]:
        try:
            await self.check(fails)
            await asyncio.gather(self.check(False), self.check(False))
        finally:
            found = await self.charge("a")
        return [found]

    async def in_another_branch(self, fails: bool) -> list[str]:
        try:
            await self.check(fails)
            await asyncio.gather(self.check(False), self.check(False))
        finally:
            found = await asyncio.create_task(self.charge("a"))
        return [found]

    async def in_a_loop(self, fails: bool) -> list[str]:
        found: list[str] = []
        for attempt in range(2):
            try:
                await self.check(fails and run.attempt == attempt + 1)
            finally:
                found.append(await self.charge("a"))
        return found

    async def twice(self, fails: bool) -> list[str]:
        try:
            await self.check(fails)
        finally:
            found = await asyncio.gather(self.charge("a"), self.charge("a"))
        return [*found]

    async def another_input(self, fails: bool) -> list[str]:
        try:
            return [await self.check(fails), await self.charge("b")]
        except ConnectionError:
            await self.charge("a")
            raise


@pytest.mark.parametrize(
    ("how", "charged", "result"),
    [
        ("above a branch", ["a"], ["charged a 1", "checked"]),
        ("refused above a branch", ["refused"], ["refused", "checked"]),
        ("in a finally", ["a"], ["checked", "charged a 1"]),
        ("after other operations", ["a"], ["charged a 1"]),
        ("in another branch", ["a"], ["charged a 1"]),
        ("in a loop", ["a", "a"], ["charged a 1", "charged a 2"]),
        ("twice", ["a", "a"], ["charged a 1", "charged a 2"]),
        ("another input", ["a", "b"], ["checked", "charged b 2"]),
    ],
)
async def test_the_next_attempt_gets_the_outcome_of_a_step_that_begins_at_most_once(
    store_url: str, how: str, charged: list[str], result: list[str]
) -> None:
    till = Till()
    work = till.workflow(how)
    async with world(till.app, url=store_url) as w:
        handle = await work.options(id="r").start()
        await w.advance("1m")
        assert await handle.result() == result
        names = {step.name for step in await till.app.runs.steps("r")}
        assert names == {"check", "charge"}
    assert till.charged == charged


async def test_an_outcome_of_an_earlier_attempt_is_received_by_one_call_also_across_a_restart(store_url: str) -> None:
    till = Till()

    @till.app.workflow(retry=TWICE)
    async def work() -> list[str]:
        try:
            await till.check(run.attempt == 1)
            await till.check(False)
        finally:
            found = [await till.charge("a")]
        await run.receive("go")
        return [*found, await till.charge("a")]

    async with world(till.app, url=store_url) as w:
        handle = await work.options(id="r").start()
        await w.advance("1m")
        await another_process(w)
        await till.app.send("r", "go", None)
        assert await handle.result() == ["charged a 1", "charged a 2"]


async def test_what_an_operator_lets_fail_again_is_executed_again_wherever_it_stands(store_url: str) -> None:
    till, fails = Till(), [True]

    @till.app.workflow(retry=TWICE)
    async def work() -> None:
        try:
            await till.check(fails[-1])
            await till.check(False)
        finally:
            with contextlib.suppress(PermissionError):
                await till.charge("refused")

    async with world(till.app, url=store_url) as w:
        handle = await work.options(id="r").start()
        await w.advance("1m")
        assert till.charged == ["refused"]
        fails.append(False)
        await till.app.runs.retry("r")
        await handle.result()
    assert till.charged == ["refused", "refused"]


async def test_ad_hoc_steps_are_told_apart_by_what_their_functions_have_with_them(store_url: str) -> None:
    till, charged = Till(), list[str]()

    def charge(what: str) -> str:
        charged.append(what)
        return what

    @till.app.workflow(retry=Retry(3, first=1))
    async def work() -> str:
        once = run.step.options(at_most_once=True)
        what = "a" if run.attempt < 3 else "b"
        try:
            await till.check(run.attempt < 3)
        finally:
            found = await once("charge", lambda: charge(what))
            found += await once("charge", partial(charge, f"partial {what}"))
        return found

    async with world(till.app, url=store_url) as w:
        handle = await work.start()
        await w.advance("1m")
        assert await handle.result() == "bpartial b"
    assert charged == ["a", "partial a", "b", "partial b"]


async def test_what_a_step_has_published_stays_when_another_operation_at_its_position_is_forgotten(
    store_url: str,
) -> None:
    till = Till()

    @till.app.step(at_most_once=True)
    async def pay() -> None:
        await run.set_event("paid", 1)

    @till.app.workflow(retry=Retry(3, first=1))
    async def work() -> None:
        try:
            await till.check(run.attempt == 1)
        except ConnectionError:
            await pay()
            raise
        await till.check(run.attempt == 2)

    async with world(till.app, url=store_url) as w:
        handle = await work.start()
        await w.advance("1m")
        await handle.result()
        assert await till.app.get_event(handle.id, "paid") == 1


async def test_an_operator_s_retry_does_not_repeat_a_step_that_succeeded_and_begins_at_most_once(
    store_url: str,
) -> None:
    till, broken = Till(), [True]

    @till.app.workflow
    async def work() -> str:
        try:
            await till.check(broken[0])
        finally:
            found = await till.charge("a")
        return found

    async with world(till.app, url=store_url) as w:
        handle = await work.options(id="r").start()
        await w.advance("1s")
        broken.clear()
        broken.append(False)
        await till.app.runs.retry("r")
        assert await handle.result() == "charged a 1"
    assert till.charged == ["a"]


async def test_a_step_that_begins_at_most_once_is_executed_again_where_its_block_was_undone(store_url: str) -> None:
    till = Till()

    @till.app.step
    async def refund() -> None:
        till.charged.append("refund")

    @till.app.workflow(retry=TWICE)
    async def work() -> str:
        async with run.undo() as undo:
            found = await till.charge("a")
            undo.push(refund.bind())
            await till.check(run.attempt == 1)
        return found

    async with world(till.app, url=store_url) as w:
        handle = await work.options(id="r").start()
        await w.advance("1m")
        assert await handle.result() == "charged a 3"
    assert till.charged == ["a", "refund", "a"]


async def test_a_compensation_that_begins_at_most_once_is_executed_each_time_that_its_block_is_undone(
    store_url: str,
) -> None:
    till = Till()

    @till.app.workflow(retry=TWICE)
    async def work() -> None:
        async with run.undo() as undo:
            await till.charge("a")
            undo.push(till.charge.bind("refund"))
            await till.check(True)

    async with world(till.app, url=store_url) as w:
        handle = await work.start()
        await w.advance("1m")
        with pytest.raises(ConnectionError):
            await handle.result()
    assert till.charged == ["a", "refund", "a", "refund"]


async def test_what_a_failed_compensation_has_not_undone_is_not_executed_again(store_url: str) -> None:
    till = Till()

    @till.app.workflow(retry=TWICE)
    async def work() -> None:
        async with run.undo() as undo:
            await till.charge("a")
            undo.push(till.charge.bind("refused"))
            await till.check(True)

    async with world(till.app, url=store_url) as w:
        handle = await work.start()
        await w.advance("1m")
        with pytest.raises(ConnectionError):
            await handle.result()
    assert till.charged == ["a", "refused"]


@pytest.mark.parametrize("where", ["above", "in a task from before"])
async def test_what_stood_beside_a_block_that_was_undone_is_not_executed_again(store_url: str, where: str) -> None:
    till = Till()

    @till.app.workflow(retry=TWICE)
    async def work() -> None:
        entered, charged = asyncio.Event(), asyncio.Event()

        async def beside() -> None:
            await till.check(False)
            await entered.wait()
            await till.charge("beside")
            charged.set()

        async def block() -> None:
            async with run.undo() as undo:
                await till.charge("a")
                undo.push(till.charge.bind("refund"))
                entered.set()
                await charged.wait()
                await till.check(run.attempt == 1)

        other = asyncio.create_task(block() if where == "above" else beside())
        await till.check(False)
        await (beside() if where == "above" else block())
        await other

    async with world(till.app, url=store_url) as w:
        handle = await work.start()
        await w.advance("1m")
        await handle.result()
    assert till.charged == ["a", "beside", "refund", "a"]
