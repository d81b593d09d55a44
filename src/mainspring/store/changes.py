"""The changes of a transaction that others must learn of, and the notifications to other processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote

from msgspec import Struct
from msgspec.structs import replace

from mainspring.model.states import State
from mainspring.store.messages import is_public

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mainspring.model.runs import NewRun
    from mainspring.store.messages import Awaited


class Notice(Struct, frozen=True):
    """A run owned by a worker that was changed from outside."""

    run: str
    epoch: int
    state: State
    reason: str | None


class ReadyRun(NamedTuple):
    """A run that became ready to be claimed: its function and its queue, by which a worker decides whether to claim."""

    function: str
    queue: str
    """Empty: no queue."""
    id: str
    """Empty: unnamed runs of this function and queue."""


class Signal(Struct, frozen=True):
    """The changes of a commit that waiters may wait for."""

    ready: bool = False
    """Whether there may be runs to claim, of any function and queue."""
    overdue: bool = False
    """Whether some of those may have been due for long, so that a claim must search all of them."""
    started: frozenset[ReadyRun] = frozenset()
    """Known runs to claim."""
    claimed: frozenset[str] = frozenset()
    """Runs that another worker claimed just after they became ready."""
    ended: frozenset[str] | None = frozenset()
    """Runs that ended; None: unknown ones."""
    notified: frozenset[str] | None = frozenset()
    """Workers whose runs need attention; None: perhaps all workers."""
    stops: tuple[Notice, ...] = ()
    """Owned runs that this commit stopped. Only for commits of this process: other workers get notices."""
    published: frozenset[Awaited] | None = frozenset()
    """Messages, events and streams that were written; None: unknown ones."""
    due: bool = False
    """Whether there may be schedules to plan, or ended runs to report that no worker has seen."""
    lost: bool = False
    """Whether the response to a commit was lost. It may have been committed, and its waiters in this process were not notified."""


LONGEST_PAYLOAD = 7_000
"""PostgreSQL refuses notifications of more than 8,000 bytes."""
_MOST_NAMED = 20
"""The most runs that one notification names. Beyond that it names functions and queues, and beyond as many of those, nothing."""
_A_WHILE = 50_000
"""A run that has been due for longer than this, in microseconds, may be below the floor that claims search from."""
ECHO = "echo"
"""The payload that a listener sends to itself, to check that notifications arrive."""
EVERYTHING = Signal(ready=True, overdue=True, ended=None, notified=None, due=True, published=None)
LOST = replace(EVERYTHING, lost=True)


@dataclass(slots=True)
class Changes:
    """The changes of an open transaction: sent to other processes within it, and published in this process after the commit."""

    ready: bool = False
    """Whether there are runs to claim, of any function and queue, some of which may have been due for long."""
    fresh: bool = False
    """Whether there are runs to claim, of any function and queue, that are due from now on."""
    started: set[ReadyRun] = field(default_factory=set[ReadyRun])
    """Known runs to claim."""
    overdue: bool = False
    """Whether some of the known runs to claim may have been due for long. Unknown ones always may."""
    due: bool = False
    """Whether there are schedules to plan."""
    ended: set[str] = field(default_factory=set[str])
    """Runs that ended."""
    notified: set[str] = field(default_factory=set[str])
    """Workers that own runs which need attention."""
    stops: list[Notice] = field(default_factory=list["Notice"])
    """Owned runs that were stopped."""
    published: set[Awaited] = field(default_factory=set["Awaited"])
    """Messages, events and streams that were written, which runs and processes may wait for."""

    def __bool__(self) -> bool:
        return self.concerns_others or bool(self.published)

    @property
    def concerns_others(self) -> bool:
        """Whether to notify other processes. A message to a run needs no notification besides that of the run's owner."""
        claimable = self.ready or self.fresh or bool(self.started)
        return claimable or self.due or bool(self.ended) or bool(self.notified) or self._readable

    @property
    def _readable(self) -> bool:
        """Whether a value was published that a process outside of runs may wait for."""
        return any(map(is_public, self.published))

    def start(self, runs: Iterable[NewRun], now: int) -> None:
        """Add started runs. Those without an owner can be claimed, now or when they are due."""
        unowned = [run for run in runs if run.owner is None]
        if not unowned:
            return
        self.overdue = self.overdue or min([run.due or now for run in unowned]) < now - _A_WHILE
        if {run.state for run in unowned} != {State.QUEUED}:
            self.fresh = True  # every worker is notified of their due time
        elif len(unowned) > _MOST_NAMED:
            names = {(run.workflow, run.queue or "") for run in unowned}
            self.started |= {ReadyRun(function, queue, "") for function, queue in names}
        else:
            self.started |= {ReadyRun(run.workflow, run.queue or "", run.id) for run in unowned}

    def woke(self, owners: Iterable[str | None]) -> None:
        """Add woken runs. Those without an owner can be claimed, and the owners of the others are notified."""
        for owner in owners:
            if owner is None:
                self.ready = True
            else:
                self.notified.add(owner)

    def stopped(self, rows: Iterable[Sequence[Any]], state: State, reason: str | None) -> set[str]:
        """Add stopped runs, as rows of id, owner and epoch. Return those that have an owner, which is notified."""
        owned = [(run, owner, epoch) for run, owner, epoch in rows if owner is not None]
        self.notified |= {owner for _, owner, _ in owned}
        self.stops += [Notice(run, epoch, state, reason) for run, _, epoch in owned]
        return {run for run, _, _ in owned}

    def end(self, runs: Iterable[str]) -> None:
        """Add runs that were ended from outside, so that their schedules must process the end."""
        self.ended |= set(runs)
        self.due = self.due or bool(self.ended)

    def add(self, other: Changes) -> None:
        self.ready = self.ready or other.ready
        self.fresh = self.fresh or other.fresh
        self.started |= other.started
        self.overdue = self.overdue or other.overdue
        self.due = self.due or other.due
        self.ended |= other.ended
        self.notified |= other.notified
        self.stops += other.stops
        self.published |= other.published

    def signal(self) -> Signal:
        """The signal for this process, to be published after the commit."""
        return Signal(
            ready=self.ready or self.fresh or bool(self.started),
            overdue=self.ready or self.overdue,
            started=frozenset(self.started),
            ended=frozenset(self.ended),
            notified=frozenset(self.notified),
            stops=tuple(self.stops),
            due=self.due,
            published=frozenset(self.published),
        )

    def payload(self, origin: str) -> str:
        """The notification for other processes: tokens, the sender's id first. See `parse`."""
        tokens = [origin]
        tokens += self._ready_tokens()
        if self.due:
            tokens.append(DUE)
        if self.ended:
            tokens.append(SOME_ENDED)
        if self._readable:
            tokens.append(SOME_PUBLISHED)
        tokens.extend(f"{WORKER}{worker}" for worker in sorted(self.notified))
        text = " ".join(tokens)
        return text if len(text.encode()) <= LONGEST_PAYLOAD else f"{origin} {ALL}"

    @property
    def ready_payload(self) -> str:
        """The part of a notification about runs to claim; empty if there are none."""
        return " ".join(self._ready_tokens())

    def _ready_tokens(self) -> list[str]:
        named = self.started if len(self.started) <= _MOST_NAMED else {run._replace(id="") for run in self.started}
        tokens = [f"{READY}={','.join(quote(each, safe='') for each in run)}" for run in sorted(named)]
        too_many = len(tokens) > _MOST_NAMED or sum(map(len, tokens)) > LONGEST_PAYLOAD // 2
        if self.ready:
            return [READY]
        if self.fresh or too_many:
            tokens = [FRESH]
        return [*tokens, OVERDUE] if tokens and self.overdue else tokens


