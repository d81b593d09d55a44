"""What is logged inside a run says where it comes from, and is kept with the run where the setting says so."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mainspring import App, Client, Retry, Settings, run

if TYPE_CHECKING:
    import pytest

log = logging.getLogger("shop")


def _app(url: str, keep: str) -> App:
    app = App(url, settings=Settings(keep_logs=keep))

    @app.step(retry=Retry(2, first=0.01))
    async def charge() -> None:
        log.info("trying, %s", run.attempt)
        if run.attempt == 1:
            raise OSError("no line")

    @app.workflow(name="checkout")
    async def checkout() -> None:
        log.warning("begins")
        log.debug("not kept")
        await charge()

    return app


async def test_records_carry_run_workflow_step_and_attempt(store_url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "shop")
    async with _app(store_url, "off") as app, Client(store_url) as client:
        await (await client.options(id="a").start("checkout")).result(timeout=20)
        assert await app.runs.logs("a") == []
    found = [
        tuple(getattr(record, f"mainspring_{name}") for name in ("run", "workflow", "step", "attempt"))
        for record in caplog.records
        if record.name == "shop"
    ]
    step = found[1][2]
    assert step is not None
    assert step.endswith("charge")
    assert found == [("a", "checkout", None, None), ("a", "checkout", step, 1), ("a", "checkout", step, 2)]


async def test_logs_are_kept_and_shown(store_url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "shop")
    async with _app(store_url, "info"), Client(store_url) as client:
        await (await client.options(id="a").start("checkout")).result(timeout=20)
        log.info("outside of runs")
    async with Client(store_url) as client:
        lines = await client.runs.logs("a")
        assert [(line.level, line.message, line.attempt) for line in lines] == [
            ("WARNING", "begins", None),
            ("INFO", "trying, 1", 1),
            ("INFO", "trying, 2", 2),
        ]
        assert [line.position for line in lines][1:] == ["0", "0"]
        assert len(await client.runs.logs("a", 1)) == 1
        await client.runs.delete("a")
        assert await client.runs.logs("a") == []
