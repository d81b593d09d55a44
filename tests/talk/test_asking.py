"""Questions are answered by handlers inside runs, after a test that leaves no trace; asked once, answered once, whatever crashes."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Literal

import pytest

from mainspring import App, Client, Question, Settings, run
from mainspring.engine.engine import Engine
from mainspring.errors import InvalidInput, NotAnswered, NotFound, Refused, StillRunning
from mainspring.testing import crash, world
from tests.engine import lives
from tests.support.samples import calls

app = App("sqlite://")
done: Counter[str] = Counter()
add = Question("add", int, int)


@app.step
async def work(what: str) -> str:
    done[what] += 1
    return what


@app.workflow
async def account(last: int) -> list[Any]:
    """Adds up what it is asked to add, until the sum reaches `last`."""
    total = 0
    full = asyncio.Event()

    async def more(amount: int) -> int:
        nonlocal total
        await work(f"add {amount}")
        total += amount
        if amount == 13:
            raise ArithmeticError("bad luck")
        if total >= last:
            full.set()
        return total

    def positive(amount: int) -> None:
        if amount < 0:
            raise ValueError(f"{amount} is less than nothing")

    run.answer(add, more, validate=positive)
    run.answer("total", lambda _: total)
    await full.wait()
    return [total, len(await app.runs.steps(run.id))]


@app.workflow
async def asker(to: str, *amounts: int) -> list[Any]:
    answers: list[Any] = []
    for amount in amounts:
        try:
            answers.append(await app.ask(to, add, amount))
        except (Refused, ArithmeticError) as error:
            answers.append(f"{type(error).__name__}: {error}")
    return answers


@app.workflow
def blocking_asker(to: str, amount: int) -> int:
    return app.ask.sync(to, add, amount)


@app.workflow
async def hasty(to: str) -> str:
    try:
        await app.ask(to, "unheard of", timeout="1m")
    except StillRunning as error:
        return str(error)
    return "answered"


@app.workflow
def blocking_answerer() -> None:
    run.answer("x", lambda _: 1)


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


async def test_a_question_is_answered(store_url: str) -> None:
    async with world(app, url=store_url):
        handle = await account.options(id="a").start(10)
        assert await app.ask("a", add, 3) == 3
        assert await app.ask("a", "total") == 3
        assert await app.ask("a", add, 7, timeout=20) == 10
        assert (await handle.result())[0] == 10


@app.workflow
async def listener() -> str:
    """Answers until it awaits that it is enough."""
    run.answer("twice", lambda number: 2 * number)
    return str(await run.receive("enough"))


async def test_a_question_at_the_very_end_does_not_keep_a_replay_from_its_end(store_url: str) -> None:
    """The worker died between the last question and the end; in the replay the function is over before its servant has begun."""
    async with world(app, url=store_url):
        handle = await listener.options(id="a").start()
        assert await app.ask("a", "twice", 4) == 8
        await app.send("a", "enough", "done")
        assert await handle.result() == "done"
        steps = [step for step in lives.store_of(app).steps("a") if step.seq is not None]
        enough = next(step for step in steps if step.name == "enough")
        others = [step for step in steps if step is not enough]
        for seq, step in enumerate([enough, *others]):
            step.seq = seq
        assert {step.kind for step in others} >= {"question"}
        lives.put(app, listener, "b", [enough, *others])
        assert await app.handle("b").result() == "done"


async def test_a_refused_question_leaves_nothing_in_the_record(store_url: str) -> None:
    async with world(app, url=store_url):
        handle = await account.options(id="a").start(5)
        with pytest.raises(Refused, match="does not accept 'add': -1 is less than nothing") as refused:
            await app.ask("a", add, -1)
        assert isinstance(refused.value.__cause__, ValueError)
        with pytest.raises(Refused):
            await app.ask("a", "add", "not a number")
        before = [step.name for step in await app.runs.steps("a") if step.completed]
        assert before == []
        await app.ask("a", add, 5)
        await handle.result()


async def test_an_exception_of_the_handler_is_the_answer(store_url: str) -> None:
    async with world(app, url=store_url):
        await account.options(id="a").start(20)
        with pytest.raises(ArithmeticError, match="bad luck"):
            await app.ask("a", add, 13)
        assert await app.ask("a", add, 7) == 20


async def test_who_asks_in_vain_is_told_so(store_url: str) -> None:
    async with world(app, url=store_url) as w:
        with pytest.raises(NotFound, match="run 'nobody' not found"):
            await app.ask("nobody", add, 1)
        await account.options(id="a").start(1)
        waiting = asyncio.create_task(app.ask("a", "unheard of"))
        hurried = await hasty.start("a")
        await w.advance("2m")
        assert "did not answer 'unheard of'" in await hurried.result()
        with pytest.raises(StillRunning):
            await app.ask("a", "unheard of", timeout="1m")
        await app.ask("a", add, 1)
        with pytest.raises(NotAnswered, match="ended without answering"):
            await waiting
        with pytest.raises(NotAnswered):
            await app.ask("a", add, 1)


async def test_runs_ask_runs(store_url: str) -> None:
    async with world(app, url=store_url):
        handle = await account.options(id="a").start(16)
        assert await asker("a", 1, -1, 13) == [
            1,
            "Refused: run 'a' does not accept 'add': -1 is less than nothing",
            "ArithmeticError: bad luck",
        ]
        assert await blocking_asker.aio("a", 2) == 16
        assert (await handle.result())[0] == 16


async def test_a_def_workflow_answers_nothing(store_url: str) -> None:
    async with world(app, url=store_url):
        with pytest.raises(InvalidInput, match="make it `async def`"):
            await blocking_answerer.aio()


async def test_a_parked_run_answers(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app._runtime, "settings", Settings(resident=0))
    async with world(app, url=store_url):
        handle = await account.options(id="a").start(3)
        assert [await app.ask("a", add, 1) for _ in range(3)] == [1, 2, 3]
        assert (await handle.result())[0] == 3


def test_a_client_asks_and_blocks(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app._runtime, "url", store_url)
    with app, Client(store_url) as client:
        account.options(id="a").start.sync(2)
        assert client.ask.sync("a", "add", 1, timeout=20) == 1
        assert client.ask.sync("a", add, 1, timeout=20) == 2


@pytest.mark.sampled
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_at_any_call_asks_and_answers_once(
    store_url: str, when: Literal["before", "after"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that asks and the one that answers are in the process that dies."""
    monkeypatch.setattr(Engine, "patience", 0.02)  # the dead do not have to be waited for
    for at in calls(when):
        done.clear()

        async def work(at: int = at) -> Any:
            handle = await account.options(id=f"a{at}").start(6)
            answers = await asker.options(id=f"b{at}")(f"a{at}", 1, -1, 5)
            return [answers, (await handle.result())[0]]

        outcome = await crash(app, work, at=at, when=when, url=store_url)
        assert outcome.result == [[1, f"Refused: run 'a{at}' does not accept 'add': -1 is less than nothing", 6], 6]
        if not outcome.crashed:
            assert at > 10
            return
    raise AssertionError("it never came to its end without a crash")
