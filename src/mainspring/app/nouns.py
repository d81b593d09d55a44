"""`app.runs` and `app.workers`, and the same of a client: what an operator may see and do. Recorded when called inside a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from mainspring.app.dual import dual
from mainspring.operations.runs import RunInfo, RunPage, StepInfo
from mainspring.operations.workers import WorkerInfo, Workers

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from mainspring.app.runtime import Runtime

T = TypeVar("T")


class _Noun:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def _block(self, work: Coroutine[Any, Any, T], label: str) -> T:
        return self._runtime.block(work, label)


class RunVerbs(_Noun):
    """Seeing and stopping runs."""

    _spelled: ClassVar[str] = "runs"

    @dual
    def get(self, /, run_id: str) -> Coroutine[Any, Any, RunInfo]:
        """Everything the store knows of a run. `NotFound` if there is none."""
        return self._runtime.ask("runs.get", RunInfo, lambda runs: runs.get(run_id), reads=True)

    @dual
    def steps(self, /, run_id: str) -> Coroutine[Any, Any, list[StepInfo]]:
        """What a run has recorded, in order."""
        return self._runtime.ask("runs.steps", list[StepInfo], lambda runs: runs.steps(run_id), reads=True)

    @dual
    def list(
        self,
        /,
        *,
        state: Sequence[str] = (),
        workflow: str | None = None,
        id_prefix: str | None = None,
        parent: str | None = None,
        stranded: bool | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Coroutine[Any, Any, RunPage]:
        """A page of runs, newest first. Hand `next` of a page back as `after` for the one that follows."""
        return self._runtime.ask(
            "runs.list",
            RunPage,
            lambda runs: runs.list(
                state=state,
                workflow=workflow,
                id_prefix=id_prefix,
                parent=parent,
                stranded=stranded,
                after=after,
                limit=limit,
            ),
            reads=True,
        )

    @dual
    def counts(self, /) -> Coroutine[Any, Any, dict[str, int]]:
        """How many runs are in each state that is not an end."""
        return self._runtime.ask("runs.counts", dict[str, int], lambda runs: runs.counts(), reads=True)

    @dual
    def cancel(self, /, *ids: str, reason: str | None = None) -> Coroutine[Any, Any, dict[str, bool]]:
        """Ask runs and their children to stop before their next step. False where there was nothing to cancel."""
        return self._runtime.cancel_many(ids, reason)

    @dual
    def terminate(self, /, *ids: str, reason: str | None = None) -> Coroutine[Any, Any, dict[str, bool]]:
        """End runs and their children at once. False where there was nothing to end."""
        return self._runtime.ask("runs.terminate", dict[str, bool], lambda runs: runs.terminate(ids, reason))


class WorkerVerbs(_Noun):
    """Seeing the fleet."""

    _spelled: ClassVar[str] = "workers"

    @dual
    def list(self, /) -> Coroutine[Any, Any, list[WorkerInfo]]:
        """The fleet, oldest first."""
        return self._runtime.ask_store(
            "workers.list", list[WorkerInfo], lambda store: Workers(store, self._runtime.clock).list()
        )
