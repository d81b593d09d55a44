"""What a transaction changed for others, and how other processes are notified of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from mainspring.store.protocol import Poke, Signal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mainspring.model.states import State
    from mainspring.store.messages import Heard

LONGEST_PAYLOAD = 7_000
"""PostgreSQL refuses more than 8,000 bytes in one notification."""
ECHO = "echo"
"""What a listener sends to itself, to find out whether notifications arrive."""
EVERYTHING = Signal(ready=True, overdue=True, ended=None, poked=None, due=True, said=None)
LOST = replace(EVERYTHING, lost=True)


@dataclass(slots=True)
class Changes:
    """Collected while a transaction is open; sent to other processes within it and published in this one after its commit."""

    ready: bool = False
    """There are runs to claim, some of which may have been due for long."""
    fresh: bool = False
    """There are runs to claim that are due just now, or later."""
    due: bool = False
    """There are schedules to look at."""
    ended: set[str] = field(default_factory=set[str])
    """Runs that ended."""
    notified: set[str] = field(default_factory=set[str])
    """Workers that own runs which need attention."""
    stops: list[Poke] = field(default_factory=list["Poke"])
    """Owned runs that were stopped."""
    published: set[Heard] = field(default_factory=set["Heard"])
    """Messages, events and values of streams: what runs and processes may wait for."""

    def __bool__(self) -> bool:
        return self.concerns_others or bool(self.published)

    @property
    def concerns_others(self) -> bool:
        """Whether other processes are notified. A message to a run needs no notification besides that of the run's owner."""
        return self.ready or self.fresh or self.due or bool(self.ended) or bool(self.notified) or self._readable

    @property
    def _readable(self) -> bool:
        """Whether something was published that a process outside runs may wait for."""
        return any(kind in {"event", "stream", "answer"} for _, kind, _ in self.published)

    def woke(self, owners: Iterable[str | None]) -> None:
        """Runs were woken: those without an owner can be claimed, the owners of the others are notified."""
        for owner in owners:
            if owner is None:
                self.ready = True
            else:
                self.notified.add(owner)

    def stopped(self, rows: Iterable[Sequence[Any]], state: State, reason: str | None) -> set[str]:
        """Runs were stopped: rows of id, owner, epoch. Which of them have an owner, who is notified."""
        owned = [(run, owner, epoch) for run, owner, epoch in rows if owner is not None]
        self.notified |= {owner for _, owner, _ in owned}
        self.stops += [Poke(run, epoch, state, reason) for run, _, epoch in owned]
        return {run for run, _, _ in owned}

    def end(self, runs: Iterable[str]) -> None:
        """Runs were ended from outside, so their schedules have yet to see it."""
        self.ended |= set(runs)
        self.due = self.due or bool(self.ended)

    def add(self, other: Changes) -> None:
        self.ready = self.ready or other.ready
        self.fresh = self.fresh or other.fresh
        self.due = self.due or other.due
        self.ended |= other.ended
        self.notified |= other.notified
        self.stops += other.stops
        self.published |= other.published

    def signal(self) -> Signal:
        """The same for this process, once it is committed."""
        return Signal(
            ready=self.ready or self.fresh,
            overdue=self.ready,
            ended=frozenset(self.ended),
            poked=frozenset(self.notified),
            stops=tuple(self.stops),
            due=self.due,
            said=frozenset(self.published),
        )

    def payload(self, origin: str) -> str:
        """The notification for other processes: tokens, the sender's id first. See `parse`."""
        tokens = [origin]
        if self.ready:
            tokens.append(READY)
        if self.fresh:
            tokens.append(FRESH)
        if self.due:
            tokens.append(DUE)
        if self.ended:
            tokens.append(SOME_ENDED)
        if self._readable:
            tokens.append(SOME_PUBLISHED)
        tokens.extend(f"{WORKER}{worker}" for worker in sorted(self.notified))
        text = " ".join(tokens)
        return text if len(text.encode()) <= LONGEST_PAYLOAD else f"{origin} {ALL}"


READY, FRESH, DUE, SOME_ENDED, SOME_PUBLISHED, WORKER, SOME_WORKERS = "r", "n", "s", "e", "v", "p=", "p"
"""The tokens of a notification: runs to claim, runs to claim that are due just now, schedules to look at, runs that ended, something published, a worker whose runs need
attention, and "any worker's may"."""
ALL = f"{READY} {DUE} {SOME_ENDED} {SOME_PUBLISHED} {SOME_WORKERS}"


def parse(payload: str, origin: str) -> Signal | None:
    """What another process changed; None for a notification of this one, which knows of it in more detail."""
    sender, *tokens = payload.split(" ")
    if sender == origin:
        return None
    named = frozenset(token.removeprefix(WORKER) for token in tokens if token.startswith(WORKER))
    return Signal(
        ready=READY in tokens or FRESH in tokens,
        overdue=READY in tokens,
        ended=None if SOME_ENDED in tokens else frozenset(),
        poked=None if SOME_WORKERS in tokens else named,
        due=DUE in tokens,
        said=None if SOME_PUBLISHED in tokens else frozenset(),
    )
