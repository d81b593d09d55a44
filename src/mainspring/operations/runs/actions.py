"""Actions of operators on runs. Each verb is described once: its states, its summary and its answer.

`app.runs`, `client.runs`, `mainspring runs`, the dashboard and its API all call `RunActions`. Each verb returns what it changed, by id.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from mainspring.errors import InvalidInput
from mainspring.model.given import check_name, check_several
from mainspring.model.ids import IdMaker, check_run_id
from mainspring.model.states import LIVE, NOT_BEGUN, State
from mainspring.operations.actions import Action, Answer, Role, summary_of
from mainspring.operations.filters import attributes_text, text
from mainspring.operations.queues import check_queue_name
from mainspring.operations.runs.bulk import act_on, find
from mainspring.store.verbs.export import FORMAT
from mainspring.store.verbs.fork import Fork

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mainspring.model.clock import Clock
    from mainspring.operations.filters import RunFilters, RunTraits
    from mainspring.operations.runs.bulk import Act, Progress
    from mainspring.store.protocol import Store
    from mainspring.store.verbs.manage import Management, Move

F = TypeVar("F", bound=Callable[..., Any])
UNOWNED = (*NOT_BEGUN, State.WAITING)
"""The states of runs that no worker may own."""
ANY = tuple(State)
_MOST_NAMED = 3


class Changed(dict[str, bool]):
    """Which runs a verb has changed, by id. Its truth value is whether it has changed any."""

    def __bool__(self) -> bool:
        return any(self.values())


@dataclass(frozen=True, slots=True)
class RunAnswer(Answer):
    """The answer to a verb on runs: the ids of runs that it changed, left unchanged, and did not find."""

    changed: list[str] = field(default_factory=list[str])
    left: list[str] = field(default_factory=list[str])
    missing: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class RunAction(Action):
    """A verb that acts on runs.

    `states` are those of the runs that the verb acts on when a filter has no state. Some verbs can do more by id or
    with `state=`: `complete`, `fail` and `reschedule` also act on failed runs, but a filter by queue alone must not
    reach all failures of the history.
    """

    states: tuple[State, ...]
    done: str
    """The state of a run after the verb, for messages."""
    otherwise: str
    """Why a run was left unchanged, for messages."""


class _RunActions(dict[str, RunAction]):
    """The verbs by name. An instance decorates the methods that implement them."""

    def __call__(
        self,
        states: tuple[State, ...],
        done: str,
        otherwise: str,
        *,
        role: Role = "operator",
        answer: Callable[..., Answer] | None = None,
    ) -> Callable[[F], F]:
        """`answer` is for a verb that does not return what it `Changed`."""

        def changes(_ids: Sequence[str], changed: Mapping[str, bool], missing: Sequence[str] = ()) -> RunAnswer:
            return _answer(done, otherwise, changed, missing)

        def add(verb: F) -> F:
            name = verb.__name__
            self[name] = RunAction("runs", name, summary_of(verb), answer or changes, role, states, done, otherwise)
            return verb

        return add


RUN_ACTIONS = _RunActions()


def _answer(done: str, otherwise: str, by_id: Mapping[str, bool], missing: Sequence[str]) -> RunAnswer:
    changed = [run_id for run_id, was in by_id.items() if was]
    left = [run_id for run_id, was in by_id.items() if not was and run_id not in missing]
    if len(by_id) == 1:
        only = next(iter(by_id))
        message = f"{only} is {done}" if changed else f"{only} {otherwise}" if left else not_found(only)
    else:
        parts = [f"{len(changed):,} run{'' if len(changed) == 1 else 's'} {done}"]
        parts += [f"{len(left):,} {otherwise}"] if left else []
        parts += [f"{len(missing):,} not found"] if missing else []
        message = "; ".join(parts)
    return RunAnswer(message, dict(by_id), None, changed, left, list(missing))


def _forked(_ids: Sequence[str], forks: Mapping[str, str]) -> Answer:
    made = [*forks.values()]
    more = " and more" if len(made) > _MOST_NAMED else ""
    return Answer(f"forked: {', '.join(made[:_MOST_NAMED])}{more}", dict(forks), made[0] if len(made) == 1 else None)


def not_found(run_id: str) -> str:
    """Return the message about a run that does not exist."""
    return f"run {run_id!r} not found"


def no_result(workflow: str) -> str:
    """Return the stored result of runs that are completed without one."""
    del workflow
    return "null"


def result_text(typed: str) -> str:
    """Return the stored result that an operator typed as JSON. Raises `InvalidInput` if it is not JSON."""
    try:
        return json.dumps(json.loads(typed), ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the result is not JSON: {error}") from None


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of `load`."""

    new: int
    there: int
    """Runs that existed already and were left unchanged."""


