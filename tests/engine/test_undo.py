"""Compensations run in reverse order when a run fails, is cancelled or out of time: each once, also across crashes."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Literal, cast

import pytest

from mainspring import App, State, run
from mainspring.engine.engine import Engine
from mainspring.engine.residency.halting import Halting
from mainspring.errors import InvalidInput, RunCancelled, RunTimedOut
from mainspring.testing import crash, world
from tests.engine import lives
from tests.support.samples import calls, covering

if TYPE_CHECKING:
    from mainspring.engine.replay.execution import Execution

app = App("sqlite://")
done: list[str] = []


@app.step
async def book(what: str) -> str:
    done.append(f"book {what}")
    if what == "nothing":
        raise OSError("there is nothing")
    return f"a {what}"


@app.step
async def cancel_booking(what: str) -> None:
    done.append(f"cancel {what}")
    if what == "a stubborn hotel":
        raise OSError("it does not answer")


@app.workflow
async def trip(*wishes: str, sleep: float = 0) -> list[str]:
    async with run.undo() as undo:
        booked: list[str] = []
        for wish in wishes:
            thing = await book(wish)
            undo.push(cancel_booking.bind(thing))
            booked.append(thing)
        if sleep:
            await run.sleep(sleep)
        return booked


@app.workflow
def blocking_trip(*wishes: str) -> list[str]:
    with run.undo() as undo:
        booked: list[str] = []
        for wish in wishes:
            booked.append(book.sync(wish))
            undo.push(cancel_booking.bind(booked[-1]))
        run.sleep.sync("1d")
        return booked


@app.workflow
async def caught(*wishes: str) -> str:
    try:
        async with run.undo() as undo:
            undo.push(cancel_booking.bind(await book("car")))
            await book(wishes[0])
    except OSError:
        await book("bus")
    return "went by bus"


@app.workflow
async def idle() -> None:
    async with run.undo() as undo:
        undo.push(cancel_booking.bind(await book("flight")))
        await asyncio.Event().wait()


@app.step
async def press() -> None:
    """Once this is recorded, it is time to cut the run off if it had not heeded that it was to stop."""
    executing = app._runtime.engine
    assert executing is not None
    asyncio.get_running_loop().call_soon(executing.halting._press, executing.executions["a"])


@app.workflow
async def slow_to_undo() -> None:
    async with run.undo() as undo:
        for what in ("flight", "hotel"):
            undo.push(cancel_booking.bind(await book(what)))
            undo.push(press.bind())
        await run.sleep("1d")


@app.workflow
async def wrong() -> None:
    async with run.undo() as undo:
        undo.push(trip.bind("x"))


reached = threading.Event()
released = threading.Event()


@app.workflow
async def last_lines(then: float = 0) -> str:
    async with run.undo() as undo:
        undo.push(cancel_booking.bind(await book("flight")))
        await asyncio.to_thread(_stand_still)
    if then:
        await run.sleep(then)
    return "done"


@app.workflow
def blocking_last_lines(then: float = 0) -> str:
    with run.undo() as undo:
        undo.push(cancel_booking.bind(book.sync("flight")))
        _stand_still()
    if then:
        run.sleep.sync(then)
    return "done"


def _stand_still() -> None:
    """Something in a block that is no operation, and takes a while."""
    reached.set()
    released.wait(20)


@pytest.fixture(autouse=True)
def nothing_done(monkeypatch: pytest.MonkeyPatch) -> None:
    done.clear()
    reached.clear()
    released.clear()
    monkeypatch.setattr(Engine, "patience", 0.02)


async def test_a_good_end_undoes_nothing(store_url: str) -> None:
    async with world(app, url=store_url):
        assert await trip("flight", "hotel") == ["a flight", "a hotel"]
        assert done == ["book flight", "book hotel"]


async def test_a_failure_undoes_in_reverse_order(store_url: str) -> None:
    async with world(app, url=store_url):
        with pytest.raises(OSError, match="nothing"):
            await trip("flight", "hotel", "nothing")
        assert done == ["book flight", "book hotel", "book nothing", "cancel a hotel", "cancel a flight"]


async def test_what_is_caught_outside_goes_on(store_url: str) -> None:
    async with world(app, url=store_url):
        assert await caught("nothing") == "went by bus"
        assert done == ["book car", "book nothing", "cancel a car", "book bus"]


@covering
@pytest.mark.parametrize("parked", [False, True])
@pytest.mark.parametrize("blocking", [False, True])
async def test_a_cancelled_run_undoes(store_url: str, *, parked: bool, blocking: bool) -> None:
    async with world(app, url=store_url) as w:
        handle = (
            await blocking_trip.options(id="a").start("flight", "hotel")
            if blocking
            else await trip.options(id="a").start("flight", "hotel", sleep=86400)
        )
        await w.advance("1m")
        if parked:
            await w.app.__aexit__()
            await lives.enter_again(w)
            assert lives.info(app, "a").worker is None
        assert await handle.cancel("no holiday")
        with pytest.raises(RunCancelled, match="no holiday"):
            await handle.result()
        assert done == ["book flight", "book hotel", "cancel a hotel", "cancel a flight"]
        assert (await app.runs.get("a")).reason == "no holiday"
        assert not await handle.cancel()


async def test_an_undo_that_takes_long_is_not_taken_for_a_run_that_does_not_stop(store_url: str) -> None:
    async with world(app, url=store_url) as w:
        handle = await slow_to_undo.options(id="a").start()
        await w.advance("1m")
        await handle.cancel()
        with pytest.raises(RunCancelled):
            await handle.result()
        assert done == ["book flight", "book hotel", "cancel a hotel", "cancel a flight"]


async def test_a_run_out_of_time_undoes(store_url: str) -> None:
    async with world(app, url=store_url):
        with pytest.raises(RunTimedOut):
            await trip.options(timeout="1h")("flight", sleep=86400)
        assert done == ["book flight", "cancel a flight"]


@pytest.mark.parametrize("function", [last_lines, blocking_last_lines])
async def test_a_run_that_is_cancelled_in_the_last_lines_of_its_block_undoes(store_url: str, function: Any) -> None:
    """Also where the worker does not know: the record says that the block was left, unless the run was stopped before."""
    async with world(app, url=store_url) as w:
        handle = await function.start()
        await asyncio.to_thread(reached.wait, 20)
        lives.store_of(w.app).cancel([handle.id], "enough", w.app._runtime.clock.now())
        released.set()
        with pytest.raises(RunCancelled):
            await handle.result()
        assert done == ["book flight", "cancel a flight"]


@pytest.mark.parametrize("function", [last_lines, blocking_last_lines])
async def test_a_run_that_is_out_of_time_in_the_last_lines_of_its_block_undoes(store_url: str, function: Any) -> None:
    async with world(app, url=store_url) as w:
        handle = await function.options(timeout="1h").start()
        await asyncio.to_thread(reached.wait, 20)
        lives.engine_of(w.app).executions[
            handle.id
        ].run.deadline = w.app._runtime.clock.now()  # and its timer has not rung yet
        released.set()
        with pytest.raises(RunTimedOut):
            await handle.result()
        assert done == ["book flight", "cancel a flight"]


@pytest.mark.parametrize("function", [last_lines, blocking_last_lines])
async def test_a_run_that_is_cancelled_after_a_good_end_of_its_block_undoes_nothing(
    store_url: str, function: Any
) -> None:
    released.set()
    async with world(app, url=store_url) as w:
        handle = await function.start(then=86400)
        await lives.until(lambda: lives.info(w.app, handle.id).state is State.WAITING)
        await handle.cancel()
        with pytest.raises(RunCancelled):
            await handle.result()
        assert done == ["book flight"]


@pytest.mark.parametrize("leaving", ["recorded", "not recorded"])
async def test_a_block_that_was_left_is_not_undone_however_long_its_replay_takes(
    store_url: str, monkeypatch: pytest.MonkeyPatch, leaving: str
) -> None:
    """The replay waits in the block for something that is no operation, and the record has what came after the block.

    The leaving is not recorded if the block had no compensation then, and a patch has added one since.
    """
    looked: list[str] = []
    press_on = Halting._press_on

    def counted(halting: Halting, ex: Execution, unreached: int) -> None:
        looked.append(ex.id)
        press_on(halting, ex, unreached)

    monkeypatch.setattr(Halting, "_press_on", counted)
    released.set()
    async with world(app, url=store_url) as w:
        handle = await last_lines.options(id="left").start(then=86400)
        await lives.until(lambda: lives.info(w.app, "left").state is State.WAITING)
        if leaving == "not recorded":
            await w.app._vanish()
            assert lives.execute(store_url, "DELETE FROM steps WHERE name = 'left'") == 1
            lives.execute(store_url, "UPDATE runs SET state = 'running'")
            await lives.enter_again(w)
            await lives.until(lambda: lives.engine_of(w.app).executions)
            await lives.until(lambda: lives.info(w.app, "left").state is State.WAITING)
            assert "left" not in lives.names(w.app, "left"), (
                "a cancel that came just now would find it inside the block"
            )
        released.clear()
        reached.clear()
        await handle.cancel()
        await asyncio.to_thread(reached.wait, 20)
        before = len(looked)
        await lives.until(lambda: len(looked) >= before + 3)
        released.set()
        with pytest.raises(RunCancelled):
            await handle.result()
        assert done == ["book flight"]


async def test_a_run_that_waits_for_nothing_of_ours_undoes(store_url: str) -> None:
    async with world(app, url=store_url):
        handle = await idle.start()
        while not done:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await handle.cancel()
        with pytest.raises(RunCancelled):
            await handle.result()
        assert done == ["book flight", "cancel a flight"]


async def test_a_run_that_the_garbage_collector_closes_undoes_nothing(store_url: str) -> None:
    async with world(app, url=store_url):
        handle = await idle.start()
        assert app._runtime.engine is not None
        ex = app._runtime.engine.executions[handle.id]
        while not done or ex.outstanding:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        left = cast("asyncio.Task[None]", ex.tasks.root)
        left.get_coro().close()  # as happens to the tasks of a loop that is no more
        left.cancel()
        await asyncio.wait({left})
        assert isinstance(left.exception(), RuntimeError)
        assert done == ["book flight"]


async def test_a_compensation_that_fails_does_not_keep_the_others(store_url: str) -> None:
    async with world(app, url=store_url) as w:
        handle = await trip.options(id="a").start("flight", "stubborn hotel", sleep=86400)
        await w.advance("1m")
        await handle.cancel("no holiday")
        with pytest.raises(RunCancelled):
            await handle.result()
        assert done[2:] == ["cancel a stubborn hotel", "cancel a flight"]
        assert (await app.runs.get("a")).reason == (
            "no holiday; could not undo everything: OSError: it does not answer"
        )


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("error", [asyncio.CancelledError("x"), BaseExceptionGroup("x", [SystemExit(1)])])
async def test_a_compensation_that_cancels_itself_does_not_keep_the_others(
    store_url: str, error: BaseException, *, blocking: bool
) -> None:
    mine = App()

    @mine.step
    async def give_back(what: str) -> None:
        done.append(f"give back {what}")

    @mine.step
    def gives_up(what: str) -> None:
        done.append(f"give up {what}")
        raise error

    def push(undo: Any) -> None:
        for call in (give_back.bind("a"), gives_up.bind("b"), give_back.bind("c")):
            undo.push(call)

    @mine.workflow
    async def order(sleep: float = 0) -> None:
        async with run.undo() as undo:
            push(undo)
            await run.sleep(sleep)
            raise OSError("no")

    @mine.workflow
    def blocking_order(sleep: float = 0) -> None:
        with run.undo() as undo:
            push(undo)
            run.sleep.sync(sleep)
            raise OSError("no")

    function: Any = blocking_order if blocking else order
    async with world(mine, url=store_url) as w:
        handle = await function.options(id="fails").start()
        with pytest.raises(OSError, match="no") as caught:
            await handle.result()
        assert "could not undo everything" in str(getattr(caught.value, "__notes__", ""))
        stopped = await function.options(id="stopped").start(86400)
        await w.advance("1m")
        await stopped.cancel("no holiday")
        with pytest.raises(RunCancelled):
            await stopped.result()
        assert done == ["give back c", "give up b", "give back a"] * 2
        assert (await mine.runs.get("stopped")).reason == (
            f"no holiday; could not undo everything: {type(error).__name__}: {error}"
        )


async def test_what_was_undone_is_done_again_by_a_retry(store_url: str) -> None:
    async with world(app, url=store_url) as w:
        handle = await trip.options(id="a").start("flight", sleep=60)
        await w.advance("1s")
        await handle.cancel()
        with pytest.raises(RunCancelled):
            await handle.result()
        assert await app.runs.resume("a") == {"a": True}
        assert await handle.result() == ["a flight"]
        assert done == ["book flight", "cancel a flight", "book flight"]


async def test_a_workflow_undoes_nothing(store_url: str) -> None:
    async with world(app, url=store_url):
        with pytest.raises(InvalidInput, match="is a workflow"):
            await wrong()


@pytest.mark.sampled
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_at_any_call_undoes_once(store_url: str, when: Literal["before", "after"]) -> None:
    for at in calls(when):
        done.clear()

        async def work(at: int = at) -> Any:
            await app.start_many(
                [
                    trip.options(id=f"c{at}").bind("hotel", "car", sleep=86400),
                    trip.options(id=f"f{at}").bind("flight", "nothing"),
                ]
            )
            while (await app.runs.get(f"c{at}")).state in {State.QUEUED, State.RUNNING}:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await app.runs.cancel(f"c{at}")
            ends: list[str] = []
            for run_id in (f"c{at}", f"f{at}"):
                try:
                    await app.handle(run_id).result()
                except (OSError, RunCancelled) as error:
                    ends.append(type(error).__name__)
            steps = [[step.name for step in await app.runs.steps(run_id)] for run_id in (f"c{at}", f"f{at}")]
            return [ends, steps]

        outcome = await crash(app, work, at=at, when=when, url=store_url)
        ends, (cancelled, failed) = outcome.result
        assert ends == ["RunCancelled", "OSError"]
        assert cancelled == ["undo", "book", "book", "cancel_booking", "cancel_booking", "sleep"]
        assert failed == ["undo", "book", "book", "cancel_booking"]
        assert done.index("cancel a car") < done.index("cancel a hotel")
        if not outcome.crashed:
            assert at > 10
            return
    raise AssertionError("it never came to its end without a crash")


async def test_undoing_is_not_cut_off_for_taking_long(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was halted and holds on is pressed after a while; it is executed once more by then, and that is not pressed."""
    monkeypatch.setattr("mainspring.engine.engine.Engine.patience", 0.001)
    slow = App(store_url)
    undone: list[int] = []

    @slow.step
    async def put_back(number: int) -> None:
        await asyncio.sleep(0.01)
        undone.append(number)

    @slow.workflow
    async def take() -> None:
        async with run.undo() as undo:
            for number in range(6):
                undo.push(put_back.bind(number))
            await run.sleep(86_400)

    async with slow:
        handle = await take.start()
        while (await handle.describe()).state != State.WAITING:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await handle.cancel()
        with pytest.raises(RunCancelled):
            await handle.result()
    assert undone == [5, 4, 3, 2, 1, 0]


@app.workflow
async def pushes_outside(when: str) -> None:
    undo = run.undo()
    if when == "after":
        async with undo:
            pass
    undo.push(cancel_booking.bind("a flight"))


@app.workflow
def pushes_outside_of_with() -> None:
    run.undo().push(cancel_booking.bind("a flight"))


async def test_a_compensation_that_would_never_be_made_is_refused(store_url: str) -> None:
    async with world(app, url=store_url):
        for call in (pushes_outside("before"), pushes_outside("after"), pushes_outside_of_with.aio()):
            with pytest.raises(InvalidInput, match="push inside it"):
                await call
