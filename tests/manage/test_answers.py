"""What the verbs of runs answer."""

from __future__ import annotations

import pytest

from mainspring import App, run
from mainspring.errors import InvalidInput, RunCancelled
from mainspring.testing import world


async def test_what_a_verb_answers_is_true_when_it_has_changed_something(store_url: str) -> None:
    app = App(store_url)

    @app.workflow
    async def waits() -> None:
        await run.sleep("1d")

    async with world(app, url=store_url):
        assert not await app.runs.cancel("no such run")
        assert not await app.runs.cancel(workflow="waits")
        handle = await waits.options(id="a").start()
        assert await app.runs.cancel("a", "no such run") == {"a": True, "no such run": False}
        with pytest.raises(RunCancelled):
            await handle.result()
        assert not await app.runs.cancel("a")
        assert await app.runs.resume("a")
        assert await app.runs.terminate("a", "no such run")
        assert await app.runs.delete("a")
        assert not await app.runs.delete("a")


@pytest.mark.parametrize("named", [["a", "b"], 5, None])
@pytest.mark.parametrize(
    "verb", ["get", "steps", "logs", "cancel", "terminate", "resume", "retry", "complete", "fail", "delete", "export"]
)
def test_what_is_no_id_is_an_error_at_the_call(verb: str, named: object) -> None:
    app = App()
    with pytest.raises(InvalidInput, match="a run is named by its id, a text"):
        getattr(app.runs, verb)(named)