class ManagedStore(Protocol):
    """A store, or its part inside an open transaction."""

    @property
    def management(self) -> Management: ...

    def cancel(self, ids: Sequence[str], reason: str | None, now: int) -> dict[str, bool]: ...

    def terminate(self, ids: Sequence[str], reason: str | None, now: int) -> dict[str, bool]: ...


class RunActions:
    """The verbs of runs. All of them block.

    Each takes ids, or filters for all runs that they find. The runs of a filter are changed in batches, which `progress` follows, and
    the result has only the changed ones.
    """

    def __init__(self, store: ManagedStore, clock: Clock, progress: Progress | None = None) -> None:
        self._store = store
        self._clock = clock
        self._progress = progress

    @RUN_ACTIONS(tuple(sorted(LIVE)), "cancelled", "had ended before")
    def cancel(self, ids: Sequence[str], reason: str | None = None, filters: RunTraits | None = None) -> Changed:
        """Ask runs and their children to stop before their next step."""
        check_reason(reason)
        return self._to("cancel", ids, filters, lambda chosen: self._store.cancel(chosen, reason, self._clock.now()))

    @RUN_ACTIONS(tuple(sorted(LIVE)), "terminated", "had ended before")
    def terminate(self, ids: Sequence[str], reason: str | None = None, filters: RunTraits | None = None) -> Changed:
        """End runs and their children at once."""
        check_reason(reason)
        return self._to(
            "terminate", ids, filters, lambda chosen: self._store.terminate(chosen, reason, self._clock.now())
        )

    @RUN_ACTIONS((State.CANCELLED, State.FAILED), "queued again", "has nothing to resume")
    def resume(self, ids: Sequence[str], filters: RunTraits | None = None, *, to_queue: str | None = None) -> Changed:
        """Let cancelled runs, and runs that were recovered too often, continue where they stopped.

        Children that were cancelled with them continue too; a run is left alone while one of them is still stopping. With `to_queue` the runs wait in that queue, in no
        partition. Children stay in theirs. Raises `NotFound` for an unknown id, and changes nothing then.
        """
        queue = None if to_queue is None else check_queue_name(to_queue)
        return self._to(
            "resume", ids, filters, lambda chosen: self._management.resume(chosen, self._clock.now(), queue)
        )

    @RUN_ACTIONS((State.FAILED,), "queued again", "has not failed")
    def retry(self, ids: Sequence[str], filters: RunTraits | None = None) -> Changed:
        """Let failed runs continue from their recorded steps.

        The exception that ended a run is forgotten, with the operations recorded after it. Raises `NotFound` for an
        unknown id, and changes nothing then.
        """
        return self._to("retry", ids, filters, lambda chosen: self._management.retry(chosen, self._clock.now()))

    @RUN_ACTIONS(UNOWNED, "completed", "has ended without failing, or is owned by a worker")
    def complete(
        self,
        ids: Sequence[str],
        output: Callable[[str], str] = no_result,
        reason: str | None = None,
        filters: RunTraits | None = None,
    ) -> Changed:
        """End runs that no worker owns, or that have failed, as succeeded.

        `output` returns, for the name of a function, the stored result of its runs. If it raises, nothing is changed.
        """
        why = check_reason(reason) or "completed on request"
        return self._to(
            "complete", ids, filters, lambda chosen: self._management.complete(chosen, output, why, self._clock.now())
        )

    @RUN_ACTIONS(UNOWNED, "marked as failed", "has ended without failing, or is owned by a worker")
    def fail(self, ids: Sequence[str], reason: str | None = None, filters: RunTraits | None = None) -> Changed:
        """End runs that no worker owns as failed, without further attempts.

        Runs that have failed keep their error and get the reason.
        """
        why = check_reason(reason) or "marked as failed on request"
        return self._to("fail", ids, filters, lambda chosen: self._management.fail(chosen, why, self._clock.now()))

    @RUN_ACTIONS(NOT_BEGUN, "rescheduled", "has begun, or has ended without failing")
    def reschedule(self, ids: Sequence[str], move: Move, filters: RunTraits | None = None) -> Changed:
        """Change the start of runs that have not begun or wait for a retry, and retry failed runs at that time."""
        for name, value, least in (("priority", move.priority, -(2**63)), ("attempts", move.attempts, 0)):
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63
            ):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidInput(
                    f"reschedule: {name} is a whole number{' from 0' if not least else ''}, not {value!r}"
                )
        return self._to(
            "reschedule", ids, filters, lambda chosen: self._management.reschedule(chosen, move, self._clock.now())
        )

    @RUN_ACTIONS(ANY, "marked with the attributes", "does not exist")
    def set_attributes(
        self, ids: Sequence[str], attributes: Mapping[str, Any], filters: RunTraits | None = None
    ) -> Changed:
        """Set attributes of runs. Other attributes stay, and None removes one.

        A run that a worker executes keeps the attributes that it was claimed with.
        """
        given = attributes_text(attributes)
        if not attributes:
            raise InvalidInput("set_attributes: name at least one attribute")
        return self._to(
            "set_attributes",
            ids,
            filters,
            lambda chosen: self._management.set_attributes(chosen, json.loads(given), self._clock.now()),
        )

    @RUN_ACTIONS(tuple(state for state in State if state not in LIVE), "deleted", "does not exist", role="admin")
    def delete(self, ids: Sequence[str], filters: RunTraits | None = None) -> Changed:
        """Delete ended runs with their children and all they recorded.

        Raises `Conflict`, and deletes nothing, if one has not ended, or if a run that waits for one has not taken its outcome yet.
        """
        return self._to("delete", ids, filters, lambda chosen: self._management.delete(chosen, self._clock.now()))

    @RUN_ACTIONS((State.QUEUED,), "queued again", "is not stranded")
    def force(self, ids: Sequence[str], version: str | None = None) -> Changed:
        """Let stranded runs continue on any source, or on that of one version.

        Replay decides: if the code requests the recorded operations the run continues, otherwise it fails with `NonDeterminism`.
        """
        return Changed(self._management.force(_unique(ids), version, self._clock.now()))

    @property
    def _management(self) -> Management:
        return self._store.management

    def _to(self, verb: str, ids: Sequence[str], filters: RunTraits | None, act: Act) -> Changed:
        """Apply a verb to these runs, or to all runs that the filters find in the verb's states."""
        chosen = _unique(ids)
        if not filters:
            return Changed(act(chosen) if chosen else {})
        whole = cast("Store", self._store)  # filters are not possible inside a transaction
        wanted: RunFilters = {"ids": chosen or None, **filters}
        states = RUN_ACTIONS[verb].states
        return Changed(act_on(lambda place: find(whole, wanted, states, place), act, self._progress))

    @RUN_ACTIONS(ANY, "forked", "does not exist", answer=_forked)
    def fork(
        self,
        ids: Sequence[str],
        step: str | None = None,
        *,
        id: str | None = None,  # noqa: A002  (as in options)
        version: str | None = None,
        queue: str | None = None,
        timeout: int | None = None,
        past_last: bool = False,
        children: Mapping[str, str] | None = None,
    ) -> dict[str, str]:
        """Start new runs with a copy of the operations that others recorded before a step.

        `step` is a position or a name. Without it the new runs begin at the beginning. With `past_last` they begin after
        the last operation. `children` replaces runs that the original started, by their ids: the first operation that
        used the outcome of one of them is executed again. `timeout` is in microseconds. `id` is for one run. All are forked
        or none. Returns the new ids by the old ones. Raises `NotFound` or `InvalidInput`.
        """
        if past_last and step is not None:
            raise InvalidInput("fork: past_last is after all steps; leave step out")
        past_last = past_last or (bool(children) and step is None)  # operations that do not depend on the children stay
        forks = [
            self._fork(
                run_id,
                step,
                id,
                version=version,
                queue=queue,
                timeout=timeout,
                past_last=past_last,
                children=dict(children or {}),
            )
            for run_id in _unique(ids)
        ]
        return self._make(forks)

    def fork_failed(
        self, ids: Sequence[str], *, version: str | None = None, queue: str | None = None, timeout: int | None = None
    ) -> dict[str, str]:
        """Fork each run from the operation that failed, or from the last recorded one. Return the new ids by the old ones."""
        forks = [
            self._fork(run_id, None, None, version=version, queue=queue, timeout=timeout, after_failure=True)
            for run_id in _unique(ids)
        ]
        return self._make(forks)

    def _make(self, forks: list[Fork]) -> dict[str, str]:
        self._management.fork(forks, self._clock.now())
        return {fork.source: fork.id for fork in forks}

    def _fork(self, source: str, step: str | None, run_id: str | None, **how: Any) -> Fork:
        uid = IdMaker(self._clock).new()
        check_name("the id of a run", source)
        text("fork: step", step)
        text("fork: version", how["version"])
        return Fork(source, check_run_id(run_id) if run_id is not None else uid, uid, step, **how)

    # -- out and in ----------------------------------------------------------------------------------------------------
    def export(self, ids: Sequence[str]) -> Iterator[str]:
        """Yield runs with their children and all they recorded, in one snapshot, as lines of JSON for `load`.

        The first line is a header with the format.
        """
        yield json.dumps({"mainspring": "runs", "format": FORMAT})
        for record in self._management.dump(_unique(ids)):
            yield json.dumps(record, ensure_ascii=False)

    def load(self, lines: Iterable[str]) -> Loaded:
        """Import runs that `export` wrote, all of them or none. Raises `InvalidInput` if a line is wrong."""
        new, there = self._management.load(records_of(lines), self._clock.now())
        return Loaded(new, there)