def started(runs: Iterable[NewRun], now: int) -> Changes:
    """The changes that the start of runs makes."""
    changes = Changes()
    changes.start(runs, now)
    return changes


def claimed_payload(origin: str, runs: Iterable[str]) -> str:
    """The notification about claimed runs."""
    text = " ".join([origin, *(f"{CLAIMED}{quote(run, safe='')}" for run in runs)])
    return text if len(text) <= LONGEST_PAYLOAD else origin


READY, FRESH, OVERDUE = "r", "n", "o"
DUE, SOME_ENDED, SOME_PUBLISHED, WORKER, SOME_WORKERS = "s", "e", "v", "p=", "p"
"""The tokens of a notification.

In this order: runs to claim, runs to claim that are due just now, known runs that are overdue, schedules to plan, ended runs, published
values, a worker whose runs need attention, any worker's runs. A token of known runs has their function, queue and id after a "=".
"""
CLAIMED = "c="
"""The token for a run that was claimed."""
ALL = f"{READY} {DUE} {SOME_ENDED} {SOME_PUBLISHED} {SOME_WORKERS}"


def parse(payload: str, origin: str) -> Signal | None:
    """Parse the notification of another process. Return None for one of this process, which knows its changes in more detail."""
    sender, *tokens = payload.split(" ")
    if sender == origin:
        return None
    named = frozenset(token.removeprefix(WORKER) for token in tokens if token.startswith(WORKER))
    return Signal(
        ready=READY in tokens or FRESH in tokens,
        overdue=READY in tokens or OVERDUE in tokens,
        started=frozenset(_ready_run(token) for token in tokens if token.startswith(f"{READY}=")),
        claimed=frozenset(unquote(token.removeprefix(CLAIMED)) for token in tokens if token.startswith(CLAIMED)),
        ended=None if SOME_ENDED in tokens else frozenset(),
        notified=None if SOME_WORKERS in tokens else named,
        due=DUE in tokens,
        published=None if SOME_PUBLISHED in tokens else frozenset(),
    )


def _ready_run(token: str) -> ReadyRun:
    function, queue, run = token.removeprefix(f"{READY}=").split(",")
    return ReadyRun(unquote(function), unquote(queue), unquote(run))
