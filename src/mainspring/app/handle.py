"""Handles: references to runs by their ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mainspring.app.caller.current import current_caller
from mainspring.app.coroutines import Mapped
from mainspring.app.dual import dual
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
    """A reference to a run. `created`: the start that returned this handle stored the run; False if the id existed before."""

    _spelled = "handle"

    def __init__(self, runtime: Runtime, run_id: str, codec: ValueCodec | None, *, created: bool = False) -> None:
        """Without a `codec` the result is decoded by the run's own function, if the app has it."""
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
        """Wait for the end of the run, and return its result or raise its exception. Inside a run the outcome is recorded.

        Raises `StillRunning` (a `TimeoutError`) after `timeout`, which does not affect the run; `RunCancelled`, `RunTimedOut`, `NotFound`.
        """
        return current_caller(self._runtime).result(self.id, self._codec, timeout)

    @dual
    def describe(self, /) -> Coroutine[Any, Any, RunInfo]:
        """Look up the run: state, times, input, output, error and the rest, as a `RunInfo`."""
        clock = self._runtime.clock
        return current_caller(self._runtime).read("describe", RunInfo, lambda store: Runs(store, clock).get(self.id))

    @dual
    def cancel(self, /, reason: str | None = None) -> Coroutine[Any, Any, bool]:
        """Cancel the run and its children: they stop before their next step. Returns False if the run had ended or is unknown."""
        check_reason(reason)
        done = current_caller(self._runtime).cancel("cancel", [self.id], reason)
        return Mapped(done, lambda found: found[self.id])

    @dual
    def terminate(self, /, reason: str | None = None) -> Coroutine[Any, Any, bool]:
        """End the records of the run and its children at once, and fence their workers. Returns False if the run had ended or is unknown."""
        check_reason(reason)
        done = current_caller(self._runtime).terminate([self.id], reason)
        return Mapped(done, lambda found: found[self.id])


def handle_of(runtime: Runtime, codec: ValueCodec | None, started: StartedRun) -> Handle[Any]:
    """Make the handle of a run that was started."""
    return Handle(runtime, started.id, codec, created=started.created)
