"""The app's runs from another process, without its code: start by name, wait, talk, see and stop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from mainspring.app.app import url_of
from mainspring.app.client_api import ClientApi
from mainspring.app.functions.functions import Call
from mainspring.app.functions.options import Options
from mainspring.app.nouns.schedules import AppSchedules
from mainspring.app.plain_json import JSON, PLAIN_JSON
from mainspring.app.runtime import Runtime
from mainspring.app.settings import Settings
from mainspring.app.sync.dual import dual
from mainspring.app.waiting.handle import Handle
from mainspring.codec import encode_call
from mainspring.engine.registry import Function
from mainspring.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Unpack

    from mainspring.app.functions.options import OptionArguments
    from mainspring.codec import CallCodec
    from mainspring.model.clock import Clock
    from mainspring.model.payloads import PayloadCodec

T = TypeVar("T")


class _Unknown:
    """Stands in for the signature of a function whose code is elsewhere: the worker finds out whether arguments fit."""

    result = PLAIN_JSON

    def bind_and_encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        return encode_call(args, kwargs)


class Starter:
    """Starts runs with some options: `client.options(queue="slow").start("checkout", order)`."""

    _spelled = "client.options(…)"

    def __init__(self, runtime: Runtime, options: Options) -> None:
        self._runtime = runtime
        self._options = options

    def bind(self, name: str, /, *args: Any, **kwargs: Any) -> Call[JSON]:
        """A call of a workflow by its name, as a value: for a schedule, for example."""
        if not isinstance(name, str) or not name.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"the name of a workflow comes first, not {name!r}")
        codec = cast("CallCodec", _Unknown())
        function = Function(name, "workflow", encode_call, is_async=True, codec=codec, source="")
        return Call(self._runtime, function, args, kwargs, self._options)

    @dual
    def start(self, name: str, /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Handle[JSON]]:
        """Start a workflow by its name. If no worker knows the name, the run waits, visibly, until one does."""
        return self.bind(name, *args, **kwargs).start()


class Client(ClientApi):
    """Everything that can be asked of an app's runs, without the app's code. Nothing is executed here.

    A client knows no types: results are plain JSON, so that a Decimal is a string, and a dataclass a dict. In a process that has
    the app, `checkout.handle(run_id)` gives the values themselves.

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
        self.schedules = AppSchedules(self)
        """The schedules in the app's database."""

    @property
    def _runtime(self) -> Runtime:
        return self._own_runtime

    def options(self, **given: Unpack[OptionArguments]) -> Starter:
        """How runs are to be started."""
        return Starter(self._runtime, Options().with_(given))

    def bind(self, name: str, /, *args: Any, **kwargs: Any) -> Call[JSON]:
        """A call of a workflow by its name: `client.schedules.create("nightly", client.bind("report", "eu"), spec)`."""
        return Starter(self._runtime, Options()).bind(name, *args, **kwargs)

    @dual
    def start(self, name: str, /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Handle[JSON]]:
        """Start a workflow by its name."""
        return Starter(self._runtime, Options()).start(name, *args, **kwargs)

    def handle(self, run_id: str) -> Handle[JSON]:
        """A handle for a run by its id. Whether there is one is found out when something is asked of it."""
        return Handle(self._runtime, run_id, None)

    def close(self) -> None:
        """Disconnect."""
        self._runtime.disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.to_thread(self.close)