def check_reason(reason: str | None) -> str | None:
    """Return the reason of an operator. `timeout` is reserved, because it marks runs whose deadline passed."""
    if reason == "timeout":
        raise InvalidInput("the reason 'timeout' is reserved for runs whose deadline passed; use another text")
    return text("reason", reason)


def records_of(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the records of an export. Raises `InvalidInput`, with the line number, for lines that are not an export."""
    headed = False
    for number, line in enumerate(check_several("what load takes", lines), 1):
        if not isinstance(line, str):
            raise InvalidInput(f"line {number} is not a text; nothing was loaded")
        if not line.strip():
            continue
        try:
            record: Any = json.loads(line)
        except json.JSONDecodeError as error:
            raise InvalidInput(f"line {number} is not JSON: {error}; nothing was loaded") from None
        if not isinstance(record, dict):
            raise InvalidInput(f"line {number} is not a JSON object; nothing was loaded")
        record = cast("dict[str, Any]", record)
        if not headed:
            headed = True
            if record.get("mainspring") != "runs" or record.get("format") != FORMAT:
                raise InvalidInput(
                    f'line {number}: an export begins with {{"mainspring": "runs", "format": {FORMAT}}}; nothing was loaded'
                )
            continue
        yield record


def _unique(ids: Sequence[str]) -> list[str]:
    if isinstance(ids, str):
        raise InvalidInput(f"this takes a list of run ids, not the string {ids!r}")
    return list(dict.fromkeys(check_name("the id of a run", each) for each in ids))
