"""A client for an app's database, for processes without the app's code."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from mainspring.app.app import url_of
from mainspring.app.client_api import ByName, ClientApi
from mainspring.app.handle import Handle
from mainspring.app.nouns.runs import RunVerbs
from mainspring.app.runtime import Runtime
from mainspring.app.settings import Settings
from mainspring.codec.values import JSON
from mainspring.model.given import check_name

if TYPE_CHECKING:
    from mainspring.model.clock import Clock
    from mainspring.model.payloads import PayloadCodec


class Client(ClientApi, ByName[JSON]):
    """Starts, sends to, lists and stops the runs of an app, without the app's code. A client executes nothing.

    A client knows no types: results are plain JSON, so a Decimal is a string, and a dataclass a dict. In a process that has the app,
    `checkout.handle(run_id)` returns decoded values.

    `url` is the database (default: `$MAINSPRING_URL`, else `sqlite:///mainspring.db`). Close it, or use it as `with Client(url)`
    or `async with Client(url)`. `payloads` is the codec that the app encodes its values with: without it they are shown as "encrypted".
    """

    _spelled = "client"

    def __init__(
        self,
        url: str | None = None,
        *,
        payloads: PayloadCodec | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        where = url_of(url)
        self._own_runtime = Runtime(where, settings or Settings(), clock, has_no_code=True, payloads=payloads)

    @property
    def _runtime(self) -> Runtime:
        return self._own_runtime

    @property
    def runs(self) -> RunVerbs[JSON]:
        """Verbs on runs: list, get, cancel, retry, fork and the rest."""
        return RunVerbs(self._runtime)

    def handle(self, run_id: str) -> Handle[JSON]:
        """Return a handle for a run by its id. An unknown id raises `NotFound` when the handle is used."""
        return Handle(self._runtime, check_name("the id of a run", run_id), None)

    def close(self) -> None:
        """Close the connections."""
        self._runtime.disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.to_thread(self.close)
