"""How the steps of a function have gone: counted from the runs that ended last."""

from __future__ import annotations

import asyncio
import json

import pytest
from click.testing import CliRunner

from mainspring import App, Client, Retry, State, StepFigures, Tx, run
from mainspring.cli.main import main
from mainspring.errors import InvalidInput
from mainspring.operations.metrics import Metrics, as_text
from mainspring.testing import world

app = App("sqlite://")


@app.step(retry=Retry(3, first=1, factor=1, jitter=0))
async def charge(number: int) -> int:
    if number == 9 or (number == 5 and run.attempt < 3):
        raise ConnectionError("away")
    return number


@app.transaction
def save(tx: Tx, number: int) -> int:
    return int(tx.execute("SELECT 1").fetchone()[0]) + number


@app.workflow
async def checkout(number: int) -> int:
    await charge(number)
    await run.sleep("1h")
    return await save.aio(number)


async def test_figures_of_steps(store_url: str) -> None:
    async with world(app, url=store_url) as w:
        handles = [await checkout.start(number) for number in range(10)]
        await w.advance("2h")
        assert [(await handle.describe()).state for handle in handles].count(State.FAILED) == 1
        figures = {each.name: each for each in await app.runs.step_figures("checkout")}
        assert figures == {
            "charge": StepFigures("charge", "step", 10, 1, 0.1, 1.4, 0.0, 2.0),
            "save": StepFigures("save", "transaction", 9, 0, 0.0, 1.0, 0.0, 0.0),
        }
        (charged,) = [each for each in await app.runs.step_figures("checkout", last=1) if each.name == "charge"]
        assert charged.count == 1
        assert await app.runs.step_figures("unknown") == []
        for last in (0, 10_001, True, "9"):
            with pytest.raises(InvalidInput, match="last is a number of runs from 1 to 10,000"):
                await app.runs.step_figures("checkout", last=last)  # type: ignore[arg-type]
        job = await app.run_after(1, charge.bind(3))
        await w.advance(2)
        assert (await app.runs.step_figures("charge"))[0].count == 1
        await job.result()
    await asyncio.to_thread(_from_outside, store_url)


def _from_outside(url: str) -> None:
    with Client(url) as client:
        assert len(client.runs.step_figures.sync("checkout")) == 2
        store, clock = client._runtime.connection().store, client._runtime.clock
        text = as_text(Metrics(store, clock).families())
    assert 'mainspring_step_seconds{workflow="checkout",step="charge",quantile="0.95"} 2\n' in text
    assert 'mainspring_step_failure_ratio{workflow="checkout",step="charge"} 0.1\n' in text
    assert 'mainspring_step_attempts{workflow="checkout",step="charge"} 1.4\n' in text
    shown = CliRunner().invoke(main, ["runs", "step-figures", "checkout", "--url", url])
    assert shown.exit_code == 0, shown.output
    assert "charge" in shown.stdout
    assert "1 (10.0 %)" in shown.stdout
    shown = CliRunner().invoke(main, ["runs", "step-figures", "checkout", "--url", url, "-o", "json"])
    assert {each["name"]: each["p95"] for each in json.loads(shown.stdout)} == {"charge": 2.0, "save": 0.0}
    shown = CliRunner().invoke(main, ["runs", "step-figures", "none", "--url", url])
    assert "no run of none has ended" in shown.stderr
