"""A run, held by its id: wait for it, look at it, stop it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from mainspring.app.dual import dual
from mainspring.app.transacting import after
from mainspring.operations.runs import RunInfo

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from mainspring.app.options import Duration
    from mainspring.app.runtime import Runtime
    from mainspring.codec import ValueCodec

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class Handle(Generic[R_co]):
    """A run. `created` says whether the start that gave this handle made the run, or found it there under the same id."""

    _spelled: ClassVar[str] = "handle"

    def __init__(self, runtime: Runtime, run_id: str, codec: ValueCodec, *, created: bool) -> None:
        self._runtime = runtime
        self._codec = codec
        self.id = run_id
        self.created = created

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    def _block(self, work: Coroutine[Any, Any, T], label: str) -> T:
        return self._runtime.block(work, label)

    @dual
    def result(self, /, timeout: Duration | None = None) -> Coroutine[Any, Any, R_co]:
        """Wait for the run to end: its result, or its exception. `StillRunning` after `timeout`; giving up changes nothing.

        Inside a run, this is recorded and durable.
        """
        return self._runtime.results.of(self.id, self._codec, timeout)

    @dual
    def describe(self, /) -> Coroutine[Any, Any, RunInfo]:
        """Everything the store knows of the run."""
        return self._runtime.ask("describe", RunInfo, lambda runs: runs.get(self.id), reads=True)

    @dual
    def cancel(self, /, reason: str | None = None) -> Coroutine[Any, Any, bool]:
        """Ask the run and its children to stop before their next step. False if there was nothing to cancel."""
        return self._runtime.cancel(self.id, reason)

    @dual
    def terminate(self, /, reason: str | None = None) -> Coroutine[Any, Any, bool]:
        """End the run and its children at once, whatever they are doing. False if there was nothing to end."""
        return after(self._runtime.terminate_many([self.id], reason), lambda done: done[self.id])
