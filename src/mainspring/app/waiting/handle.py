"""A run, held by its id: wait for it, look at it, stop it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mainspring.app.caller.current import current_caller
from mainspring.app.sync.dual import dual
from mainspring.app.sync.mapped import Mapped
from mainspring.errors import InvalidInput
from mainspring.operations.runs.actions import check_reason
from mainspring.operations.runs.info import RunInfo, Runs

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from mainspring.app.caller.protocol import StartedRun
    from mainspring.app.functions.options import Duration
    from mainspring.app.runtime import Runtime
    from mainspring.codec import ValueCodec

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Handle(Generic[R_co]):
    """A run. `created` says whether the start that gave this handle made the run, or found it there under the same id."""

    _spelled = "handle"

    def __init__(self, runtime: Runtime, run_id: str, codec: ValueCodec | None, *, created: bool = False) -> None:
        """Without a `codec` the run's own function says how its result is decoded, if the app has it."""
        if not isinstance(run_id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"a run id is a string, not {run_id!r}")
        self._runtime = runtime
        self._codec = codec
        self.id = run_id
        self.created = created

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    @dual
    def result(self, /, timeout: Duration | None = None) -> Coroutine[Any, Any, R_co]:
        """Wait for the run to end: its result, or its exception. `StillRunning` after `timeout`; giving up changes nothing.

        Inside a run, this is recorded and durable.
        """
        return current_caller(self._runtime).result(self.id, self._codec, timeout)

    @dual
    def describe(self, /) -> Coroutine[Any, Any, RunInfo]:
        """Everything the store knows of the run."""
        clock = self._runtime.clock
        return current_caller(self._runtime).read("describe", RunInfo, lambda store: Runs(store, clock).get(self.id))

    @dual
    def cancel(self, /, reason: str | None = None) -> Coroutine[Any, Any, bool]:
        """Ask the run and its children to stop before their next step. False if there was nothing to cancel."""
        check_reason(reason)
        done = current_caller(self._runtime).cancel("cancel", [self.id], reason)
        return Mapped(done, lambda found: found[self.id])

    @dual
    def terminate(self, /, reason: str | None = None) -> Coroutine[Any, Any, bool]:
        """End the run and its children at once, whatever they are doing. False if there was nothing to end."""
        check_reason(reason)
        done = current_caller(self._runtime).terminate([self.id], reason)
        return Mapped(done, lambda found: found[self.id])


def handle_of(runtime: Runtime, codec: ValueCodec | None, started: StartedRun) -> Handle[Any]:
    """The handle of a run that was started."""
    return Handle(runtime, started.id, codec, created=started.created)
