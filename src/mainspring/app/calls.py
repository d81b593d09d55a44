"""Calls of an app's functions: their arguments as stored, and what they are inside a run."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mainspring.app.new_runs import new_run
from mainspring.codec import check_size
from mainspring.engine import flows
from mainspring.engine.drivers import drive, drive_blocking
from mainspring.engine.flows import StepCall
from mainspring.engine.registry import Bound
from mainspring.engine.transactions import TransactionCall, transaction
from mainspring.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from mainspring.app.functions import Call
    from mainspring.app.runtime import Runtime
    from mainspring.engine.context import Line
    from mainspring.engine.recording import Flow
    from mainspring.engine.registry import Function


class Calls:
    """Checks and makes calls for one app. A method's instance is stored under the name it was given."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.instances: dict[str, Any] = {}

    def encode(self, call: Call[Any]) -> str:
        """The arguments as stored. Whatever is wrong with them is an error now."""
        function, args = call.function, call.args
        if call.options.partition and not (call.options.queue or function.queue):
            raise InvalidInput(f"{function.name!r}: a partition is a part of a queue; give queue= as well")
        if function.at_most_once and call.options.retry is not None:
            raise InvalidInput(
                f"{function.name!r} is never started a second time (at_most_once), so it cannot be retried"
            )
        if function.bound is not Bound.NOT:
            if not args:
                raise InvalidInput(f"{function.name!r} is a method: call it on an instance")
            args = (self._receiver_name(function, args[0]), *args[1:])
        text = function.codec.bind_and_encode(args, call.kwargs)
        limit = self._runtime.settings.value_bytes
        return check_size(text, (args, call.kwargs), limit, f"the arguments of {function.name!r}")

    def _receiver_name(self, function: Function, receiver: Any) -> str:
        if function.bound is Bound.CLASS:
            return _class_name(receiver)
        for name, instance in self.instances.items():
            if instance is receiver:
                return name
        raise InvalidInput(
            f"{function.name!r} is a workflow and a method, so its instance must be findable after a restart: "
            'name it with app.instance("name", obj)'
        )

    def methods(self) -> dict[str, list[str]]:
        """The functions that need an instance, each with the names of those that there are. Names are the app's, not the class's."""
        names = sorted(self.instances)
        return {each.name: names for each in self._runtime.registry if each.bound is Bound.INSTANCE}

    def receiver(self, function: Function, name: Any) -> Any:
        """The instance or class that a stored call was made on."""
        if function.bound is Bound.CLASS:
            return _find_class(name)
        if name not in self.instances:
            raise InvalidInput(
                f"{function.name!r} needs the instance {name!r}, which is not named here with app.instance(…)"
            )
        return self.instances[name]

    def operation(self, line: Line, call: Call[Any]) -> Coroutine[Any, Any, Any]:
        """A call inside an `async def` run."""
        return drive(line.execution, self._flow(line, call))

    def blocking_operation(self, line: Line, call: Call[Any]) -> Any:
        """A call inside a `def` run."""
        return drive_blocking(line.execution, self._flow(line, call))

    def blocking_transaction(
        self, line: Line, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A transaction inside a `def` run. It has no options, so it needs no call to carry them."""
        made = TransactionCall.of(self._runtime.registry.known(function), args, kwargs)
        return drive_blocking(line.execution, transaction(line.execution, line.take_position(), made))

    def _flow(self, line: Line, call: Call[Any]) -> Flow:
        ex = line.execution
        if call.function.kind == "transaction":
            made = TransactionCall.of(call.function, call.args, call.kwargs)
            return transaction(ex, line.take_position(), made)
        if call.function.kind != "workflow":
            prepared = StepCall.of(call.function, call.args, call.kwargs)
            if call.options.timeout is not None or call.options.no_timeout:
                prepared.timeout = call.options.timeout
            position = line.take_position()
            return flows.step(ex, position, prepared)
        if call.options.key is not None or call.options.debounce is not None:
            raise InvalidInput(
                f"with a key it may be another run: write handle = await {call.name}.options(…).start(…), then its result()"
            )
        text = self.encode(call)
        position = line.take_position()
        run_id = call.options.id or ex.child_id(position)
        make = lambda: [new_run(self._runtime, call, text, run_id, ex)]  # noqa: E731
        return flows.call(ex, position, call.name, make, call.function.codec.result)


def _class_name(cls: type) -> str:
    name = f"{cls.__module__}:{cls.__qualname__}"
    try:
        found = _find_class(name)
    except (ImportError, AttributeError):
        found = None
    if found is not cls:
        raise InvalidInput(
            f"{name} cannot be imported, so a run of its methods could not be continued; define it in a module"
        )
    return name


def _find_class(name: str) -> Any:
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found
