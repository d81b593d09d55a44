"""What an operator may do to runs that have ended, and to their records. `Runs` has these verbs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime  # noqa: TC003  (a run that asks for figures records them, and reads them back by their annotations)
from typing import TYPE_CHECKING, Any, Protocol, cast

from mainspring.errors import InvalidInput
from mainspring.model.clock import SECOND, to_datetime
from mainspring.model.ids import IdMaker, check_run_id
from mainspring.model.states import LIVE, State
from mainspring.operations.filter_values import text, texts
from mainspring.operations.many import act_on
from mainspring.operations.run_filters import run_filter
from mainspring.store.exports import FORMAT
from mainspring.store.forking import Fork

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import timedelta

    from mainspring.model.clock import Clock
    from mainspring.operations.many import Act
    from mainspring.operations.run_filters import RunFilters, RunTraits
    from mainspring.store.by_hand import Move
    from mainspring.store.management import Management
    from mainspring.store.protocol import Store

GROUPS = ("state", "workflow", "kind", "queue", "version", "schedule", "reason")
"""What figures can be had by."""


NOT_BEGUN = (State.SCHEDULED, State.QUEUED)
NOT_IN_HAND = (*NOT_BEGUN, State.WAITING)
"""The states of runs that no worker may have in hand."""
ACTS_ON: dict[str, tuple[State, ...]] = {
    "cancel": tuple(sorted(LIVE)),
    "terminate": tuple(sorted(LIVE)),
    "resume": (State.CANCELLED, State.FAILED),
    "retry": (State.FAILED,),
    "complete": NOT_IN_HAND,
    "fail": NOT_IN_HAND,
    "reschedule": NOT_BEGUN,
}
"""The states of the runs to which each verb is done when a filter names none. `complete`, `fail` and `reschedule` can also be done to
failed runs, but only by id or with that state: the failures of a whole history are not meant by the name of a queue."""


def without_result(workflow: str) -> str:
    """What is stored as the result of a run that is completed by hand, if nobody says another."""
    del workflow
    return "null"


@dataclass(frozen=True, slots=True)
class Figures:
    """Some runs in figures. Times are seconds; None where no run has got that far."""

    group: dict[str, str | None]
    """What they have in common."""
    since: datetime | None
    """They were created in the span that begins here, if spans were asked for."""
    count: int
    longest_wait: float | None
    """From when they could start until they did."""
    average_time: float | None
    """From the start to the end."""
    longest_time: float | None


@dataclass(frozen=True, slots=True)
class Loaded:
    """What came of bringing runs in."""

    new: int
    there: int
    """They were there already, and stay as they are."""


class HasManagement(Protocol):
    """A store, or the part of it that works inside somebody's transaction."""

    @property
    def management(self) -> Management: ...


