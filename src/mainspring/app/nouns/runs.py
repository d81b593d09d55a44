"""`app.runs`, `app.workers` and `app.versions`, and those of a client. Inside a run each verb is recorded."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, Unpack

from mainspring.app.caller.current import current_caller
from mainspring.app.coroutines import Mapped
from mainspring.app.dual import dual
from mainspring.app.functions.options import moment
from mainspring.app.handle import Handle
from mainspring.codec import check_size, value_codec
from mainspring.errors import InvalidInput, NotSerializable
from mainspring.model.given import check_flag, check_mapping, check_name, check_several, check_text
from mainspring.operations.figures import LATEST, Figures, StepFigures
from mainspring.operations.queues import check_queue_name
from mainspring.operations.runs.actions import RUN_ACTIONS, Changed, Loaded, RunActions, check_reason
from mainspring.operations.runs.bulk import find
from mainspring.operations.runs.info import Lines, RunInfo, RunPage, Runs, StepInfo, with_handle
from mainspring.operations.versions import PatchInfo, VersionInfo, Versions, set_newest
from mainspring.operations.workers import WorkerInfo, Workers
from mainspring.recurrence.durations import micros
from mainspring.store.verbs.manage import Move

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

    from mainspring.app.functions.options import Duration, Moment
    from mainspring.app.runtime import Runtime
    from mainspring.engine.registry import Registry
    from mainspring.operations.filters import RunFilters, RunTraits
    from mainspring.store.external.join import Inside
    from mainspring.store.protocol import Store

R = TypeVar("R")
T = TypeVar("T")
_Lines: TypeAlias = list[str]
_Figures: TypeAlias = list[Figures]
_StepFigures: TypeAlias = list[StepFigures]
"""Defined here, because a verb that is called `list` stands in the way of the type below."""


class _Noun:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def _read(self, label: str, kind: Any, question: Callable[[Runs], T]) -> Coroutine[Any, Any, T]:
        clock = self._runtime.clock
        return current_caller(self._runtime).read(label, kind, lambda store: question(Runs(store, clock)))

    def _read_store(self, label: str, kind: Any, question: Callable[[Store], T]) -> Coroutine[Any, Any, T]:
        return current_caller(self._runtime).read(label, kind, question)

    def _manage(self, label: str, kind: Any, work: Callable[[RunActions], T]) -> Coroutine[Any, Any, T]:
        clock = self._runtime.clock
        return current_caller(self._runtime).change(label, kind, lambda store, _: work(RunActions(store, clock)))


def _check_ids(*ids: object) -> None:
    for each in ids:
        if not isinstance(each, str):
            raise InvalidInput(
                f"a run is named by its id, a text, not by {each!r}; several are named one by one: (*ids)"
            )
        check_name("the id of a run", each)


class RunVerbs(_Noun, Generic[R]):
    """Verbs on runs, whose results are of type `R`. Inside a run each is recorded, and happens once."""

    _spelled = "app.runs"

    @dual
    def get(self, /, run_id: str) -> Coroutine[Any, Any, RunInfo[Handle[R]]]:
        """Look up a run, with its handle. Raises `NotFound` for an unknown id."""
        _check_ids(run_id)
        return Mapped(self._read("runs.get", RunInfo, lambda runs: runs.get(run_id)), self._held)

    @dual
    def steps(self, /, run_id: str) -> Coroutine[Any, Any, list[StepInfo]]:
        """List the recorded operations of a run, in order."""
        _check_ids(run_id)
        return self._read("runs.steps", list[StepInfo], lambda runs: runs.steps(run_id))

    @dual
    def list(
        self, /, *, after: str | None = None, limit: int = 50, **filters: Unpack[RunFilters]
    ) -> Coroutine[Any, Any, RunPage[Handle[R]]]:
        """List a page of runs with their handles, newest first. Pass `next` of a page as `after` to get the following page."""
        found = self._read("runs.list", RunPage, lambda runs: runs.list(after=after, limit=limit, **filters))
        return Mapped(found, lambda page: RunPage([self._held(run) for run in page.runs], page.next, page.further))

    def _held(self, info: RunInfo) -> RunInfo[Handle[R]]:
        return with_handle(info, Handle(self._runtime, info.id, self._runtime.result_codec(info.workflow)))

    @dual
    def logs(self, /, run_id: str, limit: int = 1_000) -> Coroutine[Any, Any, Lines]:
        """The last lines that were logged inside a run, if they are kept (setting `keep_logs`)."""
        _check_ids(run_id)
        return self._read("runs.logs", Lines, lambda runs: runs.logs(run_id, limit))

    @dual
    def counts(self, /) -> Coroutine[Any, Any, dict[str, int]]:
        """By state: the number of runs that have not ended."""
        return self._read("runs.counts", dict[str, int], lambda runs: runs.counts())

    @dual
    def cancel(
        self, /, *ids: str, reason: str | None = None, **filters: Unpack[RunTraits]
    ) -> Coroutine[Any, Any, Changed]:
        """Ask runs and their children to stop before their next step. By id: False if the run had ended or is unknown.

        This verb and those below take ids, or the filters of `list` for all matching runs. Matching runs are changed a few hundred at a
        time, and the answer has only the runs that were changed. The answer is true if any run was changed.
        """
        check_reason(reason)
        if not filters:
            _check_ids(*ids)
            return Mapped(current_caller(self._runtime).cancel("runs.cancel", ids, reason), Changed)
        return self._act("cancel", ids, filters, lambda runs, chosen: runs.cancel(chosen, reason))

    @dual
    def terminate(
        self, /, *ids: str, reason: str | None = None, **filters: Unpack[RunTraits]
    ) -> Coroutine[Any, Any, Changed]:
        """End runs and their children at once. Their workers are fenced. By id: False if the run had ended or is unknown."""
        check_reason(reason)
        if not filters:
            _check_ids(*ids)
            return Mapped(current_caller(self._runtime).terminate(ids, reason), Changed)
        return self._act("terminate", ids, filters, lambda runs, chosen: runs.terminate(chosen, reason))

    @dual
    def resume(
        self, /, *ids: str, to_queue: str | None = None, **filters: Unpack[RunTraits]
    ) -> Coroutine[Any, Any, Changed]:
        """Let cancelled runs, and runs that were recovered too often, continue where they stopped. Their cancelled children continue too.

        With `to_queue` the runs wait in that queue from now on. By id: False if the run is in another state. Raises `NotFound` for an
        unknown id, and then nothing is done.
        """
        return self._act("resume", ids, filters, lambda runs, chosen: runs.resume(chosen, to_queue=to_queue))

    @dual
    def retry(self, /, *ids: str, **filters: Unpack[RunTraits]) -> Coroutine[Any, Any, Changed]:
        """Let failed runs continue from their recorded steps. The exception that ended a run is forgotten, with what was recorded because of it.

        By id: False if the run has not failed. Raises `NotFound` for an unknown id, and then nothing is done.
        """
        return self._act("retry", ids, filters, lambda runs, chosen: runs.retry(chosen))

    @dual
    def complete(
        self, /, *ids: str, result: Any = None, reason: str | None = None, **filters: Unpack[RunTraits]
    ) -> Coroutine[Any, Any, Changed]:
        """End runs that no worker owns, or that have failed, as succeeded. By id: False if the run cannot be completed.

        Filters match failed runs only with state="failed". A result of another type than the function returns is an error, and nothing
        is done. Without the function's code, as in a client, any result is stored, and fails to decode for a caller if it does not fit.
        """
        output = given_result(self._runtime.registry, result, self._runtime.settings.value_bytes)
        return self._act("complete", ids, filters, lambda runs, chosen: runs.complete(chosen, output, reason))

    @dual
    def fail(
        self, /, *ids: str, reason: str | None = None, **filters: Unpack[RunTraits]
    ) -> Coroutine[Any, Any, Changed]:
        """End runs that no worker owns as failed, without further attempts. By id: False if the run cannot be failed.

        Failed runs get the reason and keep their error; filters match them only with state="failed".
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
    ) -> Coroutine[Any, Any, Changed]:
        """Change the start of runs that have not begun or wait for a retry, and retry failed runs at that time.

        What is not named stays. By id: False if the run is in another state. Filters match failed runs only with state="failed".
        """
        if at is not None and after is not None:
            raise InvalidInput("reschedule: give `after` or `at`, not both")
        due = moment(at) if at is not None else None if after is None else self._runtime.clock.now() + micros(after)
        move = Move(due, priority, attempts)
        return self._act("reschedule", ids, filters, lambda runs, chosen: runs.reschedule(chosen, move))

    @dual
    def set_attributes(
        self, /, ids: str | Sequence[str], attributes: Mapping[str, Any]
    ) -> Coroutine[Any, Any, Changed]:
        """Set attributes of runs. Other attributes stay, and None removes one. By id: False if there is no such run.

        A run that is executing sees the new attributes after its next claim.
        """
        named = (ids,) if isinstance(ids, str) else tuple(check_several("set_attributes: ids", ids))
        return self._act("set_attributes", named, {}, lambda runs, chosen: runs.set_attributes(chosen, attributes))

    def _act(
        self,
        verb: str,
        ids: tuple[str, ...],
        filters: RunTraits,
        work: Callable[[RunActions, Sequence[str]], Changed],
    ) -> Coroutine[Any, Any, Changed]:
        """Act on the named runs in one transaction, or on the runs that match filters in batches, each a transaction."""
        _check_ids(*ids)
        action, clock = RUN_ACTIONS[verb], self._runtime.clock
        if not filters:
            return Mapped(self._manage(action.label, dict[str, bool], lambda runs: dict(work(runs, ids))), Changed)

        def act(store: Store | Inside, found: _Lines) -> dict[str, bool]:
            return dict(work(RunActions(store, clock), found))

        wanted: RunFilters = {"ids": ids or None, **filters}
        done = current_caller(self._runtime).change_found(
            action.label,
            lambda store, place: find(store, wanted, action.states, place),
            act,
            fences=verb == "terminate",
        )
        return Mapped(done, Changed)

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
        past_last: bool = False,
        children: Mapping[str, str] | None = None,
    ) -> Coroutine[Any, Any, Handle[R]]:
        """Start new runs with a copy of the operations that others recorded before a step.

        `step` is a position or a name; without it the new run begins at the beginning, with `past_last` after the last step. `children`
        maps ids of children of the original to runs that replace them.
        """
        _check_ids(run_id)
        check_flag("fork: past_last", past_last)
        if children is not None:
            _check_ids(*(name for pair in check_mapping("fork: children", children).items() for name in pair))
        length = None if timeout is None else micros(timeout)
        if version is not None:
            check_text("fork: version", version)
        self._runtime.destinations.note("the fork", None if queue is None else check_queue_name(queue), version)
        made = self._manage(
            "runs.fork",
            str,
            lambda runs: runs.fork(
                [run_id],
                step,
                id=id,
                version=version,
                queue=queue,
                timeout=length,
                past_last=past_last,
                children=children,
            )[run_id],
        )
        return Mapped(made, lambda run_id: Handle(self._runtime, run_id, None))

    @dual
    def fork_failed(
        self,
        /,
        *ids: str,
        version: str | None = None,
        queue: str | None = None,
        timeout: Duration | None = None,
    ) -> Coroutine[Any, Any, dict[str, str]]:
        """Fork each run from the operation that ended it, or from the last recorded one. Returns the new ids by the old ones."""
        _check_ids(*ids)
        length = None if timeout is None else micros(timeout)
        return self._manage(
            "runs.fork_failed",
            dict[str, str],
            lambda runs: runs.fork_failed(ids, version=version, queue=queue, timeout=length),
        )

    @dual
    def delete(self, /, *ids: str, **filters: Unpack[RunTraits]) -> Coroutine[Any, Any, Changed]:
        """Delete ended runs with their children and all they recorded. By id: False if there is no such run.

        Raises `Conflict`, and deletes nothing, if a run has not ended, or another run has yet to read its outcome.
        """
        return self._act("delete", ids, filters, lambda runs, chosen: runs.delete(chosen))

    @dual
    def export(self, /, *ids: str) -> Coroutine[Any, Any, _Lines]:
        """Export runs with their children and records, as lines of JSON for `load`."""
        _check_ids(*ids)
        return self._read("runs.export", _Lines, lambda runs: [*runs.export(ids)])

    @dual
    def load(self, /, lines: Iterable[str]) -> Coroutine[Any, Any, Loaded]:
        """Load runs that `export` wrote, all or none. Runs that exist already are left as they are."""
        kept = check_several("what load takes, the lines of an export,", lines)
        return self._manage("runs.load", Loaded, lambda runs: runs.load(kept))

    @dual
    def aggregate(
        self, /, by: str | Sequence[str] = ("state",), *, bucket: Duration | None = None, **filters: Unpack[RunFilters]
    ) -> Coroutine[Any, Any, _Figures]:
        """Aggregate runs (number, waiting time, duration) by state, workflow, queue, version, schedule, kind or reason, and by
        spans of their time of creation.

        Without `created_after`, and where many runs match, the figures are those of the newest runs: `Figures.newest` says of how many.
        """
        span = None if bucket is None else timedelta(microseconds=micros(bucket))
        return self._read("runs.aggregate", _Figures, lambda runs: runs.aggregate(by, span, filters))

    @dual
    def step_figures(self, /, workflow: str, *, last: int = LATEST) -> Coroutine[Any, Any, _StepFigures]:
        """By name of a step: failures, attempts, p50 and p95, from the runs of a function that ended last."""
        return self._read("runs.step_figures", _StepFigures, lambda runs: runs.step_figures(workflow, last))


