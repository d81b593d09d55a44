"""The loops of a worker go on, whatever happens to one of their rounds: a worker without them would beat and do nothing."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from mainspring import App, Settings
from mainspring.app.declarations.worker_declarations import WorkerDeclarations
from mainspring.model.clock import SystemClock
from mainspring.services.service import Service
from tests.engine import lives

if TYPE_CHECKING:
    from collections.abc import Callable


class Rounds(Service):
    """A service whose first round, or the wait after it, fails as told."""

    name = "rounds"

    def __init__(self, fails: Callable[[], Any], where: str) -> None:
        super().__init__(cast("Any", SimpleNamespace(store=None, clock=SystemClock())), 60)
        self._fails = fails
        self._where = where
        self.begun = 0

    async def run_once(self, now: int) -> int | None:  # noqa: ARG002
        self.begun += 1
        if self.begun == 1 and self._where == "round":
            await self._fails()
        return None

    async def _wait(self, next_due: int | None) -> None:
        if self.begun == 1 and self._where == "wait":
            await self._fails()
        await super()._wait(next_due)


async def _cancelled() -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def _raises() -> None:
    raise OverflowError("too far away")


@pytest.mark.parametrize("fails", [_cancelled, _raises])
@pytest.mark.parametrize("where", ["round", "wait"])
async def test_a_service_goes_on_after_a_round_that_fails_or_is_cancelled(
    fails: Callable[[], Any], where: str, caplog: pytest.LogCaptureFixture
) -> None:
    service = Rounds(fails, where)
    task = asyncio.ensure_future(service.run())
    async with asyncio.timeout(20):
        while service.begun < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert "rounds failed; retrying" in caplog.text
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_worker_joins_again_whatever_fails_at_first(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = App(store_url)

    @app.workflow
    async def double(number: int) -> int:
        return 2 * number

    bring, failed = WorkerDeclarations.bring, list[Exception]()

    def bring_later(self: WorkerDeclarations, *args: Any) -> None:
        if not failed:
            failed.append(RuntimeError("nobody expected this"))
            raise failed[0]
        bring(self, *args)

    async with asyncio.timeout(60), app:
        assert app._worker is not None
        before = app._worker.engine.worker_id
        monkeypatch.setattr(WorkerDeclarations, "bring", bring_later)
        app._worker._heartbeat.stop_soon()  # it is the one that notices, and ends
        app._worker._lost()
        await lives.until(lambda: app._runtime.engine is not None and app._runtime.engine.worker_id != before)
        assert failed
        assert await double(4) == 8


async def test_a_full_worker_does_not_look_again_and_again_for_a_run_that_is_due(store_url: str) -> None:
    app = App(store_url, settings=Settings(concurrency=1))
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.workflow
    async def fills_the_slot() -> None:
        begun.set()
        await go_on.wait()

    @app.workflow
    async def due_later() -> None: ...

    async with app:
        claimer = app._worker._claimer  # type: ignore[union-attr]
        await due_later.options(after="1h").start()
        await lives.until(lambda: claimer._next_due is not None, 0.01)
        due = claimer._next_due
        assert due is not None
        await fills_the_slot.start()
        await begun.wait()
        assert await claimer.run_once(due - 1) == due
        assert await claimer.run_once(due) is None, "the end of a run wakes it, and time does not"
        go_on.set()
    app.close()
