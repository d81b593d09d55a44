"""Operations that the workflow's own code cancels: the record says so, and a replay cancels them at the same place."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, AsyncFn, run
from mainspring.errors import NonDeterminism
from mainspring.model.runs import Step
from mainspring.store.committer import Committer
from mainspring.store.messages import Post
from mainspring.store.writes import DiscardOutcome, RecordAndSend, RecordStep, Send
from mainspring.testing import world
from tests.engine.lives import DEAD, put, store_of

if TYPE_CHECKING:
    from mainspring.store.protocol import Store

app = App()
begun: list[str] = []
executing: asyncio.Event
"""Set when a step executes that does not end. A new one for each event loop."""


@app.step
async def note(what: str) -> str:
    begun.append(what)
    return what


@app.step(at_most_once=True)
async def never_over() -> None:
    executing.set()
    await asyncio.Event().wait()


@app.step
async def also_never_over() -> None:
    executing.set()
    await asyncio.Event().wait()


@app.workflow
async def limited() -> list[str]:
    """The sleep is over first, and the limit of the block as well, before the code has left the block."""
    async with run.timeout("1h"):
        await run.sleep("30m")
    return [await note("a"), await note("b")]


@app.workflow
async def reads_again() -> int | None:
    """The first branch receives the message, but the sleep was over before it."""
    reading = asyncio.ensure_future(run.receive("numbers"))
    await run.sleep("30m")
    reading.cancel()
    await asyncio.wait([reading])
    number: int | None = await run.receive("numbers", timeout="1d")
    return number


@app.workflow
async def gives_up_once() -> str:
    return await _gives_up(never_over)


@app.workflow
async def gives_up_while_waiting() -> str:
    """The run is stored as waiting when its step begins, because another branch has waited for a while."""
    waiting = asyncio.ensure_future(run.receive("nothing"))
    await asyncio.sleep(0.2)
    try:
        return await _gives_up(also_never_over)
    finally:
        waiting.cancel()


async def _gives_up(step: AsyncFn[[], None]) -> str:
    global executing  # noqa: PLW0603
    executing = asyncio.Event()
    task = asyncio.ensure_future(step())
    await executing.wait()
    task.cancel()
    await asyncio.wait([task])
    return await note("after")


def both_over(now: int) -> list[Step]:
    """A crash came after two outcomes were recorded and before the second, which the code no longer awaits, was discarded."""
    return [
        Step("", "0", "sleep", "sleep", seq=0, output="null", started=now, completed=now, due=now),
        Step("", "t0.0", "sleep", "sleep", seq=1, output="null", started=now, completed=now, due=now),
    ]


async def test_an_outcome_that_the_code_no_longer_awaited_is_passed_over_and_discarded(store_url: str) -> None:
    begun.clear()
    async with world(app, url=store_url) as w:
        put(app, limited, "r", both_over(w.clock.now()))
        assert await app.handle("r").result() == ["a", "b"]
        assert begun == ["a", "b"]
        assert [step.position for step in store_of(app).steps("r") if step.discarded] == ["t0.0"]


async def test_code_that_does_not_agree_with_the_record_does_not_change_it(store_url: str) -> None:
    begun.clear()
    async with world(app, url=store_url) as w:
        now = w.clock.now()
        later = Step("", "1", "step", "note", seq=2, output='"a"', started=now, completed=now)
        other = Step("", "2", "step", "something_else", seq=3, output='"b"', started=now, completed=now)
        put(app, limited, "r", [*both_over(now), later, other])
        with pytest.raises(NonDeterminism):
            await app.handle("r").result()
        assert not begun
        assert not [step.position for step in store_of(app).steps("r") if step.discarded]


async def test_a_message_that_was_received_for_a_cancelled_branch_is_received_by_another(store_url: str) -> None:
    async with world(app, url=store_url) as w:
        now = w.clock.now()

        def receive(store: Store) -> None:
            store.apply([Send("r", [Post("r", "numbers", "7", now)])], now)
            message = store.messages.next("r", "numbers", question=False, skip=set())
            assert message is not None
            sleep = Step("r", "1", "sleep", "sleep", 0, output="null", started=now, completed=now, due=now, epoch=1)
            taken = Step("r", "0", "receive", "numbers", 1, output="7", started=now, completed=now, epoch=1)
            taken.child = "r"
            store.apply([RecordStep(DEAD, sleep)], now)
            store.apply([RecordAndSend(DEAD, taken, outgoing=[], takes=message.number)], now)

        put(app, reads_again, "r", then=receive)
        assert await app.handle("r").result() == 7


@pytest.mark.parametrize("workflow", [gives_up_once, gives_up_while_waiting], ids=lambda each: each.name)
async def test_a_step_that_is_cancelled_while_it_executes_has_an_outcome_in_the_record(
    workflow: AsyncFn[[], str], store_url: str
) -> None:
    async with world(app, url=store_url):
        handle = await workflow.options(id="r").start()
        assert await handle.result() == "after"
        assert not [step.name for step in store_of(app).steps("r") if step.completed is None]


async def test_no_other_branch_goes_on_before_the_one_that_cancelled_an_operation(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it was cancelled is committed first. A replay does not wait for that, so no other outcome may come before."""
    app = App(store_url)
    committing, discarding, release = asyncio.Event(), asyncio.Event(), asyncio.Event()
    commit = Committer.commit

    async def delayed(answer: asyncio.Future[Any]) -> Any:
        await release.wait()
        return await answer

    def commit_slowly(committer: Committer, op: Any, **options: Any) -> asyncio.Future[Any]:
        answer = commit(committer, op, **options)
        loop = asyncio.get_running_loop()
        if isinstance(op, DiscardOutcome):
            discarding.set()
            loop.call_later(0.2, release.set, context=contextvars.Context())
        elif isinstance(op, RecordStep) and op.step.name.endswith("given_up") and op.step.completed:
            committing.set()
        else:
            return answer
        return loop.create_task(delayed(answer), context=contextvars.Context())

    @app.step
    async def given_up() -> None:
        pass

    @app.step
    async def other() -> None:
        await discarding.wait()

    @app.workflow
    async def work() -> list[str]:
        order: list[str] = []

        async def giving_up() -> None:
            try:
                await given_up()
            finally:
                order.append("gave up")

        async def beside() -> None:
            await other()
            order.append("beside")

        task, second = asyncio.create_task(giving_up()), asyncio.create_task(beside())
        await committing.wait()
        task.cancel()
        await asyncio.wait({task, second})
        return order

    monkeypatch.setattr(Committer, "commit", commit_slowly)
    async with app:
        assert await work() == ["gave up", "beside"]
