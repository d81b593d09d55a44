"""A worker that starts a run and does not hear whether that was stored: the run is not stuck in a hand that does not know of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mainspring import App, Settings
from mainspring.app.backstage import Backstage
from mainspring.errors import StoreUnavailable
from mainspring.store.committer import Committer
from mainspring.store.ops import Start

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.model.clock import Clock
    from mainspring.store.ops import Op, Result
    from mainspring.store.protocol import Store


class Deaf(Backstage):
    """Stores the first start, and does not hear that it did."""

    heard = True

    def committer(self, store: Store, clock: Clock) -> Committer:
        def apply(ops: Sequence[Op], now: int) -> list[Result | Exception]:
            answers = store.apply(ops, now)
            if self.heard and any(isinstance(op, Start) for op in ops):
                self.heard = False
                raise StoreUnavailable("the line broke")
            return answers

        return Committer(apply, clock)


async def test_a_run_whose_start_was_stored_but_not_acknowledged_is_executed(store_url: str) -> None:
    app = App(store_url, settings=Settings(poll=60))
    app.runtime.backstage = Deaf()

    @app.workflow
    async def answer() -> int:
        return 42

    async with app:
        with pytest.raises(StoreUnavailable, match="the line broke"):
            await answer.options(id="r").start()
        handle = await answer.options(id="r").start()
        assert not handle.created
        assert await handle.result(timeout=10) == 42
