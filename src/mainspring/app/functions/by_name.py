"""Functions by their names: `client.start("checkout", order)`, `app.options(queue="slow").start("checkout", order)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from mainspring.app.functions.functions import Call, start_one
from mainspring.app.functions.options import Options
from mainspring.app.sync.dual import dual
from mainspring.codec import encode_call
from mainspring.codec.values import PLAIN_JSON
from mainspring.engine.registry import Function
from mainspring.errors import InvalidInput, UnknownFunction
from mainspring.model.given import check_name

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Unpack

    from mainspring.app.functions.options import OptionArguments
    from mainspring.app.runtime import Runtime
    from mainspring.app.waiting.handle import Handle
    from mainspring.codec import CallCodec

R = TypeVar("R")


class _Unknown:
    """The signature of a function whose code this process does not have. The worker checks the arguments."""

    result = PLAIN_JSON

    def bind_and_encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        return encode_call(args, kwargs)


class Starter(Generic[R]):
    """Starts runs with some options: `client.options(queue="slow").start("checkout", order)`."""

    _spelled = "client.options(…)"

    def __init__(self, runtime: Runtime, options: Options) -> None:
        self._runtime = runtime
        self._options = options

    def bind(self, name: str, /, *args: Any, **kwargs: Any) -> Call[R]:
        """Return a call of a function by its name as a value, for a schedule for example."""
        if not check_name("the name of a function, which comes first,", name).strip():
            raise InvalidInput(f"the name of a workflow comes first, not {name!r}")
        return Call(self._runtime, _function(self._runtime, name), args, kwargs, self._options)

    @dual
    def start(self, name: str, /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Handle[R]]:
        """Start a function by its name. A client cannot check the name: if no worker knows the function, the run waits until one does."""
        return start_one(self._runtime, self.bind(name, *args, **kwargs))


def _function(runtime: Runtime, name: str) -> Function:
    if runtime.has_no_code:
        return Function(name, "workflow", encode_call, is_async=True, codec=cast("CallCodec", _Unknown()), source="")
    try:
        return runtime.registry.get(name)
    except UnknownFunction as error:
        raise UnknownFunction(f"{error}. A function of another app is started by a Client of its database") from None


class ByName(Generic[R]):
    """The verbs of apps and clients that take the name of a function."""

    _spelled = ""

    @property
    def _runtime(self) -> Runtime:
        raise NotImplementedError

    def options(self, **given: Unpack[OptionArguments]) -> Starter[R]:
        """Return a starter with options: `client.options(queue="slow").start("checkout", order)`."""
        return Starter(self._runtime, Options().with_(given))

    def bind(self, name: str, /, *args: Any, **kwargs: Any) -> Call[R]:
        """Return a call of a function by its name: `client.schedules.create("nightly", client.bind("report", "eu"), spec)`."""
        return self.options().bind(name, *args, **kwargs)

    @dual
    def start(self, name: str, /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Handle[R]]:
        """Start a function by its name: `await app.start("checkout", order)`. Inside a run the new run is a child, as with `fn.start`.

        An app raises `UnknownFunction` for a name that it does not know. A client cannot check names: such a run waits for a worker.
        """
        return start_one(self._runtime, self.bind(name, *args, **kwargs))
