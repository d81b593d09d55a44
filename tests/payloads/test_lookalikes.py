"""Values of users that look like what a codec stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mainspring import App, run
from mainspring.payloads import Encryption
from mainspring.testing import world
from tests.payloads.test_canary import dump

if TYPE_CHECKING:
    from mainspring.model.payloads import PayloadCodec

LOOKALIKES: list[Any] = [
    {"$payload": "canary"},
    {"$payload": None, "a": 1},
    {"$plain": {"$payload": "canary"}},
    {"$plain": 1},
    {"a": {"$payload": "canary"}},
]


@pytest.mark.parametrize("codec", [None, Encryption(Encryption.new_key())], ids=["plain", "encrypted"])
async def test_they_are_values_like_any_other(store_url: str, codec: PayloadCodec | None) -> None:
    app = App(payloads=codec)

    @app.step
    async def echo(value: Any) -> Any:
        return value

    @app.workflow
    async def told(value: dict[str, Any]) -> dict[str, Any]:
        assert await echo(value) == value
        assert await run.receive("topic") == value
        await run.set_event("event", value)
        await run.write_stream("stream", value)
        return value

    async with world(app, url=store_url):
        for number, value in enumerate(LOOKALIKES):
            name = f"run-{number}"
            handle = await told.options(id=name).start(value)
            await app.send(name, "topic", value)
            assert await handle.result() == value
            assert await app.get_event(name, "event") == value
            assert [each async for each in app.read_stream(name, "stream")] == [value]
            lines = await app.runs.export(name)
            await app.runs.delete(name)
            await app.runs.load(lines)
            assert await app.handle(name).result() == value
            if codec is None:
                assert (await app.runs.get(name)).output == value
        if codec is not None:
            assert "canary" not in dump(store_url)
