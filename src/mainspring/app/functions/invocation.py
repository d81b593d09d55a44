"""A function with its arguments and options: what is called, started, scheduled or stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mainspring.codec import check_size
from mainspring.engine.registry import Bound
from mainspring.errors import InvalidInput

if TYPE_CHECKING:
    from mainspring.app.functions.options import Options
    from mainspring.app.runtime import Runtime
    from mainspring.engine.registry import Function


@dataclass(frozen=True)
class Invocation:
    """A call that has not been made."""

    runtime: Runtime
    function: Function
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: Options

    @property
    def name(self) -> str:
        return self.function.name

    def encode(self) -> str:
        """The arguments as stored. Whatever is wrong with them, or with the options, is an error now."""
        function, options, args = self.function, self.options, self.args
        if options.partition and not (options.queue or function.queue):
            raise InvalidInput(f"{function.name!r}: a partition is a part of a queue; give queue= as well")
        if function.at_most_once and options.retry is not None:
            raise InvalidInput(
                f"{function.name!r} is never started a second time (at_most_once), so it cannot be retried"
            )
        if function.bound is not Bound.NOT:
            if not args:
                raise InvalidInput(f"{function.name!r} is a method: call it on an instance")
            args = (self.runtime.instances.name_of(function, args[0]), *args[1:])
        text = function.codec.bind_and_encode(args, self.kwargs)
        limit = self.runtime.settings.value_bytes
        return check_size(text, (args, self.kwargs), limit, f"the arguments of {function.name!r}")

    def check_app(self, runtime: Runtime) -> None:
        """Raise `UnknownFunction` if the function is another app's. A call by name has no code here, and cannot be checked."""
        if self.function.source:
            runtime.registry.get(self.name)
