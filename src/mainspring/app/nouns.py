"""`app.runs` and `app.workers`, and the same of a client: what an operator may see and do. Recorded when called inside a run."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar, Unpack

from mainspring.app.by_hand import results_by_hand
from mainspring.app.changing import change_found
from mainspring.app.dual import dual
from mainspring.app.options import micros, moment
from mainspring.app.transacting import after
from mainspring.engine.branches import ours
from mainspring.errors import InvalidInput
from mainspring.operations.managing import ACTS_ON, Figures, Loaded, Managing, check_reason
from mainspring.operations.many import find
from mainspring.operations.runs import Lines, RunInfo, RunPage, StepInfo
from mainspring.operations.versions import PatchInfo, VersionInfo, Versions
from mainspring.operations.workers import WorkerInfo, Workers
from mainspring.store.by_hand import Move

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from mainspring.app.handle import Handle
    from mainspring.app.options import Duration, Moment
    from mainspring.app.runtime import Runtime
    from mainspring.operations.run_filters import RunFilters, RunTraits
    from mainspring.store.joined import Inside
    from mainspring.store.protocol import Store

T = TypeVar("T")
_Lines: TypeAlias = list[str]
_Figures: TypeAlias = list[Figures]
"""Said here, because a verb that is called `list` stands in the way of the type below."""


class _Noun:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def _block(self, work: Coroutine[Any, Any, T], label: str) -> T:
        return self._runtime.block(work, label)


def _check_ids(*ids: object) -> None:
    for each in ids:
        if not isinstance(each, str):
            raise InvalidInput(
                f"a run is named by its id, a text, not by {each!r}; several are named one by one: (*ids)"
            )


class _Changed(dict[str, bool]):
    """Which runs a verb has changed. Taken for a truth value, it says whether it has changed any: of one run, whether that one."""

    def __bool__(self) -> bool:
        return any(self.values())


class RunVerbs(_Noun):
    """Seeing, stopping and managing runs."""

    _spelled: ClassVar[str] = "app.runs"

    @dual
    def get(self, /, run_id: str) -> Coroutine[Any, Any, RunInfo]:
        """Everything the store knows of a run. `NotFound` if there is none."""
        _check_ids(run_id)
        return self._runtime.ask("runs.get", RunInfo, lambda runs: runs.get(run_id), reads=True)

    @dual
    def steps(self, /, run_id: str) -> Coroutine[Any, Any, list[StepInfo]]:
        """What a run has recorded, in order."""
        _check_ids(run_id)
        return self._runtime.ask("runs.steps", list[StepInfo], lambda runs: runs.steps(run_id), reads=True)

    @dual
    def list(
        self, /, *, after: str | None = None, limit: int = 50, **filters: Unpack[RunFilters]
    ) -> Coroutine[Any, Any, RunPage]:
        """A page of runs, newest first. Hand `next` of a page back as `after` for the one that follows."""
        return self._runtime.ask(
            "runs.list", RunPage, lambda runs: runs.list(after=after, limit=limit, **filters), reads=True
        )

    @dual
    def logs(self, /, run_id: str, limit: int = 1_000) -> Coroutine[Any, Any, Lines]:
        """The last lines that were logged inside a run, if they are kept (setting `keep_logs`)."""
        _check_ids(run_id)
        return self._runtime.ask("runs.logs", Lines, lambda runs: runs.logs(run_id, limit), reads=True)

    @dual
    def counts(self, /) -> Coroutine[Any, Any, dict[str, int]]:
        """How many runs are in each state that is not an end."""
        return self._runtime.ask("runs.counts", dict[str, int], lambda runs: runs.counts(), reads=True)

    @dual
    def cancel(
        self, /, *ids: str, reason: str | None = None, **filters: Unpack[RunTraits]
    ) -> Coroutine[Any, Any, dict[str, bool]]:
        """Ask runs and their children to stop before their next step. False where there was nothing to cancel.

        This verb and those below take ids, or filters (those of `list`) for all runs that they find: these are acted on a few
        hundred at a time, and the answer has only the runs that were changed. The answer is true when it has changed any run.
        """
        _check_ids(*ids)
        if not filters:
            return after(self._runtime.cancel_many(ids, reason), _Changed)
        check_reason(reason)
        now = self._runtime.clock.now
        return self._act_on_found("cancel", ids, filters, lambda store, found: store.cancel(found, reason, now()))

    @dual
    def terminate(
        self, /, *ids: str, reason: str | None = None, **filters: Unpack[RunTraits]
    ) -> Coroutine[Any, Any, dict[str, bool]]:
        """End runs and their children at once. False where there was nothing to end."""
        _check_ids(*ids)
        if not filters:
            return after(self._runtime.terminate_many(ids, reason), _Changed)
        check_reason(reason)
        now = self._runtime.clock.now
        return self._act_on_found(
            "terminate", ids, filters, lambda store, found: store.terminate(found, reason, now()), fences=True
        )

    @dual
    def resume(self, /, *ids: str, **filters: Unpack[RunTraits]) -> Coroutine[Any, Any, dict[str, bool]]:
        """Let cancelled runs, and those that were recovered too often, go on where they stopped, with the children that were
        cancelled along. False where there was nothing to resume; `NotFound` for an unknown id, and then nothing is done.
        """
        return self._act("resume", ids, filters, lambda runs, chosen: runs.resume(chosen))

    @dual
    def retry(self, /, *ids: str, **filters: Unpack[RunTraits]) -> Coroutine[Any, Any, dict[str, bool]]:
        """Let failed runs go on from what they have achieved: the exception that ended them is forgotten, with what was recorded
        after it. False where a run has not failed; `NotFound` for an unknown id, and then nothing is done.
        """
        return self._act("retry", ids, filters, lambda runs, chosen: runs.retry(chosen))

    @dual
    def complete(
        self, /, *ids: str, result: Any = None, reason: str | None = None, **filters: Unpack[RunTraits]
    ) -> Coroutine[Any, Any, dict[str, bool]]:
        """End runs that no worker owns, or that have failed, as if they had succeeded with `result`. False where there was nothing
        to end. Filters mean failed runs only with state="failed".

        A result that is not of the type that the function returns is an error, and nothing is done. Where the function's code is
        not known, as in a client, any result is stored as it is, and whoever waits for it finds out whether it fits.
        """
        output = results_by_hand(self._runtime.registry, result, self._runtime.settings.value_bytes)
        return self._act("complete", ids, filters, lambda runs, chosen: runs.complete(chosen, output, reason))

    @dual
    def fail(
        self, /, *ids: str, reason: str | None = None, **filters: Unpack[RunTraits]
    ) -> Coroutine[Any, Any, dict[str, bool]]:
        """End runs that no worker owns as failed, without further attempts. False where there was nothing to end.

        Runs that have failed are marked with the reason and keep their error; filters mean them only with state="failed".
        """
        return self._act("fail", ids, filters, lambda runs, chosen: runs.fail(chosen, reason))

    @dual
    def reschedule(
        self,
        /,
        *ids: str,
        at: Moment | None = None,
        after: Duration | None = None,
        priority: int | None = None,
        attempts: int | None = None,
        **filters: Unpack[RunTraits],
    ) -> Coroutine[Any, Any, dict[str, bool]]:
        """Change when runs begin that have not begun, or are to be tried again; what is not named stays. False for others.

        Runs that have failed are retried at that time; filters mean them only with state="failed".
        """
        if at is not None and after is not None:
            raise InvalidInput("reschedule: give `after` or `at`, not both")
        due = moment(at) if at is not None else None if after is None else self._runtime.clock.now() + micros(after)
        move = Move(due, priority, attempts)
        return self._act("reschedule", ids, filters, lambda runs, chosen: runs.reschedule(chosen, move))

    def _act(
        self,
        verb: str,
        ids: tuple[str, ...],
        filters: RunTraits,
        work: Callable[[Managing, Sequence[str]], dict[str, bool]],
    ) -> Coroutine[Any, Any, dict[str, bool]]:
        """What a filter finds is acted on in batches, each in a transaction of its own; what is named, all at once."""
        _check_ids(*ids)
        if not filters:
            return after(self._runtime.manage(f"runs.{verb}", dict[str, bool], lambda runs: work(runs, ids)), _Changed)
        clock = self._runtime.clock
        return self._act_on_found(verb, ids, filters, lambda store, found: work(Managing(store, clock), found))

    def _act_on_found(
        self,
        verb: str,
        ids: tuple[str, ...],
        filters: RunTraits,
        act: Callable[[Store | Inside, _Lines], dict[str, bool]],
        *,
        fences: bool = False,
    ) -> Coroutine[Any, Any, dict[str, bool]]:
        wanted: RunFilters = {"ids": ids or None, **filters}
        found = change_found(
            self._runtime,
            f"runs.{verb}",
            lambda store, place: find(store, wanted, ACTS_ON[verb], place),
            act,
            fences=fences,
        )
        return after(found, _Changed)

    @dual
    def fork(
        self,
        /,
        run_id: str,
        step: str | None = None,
        *,
        id: str | None = None,  # noqa: A002  (as in options)
        version: str | None = None,
        queue: str | None = None,
        timeout: Duration | None = None,
    ) -> Coroutine[Any, Any, Handle[Any]]:
        """Start a new run that has done what this one had done before a step (its position, or its name), and goes on from
        there; without a step, from the beginning.
        """
        length = None if timeout is None else micros(timeout)
        made = self._runtime.manage(
            "runs.fork",
            str,
            lambda runs: runs.fork(run_id, step, id=id, version=version, queue=queue, timeout=length),
        )
        return self._handle(made)

    @ours
    async def _handle(self, made: Coroutine[Any, Any, str]) -> Handle[Any]:
        return self._runtime.handle(await made)

    @dual
    def fork_failed(
        self,
        /,
        *ids: str,
        version: str | None = None,
        queue: str | None = None,
        timeout: Duration | None = None,
    ) -> Coroutine[Any, Any, dict[str, str]]:
        """Fork each run from what ended it, or else from the last thing it recorded: the new ids by the old ones."""
        _check_ids(*ids)
        length = None if timeout is None else micros(timeout)
        return self._runtime.manage(
            "runs.fork_failed",
            dict[str, str],
            lambda runs: runs.fork_failed(ids, version=version, queue=queue, timeout=length),
        )

    @dual
    def delete(self, /, *ids: str) -> Coroutine[Any, Any, dict[str, bool]]:
        """Delete ended runs with their children and all they recorded. False where there is no such run; `Conflict`, and nothing
        is deleted, where one has not ended, or a run that waits for it has not taken its outcome yet.
        """
        _check_ids(*ids)
        return after(self._runtime.manage("runs.delete", dict[str, bool], lambda runs: runs.delete(ids)), _Changed)

    @dual
    def export(self, /, *ids: str) -> Coroutine[Any, Any, _Lines]:
        """Runs with their children and all they recorded, as lines of JSON for `load`."""
        _check_ids(*ids)
        return self._runtime.ask("runs.export", _Lines, lambda runs: [*runs.export(ids)], reads=True)

    @dual
    def load(self, /, lines: Iterable[str]) -> Coroutine[Any, Any, Loaded]:
        """Bring runs in that `export` took out, all of them or none. Those that are there already stay as they are."""
        kept = [*lines]
        return self._runtime.manage("runs.load", Loaded, lambda runs: runs.load(kept))

    @dual
    def aggregate(
        self, /, by: str | Sequence[str] = ("state",), *, bucket: Duration | None = None, **filters: Unpack[RunFilters]
    ) -> Coroutine[Any, Any, _Figures]:
        """Figures of runs (how many, how long they waited, how long they took) by state, workflow, queue, version, schedule,
        kind or reason, and by spans of the time at which they were created.
        """
        span = None if bucket is None else timedelta(microseconds=micros(bucket))
        return self._runtime.ask("runs.aggregate", _Figures, lambda runs: runs.aggregate(by, span, filters), reads=True)


class WorkerVerbs(_Noun):
    """Seeing the fleet."""

    _spelled: ClassVar[str] = "app.workers"

    @dual
    def list(self, /) -> Coroutine[Any, Any, list[WorkerInfo]]:
        """The fleet, oldest first."""
        return self._runtime.ask_store(
            "workers.list", list[WorkerInfo], lambda store: Workers(store, self._runtime.clock).list(), reads=True
        )


class VersionVerbs(_Noun):
    """Seeing versions of the app, and helping runs that no worker can continue."""

    _spelled: ClassVar[str] = "app.versions"

    @dual
    def patches(self, /) -> Coroutine[Any, Any, list[PatchInfo]]:
        """The patches that unfinished runs have asked for. One whose `old` is 0 can be retired."""
        return self._runtime.ask_store(
            "versions.patches",
            list[PatchInfo],
            lambda store: Versions(store, self._runtime.clock).patches(),
            reads=True,
        )

    @dual
    def force(self, /, *ids: str, version: str | None = None) -> Coroutine[Any, Any, dict[str, bool]]:
        """Let stranded runs be continued by whatever source there is, or by that of one version. False: it is not stranded."""
        _check_ids(*ids)
        return self._runtime.manage("versions.force", dict[str, bool], lambda runs: runs.force(ids, version))

    @dual
    def list(self, /) -> Coroutine[Any, Any, list[VersionInfo]]:
        """The versions, newest first, with their workers, unfinished runs, and why some of them are stranded."""
        return self._runtime.ask_store(
            "versions.list", list[VersionInfo], lambda store: Versions(store, self._runtime.clock).list(), reads=True
        )
