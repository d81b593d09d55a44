"""Calls that are under way while the app is left end with an error that says so, and leave nothing open behind them."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, Settings, run
from mainspring.app.caller import outside
from mainspring.app.runtime import Connection
from mainspring.app.waits import Endings, Subscription
from mainspring.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable


async def sleeps() -> None:
    await run.sleep("1h")


def caught(call: Callable[[], Any]) -> Callable[[], BaseException | None]:
    """Make the call on a thread. The function that is returned waits for the exception it came to."""
    found: list[BaseException | None] = []

    def work() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001  (this is what is asked for)
            found.append(error)
        else:
            found.append(None)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()

    def outcome() -> BaseException | None:
        thread.join(60)
        return found[0] if found else TimeoutError("the call still waits")

    return outcome


@pytest.fixture
def watches(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Released by each call that begins to wait for a run."""
    begun = threading.Semaphore(0)
    watch = Endings.watch

    def watch_and_report(endings: Endings, run_id: str, notify: Any) -> None:
        watch(endings, run_id, notify)
        begun.release()

    monkeypatch.setattr(Endings, "watch", watch_and_report)
    return begun


@pytest.mark.parametrize("work", [True, False])
async def test_who_waits_for_a_run_while_the_app_is_left_gets_an_error(
    store_url: str, work: bool, watches: threading.Semaphore
) -> None:
    app = App(store_url, settings=Settings(work=work, grace=0.1))
    workflow = app.workflow(sleeps)
    async with app:
        handle = await workflow.start()
        on_a_thread = caught(handle.result.sync)
        on_the_loop = asyncio.create_task(handle.result())
        for _ in range(2):
            assert await asyncio.to_thread(watches.acquire, timeout=60)
    with pytest.raises(StoreUnavailable, match="the app was closed while this call waited for a run"):
        await asyncio.wait_for(on_the_loop, 60)
    assert isinstance(await asyncio.to_thread(on_a_thread), StoreUnavailable)
    assert not app._runtime.is_connected


async def test_who_waits_for_what_a_run_publishes_while_the_app_is_left_gets_an_error(store_url: str) -> None:
    app = App(store_url, settings=Settings(work=False, poll=0.05))
    workflow = app.workflow(sleeps)
    begun: asyncio.Queue[None] = asyncio.Queue()

    class Reported(Subscription):
        async def wait(self) -> bool:
            begun.put_nowait(None)
            return await super().wait()

    async def read() -> None:
        async for _ in app.read_stream(handle.id, "tokens"):
            pass

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outside, "Subscription", Reported)
        async with app:
            handle = await workflow.start()
            waits = [
                asyncio.create_task(each)
                for each in (read(), app.get_event(handle.id, "k"), app.get_event(handle.id, "k", timeout="1h"))
            ]
            for _ in waits:
                await begun.get()
        for wait in waits:
            with pytest.raises(StoreUnavailable, match="closed"):
                await asyncio.wait_for(wait, 60)


def test_who_waits_for_a_run_in_a_blocking_app_that_is_left_gets_an_error(
    store_url: str, watches: threading.Semaphore
) -> None:
    app = App(store_url, settings=Settings(grace=0.1))
    workflow = app.workflow(sleeps)
    with app:
        handle = workflow.start.sync()
        waits = caught(handle.result.sync)
        assert watches.acquire(timeout=60)
    assert isinstance(waits(), StoreUnavailable)


def test_a_call_that_comes_while_the_app_disconnects_opens_no_connection(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App(store_url, settings=Settings(work=False))
    handle = app.workflow(sleeps).start.sync()
    closing, may_close = threading.Event(), threading.Event()
    close = Connection.close

    def closes_slowly(connection: Connection) -> None:
        closing.set()
        may_close.wait(60)
        close(connection)

    monkeypatch.setattr(Connection, "close", closes_slowly)
    leaving = caught(app.close)
    closing.wait(60)
    late = caught(handle.describe.sync)
    try:
        assert isinstance(late(), StoreUnavailable)
    finally:
        may_close.set()
    assert leaving() is None
    assert not app._runtime.is_connected
    monkeypatch.undo()
    assert handle.describe.sync().id == handle.id, "an app that was closed can be used again"
    app.close()
