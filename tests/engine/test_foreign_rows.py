"""Rows that this code did not write: those that make sense run, those that do not fail alone, with a reason."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring import App, AsyncFn, Settings, State
from mainspring.errors import MainspringError
from mainspring.testing import world
from tests.engine.lives import count_runs, info, put
from tests.support.samples import covering


def make_app(**settings: object) -> App:
    app = App(settings=Settings(**settings))  # type: ignore[arg-type]

    @app.workflow(name="add")
    async def add(a: int, b: int = 1, *, c: int = 0) -> int:
        return a + b + c

    @app.workflow(name="plain")
    def plain(a: int) -> int:
        return a

    return app


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ('{"a": 1}', 2),
        ('{"a": 1, "b": 2, "c": 3}', 6),
        ('{"*": [1, 2]}', 3),
        ('{"*": [1], "c": 4}', 6),
        ('{"c":1,"a":5}', 7),
    ],
)
async def test_a_call_stored_by_another_language_is_executed(store_url: str, text: str, result: int) -> None:
    app = make_app()
    async with world(app, url=store_url):
        put_named(app, "add", "a", text)
        assert await app.handle("a").result() == result


@covering
@pytest.mark.parametrize("name", ["add", "plain"])
@pytest.mark.parametrize("text", ['{"a": "one"}', "{}", "[1]", '{"*": 3}', '{"*": [1, 2, 3]}'])
async def test_a_call_that_does_not_fit_ends_failed_once_and_alone(store_url: str, name: str, text: str) -> None:
    app = make_app()
    async with world(app, url=store_url):
        put_named(app, name, "bad", text)
        put_named(app, name, "good", '{"a": 1}')
        assert await app.handle("good").result() in {1, 2}
        with pytest.raises(MainspringError):
            await app.handle("bad").result()
        assert (info(app, "bad").state, info(app, "bad").recoveries) == (State.FAILED, 1)


def put_named(app: App, name: str, run_id: str, text: str) -> None:
    put(app, AsyncFn[..., Any](app, app._runtime.registry.get(name)), run_id, input=text)


async def test_two_apps_share_a_server_without_seeing_each_other(postgres_url: str) -> None:
    first, second = make_app(schema="first"), make_app(schema="second")
    async with world(first, url=postgres_url), world(second, url=postgres_url):
        put_named(first, "add", "a", '{"a": 1}')
        put_named(second, "add", "a", '{"a": 10}')
        assert await first.handle("a").result() == 2
        assert await second.handle("a").result() == 11
        assert (count_runs(first), count_runs(second)) == (1, 1)