class Managing:
    """The verbs. All of them block."""

    def __init__(self, store: HasManagement, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def resume(self, ids: Sequence[str], filters: RunTraits | None = None) -> dict[str, bool]:
        """Let cancelled runs, and those that were recovered too often, go on where they stopped. False: nothing to resume."""
        return self._to("resume", ids, filters, lambda chosen: self._desk.resume(chosen, self._clock.now()))

    def retry(self, ids: Sequence[str], filters: RunTraits | None = None) -> dict[str, bool]:
        """Let failed runs go on from what they have achieved. False: it has not failed."""
        return self._to("retry", ids, filters, lambda chosen: self._desk.retry(chosen, self._clock.now()))

    def force(self, ids: Sequence[str], version: str | None = None) -> dict[str, bool]:
        """Let stranded runs be continued by whatever source there is, or by that of one version. False: it is not stranded.

        Replay decides: if the code asks for what is recorded the run goes on, else it fails with `NonDeterminism`.
        """
        return self._desk.force(_unique(ids), version, self._clock.now())

    def complete(
        self,
        ids: Sequence[str],
        output: Callable[[str], str] = without_result,
        reason: str | None = None,
        filters: RunTraits | None = None,
    ) -> dict[str, bool]:
        """End runs that no worker owns, or that have failed, as if they had succeeded. False: ended otherwise, owned, or unknown.

        `output` says, given the name of a function, what is stored as the result of its runs. What it raises changes nothing.
        """
        why = check_reason(reason) or "completed by hand"
        return self._to(
            "complete", ids, filters, lambda chosen: self._desk.complete(chosen, output, why, self._clock.now())
        )

    def fail(self, ids: Sequence[str], reason: str | None = None, filters: RunTraits | None = None) -> dict[str, bool]:
        """End runs that no worker owns as failed, for good; mark those that have failed with the reason.

        False: ended otherwise, owned, or unknown.
        """
        why = check_reason(reason) or "marked as failed by hand"
        return self._to("fail", ids, filters, lambda chosen: self._desk.fail(chosen, why, self._clock.now()))

    def reschedule(self, ids: Sequence[str], move: Move, filters: RunTraits | None = None) -> dict[str, bool]:
        """Change when runs begin that have not begun, or are to be tried again, and retry failed ones at that time.

        False: begun, ended otherwise, or unknown.
        """
        for name, value, least in (("priority", move.priority, -(2**63)), ("attempts", move.attempts, 0)):
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63
            ):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidInput(
                    f"reschedule: {name} is a whole number{' from 0' if not least else ''}, not {value!r}"
                )
        return self._to(
            "reschedule", ids, filters, lambda chosen: self._desk.reschedule(chosen, move, self._clock.now())
        )

    @property
    def _desk(self) -> Management:
        return self._store.management

    def _to(self, verb: str, ids: Sequence[str], filters: RunTraits | None, act: Act) -> dict[str, bool]:
        """Do it to these runs, or to all that the filters find among those in which it can be done."""
        chosen = _unique(ids)
        if not filters:
            return act(chosen) if chosen else {}
        whole = cast("Store", self._store)  # whoever names no runs is not inside a transaction
        return act_on(whole, {"ids": chosen or None, **filters}, ACTS_ON[verb], act)

    def fork(
        self,
        run_id: str,
        step: str | None = None,
        *,
        id: str | None = None,  # noqa: A002  (as in options)
        version: str | None = None,
        queue: str | None = None,
        timeout: int | None = None,
    ) -> str:
        """A new run that has done what this one had done before a step (a position, or a name), and goes on from there.

        Without a step it begins at the beginning. `timeout` in microseconds. The id of the new run.
        """
        made = self._fork(run_id, step, id, version=version, queue=queue, timeout=timeout)
        self._store.management.fork([made], self._clock.now())
        return made.id

    def fork_failed(
        self, ids: Sequence[str], *, version: str | None = None, queue: str | None = None, timeout: int | None = None
    ) -> dict[str, str]:
        """Fork each run from what ended it, or else from the last thing it recorded: the new ids by the old ones."""
        forks = [
            self._fork(run_id, None, None, version=version, queue=queue, timeout=timeout, after_failure=True)
            for run_id in _unique(ids)
        ]
        self._store.management.fork(forks, self._clock.now())
        return {fork.source: fork.id for fork in forks}

    def _fork(self, source: str, step: str | None, run_id: str | None, **how: Any) -> Fork:
        uid = IdMaker(self._clock).new()
        return Fork(source, check_run_id(run_id) if run_id is not None else uid, uid, step, **how)

    def delete(self, ids: Sequence[str]) -> dict[str, bool]:
        """Delete ended runs with their children and all they recorded. False: there is no such run."""
        return self._store.management.delete(_unique(ids), self._clock.now())

    # -- out and in ----------------------------------------------------------------------------------------------------
    def export(self, ids: Sequence[str]) -> Iterator[str]:
        """Runs with their children and all they recorded, as of one moment, as lines of JSON for `load`. The first line says what
        it is.
        """
        yield json.dumps({"mainspring": "runs", "format": FORMAT})
        for record in self._store.management.dump(_unique(ids)):
            yield json.dumps(record, ensure_ascii=False)

    def load(self, lines: Iterable[str]) -> Loaded:
        """Bring runs in that `export` took out, all of them or none."""
        new, there = self._store.management.load(records_of(lines), self._clock.now())
        return Loaded(new, there)

    def lag(self) -> float | None:
        """Seconds for which the run that has waited longest for a worker has been ready; None: none waits."""
        since = self._store.management.oldest_ready()
        return None if since is None else max(0, self._clock.now() - since) / SECOND

    # -- figures -------------------------------------------------------------------------------------------------------
    def aggregate(
        self, by: str | Sequence[str] = ("state",), bucket: timedelta | None = None, filters: RunFilters | None = None
    ) -> list[Figures]:
        """Figures of runs by state, workflow, queue … and by spans of the time at which they were created."""
        by = texts("by", by)
        unknown = [name for name in by if name not in GROUPS]
        if unknown:
            raise InvalidInput(f"there are no figures by {', '.join(unknown)}; there are by {', '.join(GROUPS)}")
        span = None if bucket is None else int(bucket.total_seconds() * SECOND)
        if span is not None and span < SECOND:
            raise InvalidInput(f"a span of time is at least a second, not {bucket}")
        found = self._store.management.aggregate(run_filter(filters or {}), by, span)
        return [_figures(row, by, spans=span is not None) for row in found]


def check_reason(reason: str | None) -> str | None:
    """A reason that somebody gives. One of them is the library's own: whoever waits is told by it that a run's time was over."""
    if reason == "timeout":
        raise InvalidInput("the reason 'timeout' is that of runs whose time is over; say it in other words")
    return text("reason", reason)


def records_of(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The records in the lines of an export. Whatever is no export is an error that says which line."""
    headed = False
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record: Any = json.loads(line)
        except json.JSONDecodeError as error:
            raise InvalidInput(f"line {number} is not JSON: {error}; nothing was loaded") from None
        if not isinstance(record, dict):
            raise InvalidInput(f"line {number} is no JSON object; nothing was loaded")
        record = cast("dict[str, Any]", record)
        if not headed:
            headed = True
            if record.get("mainspring") != "runs" or record.get("format") != FORMAT:
                raise InvalidInput(
                    f'line {number}: an export begins with {{"mainspring": "runs", "format": {FORMAT}}}; nothing was loaded'
                )
            continue
        yield record


def _figures(row: Sequence[Any], by: Sequence[str], *, spans: bool) -> Figures:
    *keys, count, wait, average, longest = row
    group = dict(zip(by, keys, strict=False))
    since = to_datetime(keys[-1]) if spans else None
    return Figures(group, since, count, _seconds(wait), _seconds(average), _seconds(longest))


def _seconds(micros: float | None) -> float | None:
    """Seconds, never less than none: a run may begin before the transaction that creates it has read the clock."""
    return None if micros is None else max(0, micros) / SECOND


def _unique(ids: Sequence[str]) -> list[str]:
    if isinstance(ids, str):
        raise InvalidInput(f"this takes a list of run ids, not the string {ids!r}")
    return list(dict.fromkeys(ids))