class WorkerVerbs(_Noun):
    """Verbs on workers."""

    _spelled = "app.workers"

    @dual
    def list(self, /) -> Coroutine[Any, Any, list[WorkerInfo]]:
        """List the workers of the fleet, oldest first."""
        return self._read_store(
            "workers.list", list[WorkerInfo], lambda store: Workers(store, self._runtime.clock).list()
        )


class VersionVerbs(_Noun):
    """Verbs on versions of the app, patches, and runs that no worker can continue."""

    _spelled = "app.versions"

    @dual
    def patches(self, /) -> Coroutine[Any, Any, list[PatchInfo]]:
        """List the patches that unfinished runs have asked for. A patch whose `old` is 0 can be removed from the code."""
        return self._read_store(
            "versions.patches",
            list[PatchInfo],
            lambda store: Versions(store, self._runtime.clock).patches(),
        )

    @dual
    def set_newest(self, /, version: str) -> Coroutine[Any, Any, str]:
        """Make a version the newest one: its declarations of schedules and queues hold, as after a deploy of it.

        To roll back, start workers of the older version, then name it here. Raises `NotFound` for a version that has never executed.
        """
        check_name("set_newest: version", version)
        clock = self._runtime.clock
        return current_caller(self._runtime).change(
            "versions.set_newest", str, lambda store, _: set_newest(store, clock, version)
        )

    @dual
    def force(self, /, *ids: str, version: str | None = None) -> Coroutine[Any, Any, dict[str, bool]]:
        """Let stranded runs continue on any source, or on that of one version. By id: False if the run is not stranded."""
        _check_ids(*ids)
        if version is not None:
            check_name("force: version", version)
        return self._manage("versions.force", dict[str, bool], lambda runs: runs.force(ids, version))

    @dual
    def list(self, /) -> Coroutine[Any, Any, list[VersionInfo]]:
        """List the versions, newest first, with their workers, their unfinished runs, and the reasons of stranded runs."""
        return self._read_store(
            "versions.list", list[VersionInfo], lambda store: Versions(store, self._runtime.clock).list()
        )


def given_result(registry: Registry, value: Any, limit: int) -> Callable[[str], str]:
    """Return a function from the name of a workflow to the stored result of a run that is completed with `value`.

    A value that is not JSON or too large raises now; one that does not fit the annotation of a workflow when its name is given.
    """
    loose = value_codec(Any, "the result of a run that is completed on request")
    codecs = {function.name: function.codec.result for function in registry}
    texts: dict[str, str] = {}

    def text_for(workflow: str) -> str:
        if workflow not in texts:
            codec = codecs.get(workflow, loose)
            try:
                text = codec.encode(value)
                codec.decode(text)  # a class of the user may refuse the decoded value
            except NotSerializable as error:
                raise InvalidInput(
                    f"{workflow!r} cannot be completed with {value!r}: {error} Give a result= of the type that it returns"
                ) from None
            texts[workflow] = check_size(text, value, limit, f"a result for {workflow!r}")
        return texts[workflow]

    return text_for
