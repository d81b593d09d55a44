"""A worker that starts a run itself and does not hear whether that was stored: the run is not stuck in a hand that does not know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mainspring import Settings
from mainspring.errors import StoreUnavailable
from mainspring.store.ops import Start
from tests.fleet import apps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring import App
    from mainspring.store.ops import Op


async def test_a_run_whose_start_was_stored_but_not_acknowledged_is_executed(
    client: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.runtime.settings = Settings(poll=60)
    async with client:
        store = client.runtime.connection().store
        apply = client.runtime.connection().committer._apply
        silenced = []

        def silent(ops: Sequence[Op], now: int) -> Any:
            answers = apply(ops, now)
            if not silenced and any(isinstance(op, Start) for op in ops):
                silenced.extend(ops)
                raise StoreUnavailable("the line broke")
            return answers

        monkeypatch.setattr(client.runtime.connection().committer, "_apply", silent)
        with pytest.raises(StoreUnavailable, match="the line broke"):
            await apps.three_steps.options(id="r").start(1)
        assert store.run("r") is not None
        handle = await apps.three_steps.options(id="r").start(1)
        assert not handle.created
        assert await handle.result(timeout=10) == 4
