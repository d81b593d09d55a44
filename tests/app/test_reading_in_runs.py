"""What a run reads from the store is a step of its own: an outage is waited for, and is never its outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring import App
from mainspring.errors import StoreUnavailable
from mainspring.testing import world

if TYPE_CHECKING:
    import pytest


async def test_a_run_that_reads_waits_while_the_database_is_away(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App("sqlite://")

    @app.workflow
    async def other() -> int:
        return 7

    @app.workflow
    async def reads() -> list[Any]:
        return [(await app.runs.get("other")).id, await app.handle("other").result()]

    async with world(app, url=store_url):
        await other.options(id="other")()
        work, refused = app._runtime.in_thread, list[str]()

        async def away(question: Any, *args: Any) -> Any:
            if len(refused) % 2 == 0:
                refused.append("refused")
                raise StoreUnavailable("the line broke")
            refused.append("answered")
            return await work(question, *args)

        monkeypatch.setattr(app._runtime, "in_thread", away, raising=False)
        engine = app._runtime.engine
        assert engine is not None
        engine.patience = 0.01
        handle = await reads.start()
        assert await handle.result() == ["other", 7]
        assert refused[:2] == ["refused", "answered"]
