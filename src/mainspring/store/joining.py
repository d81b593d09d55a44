"""The verbs that can be part of somebody's open transaction: starting, cancelling, and recording what a transaction came to.

They are conversations: each says which statements it needs, one after the other, and is told the rows. Who has the connection
carries the words: blocking or awaiting, with the driver's own cursor or through SQLAlchemy. So there is one text of each verb
for all of them, and the differences between databases are in `Texts`.

Nothing here begins, commits or rolls back, and nothing relies on what has not been committed becoming true.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from mainspring.model.states import State
from mainspring.store import sql
from mainspring.store.ops import Started
from mainspring.store.protocol import Signal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.store.ops import Start, Write

T = TypeVar("T")

Rows = list[tuple[Any, ...]]
Talk = Generator[tuple[str, dict[str, Any]], Rows, T]

STOPPED = (State.CANCELLING, State.CANCELLED)
WITH_ITS_STARTER = "the run that started it was cancelled"
"""Why a run that a cancelled one starts is cancelled from the beginning."""


@dataclass(frozen=True, slots=True)
class Texts:
    """The statements in one database's words. `ids` writes a list of ids as their parameter."""

    start: str
    there: str
    askers: str
    checkpoint: str
    mood: str
    state: str
    born_cancelled: str
    lock_tree: str
    cancel_in_hand: str
    cancel_at_once: str
    lock_waiters: str
    wake: str
    notify: str | None
    ids: Callable[[Sequence[str]], Any]


class Tongue(Protocol):
    """Says a statement on a connection and answers with its rows, blocking."""

    def ask(self, text: str, values: dict[str, Any]) -> Rows: ...


class AsyncTongue(Protocol):
    """The same, awaited."""

    async def ask(self, text: str, values: dict[str, Any]) -> Rows: ...


def carry(talk: Talk[T], tongue: Tongue) -> T:
    """Carry a conversation to its end, blocking."""
    try:
        asked = next(talk)
        while True:
            asked = talk.send(tongue.ask(*asked))
    except StopIteration as done:
        found: T = done.value
        return found


async def carry_async(talk: Talk[T], tongue: AsyncTongue) -> T:
    """Carry a conversation to its end, awaiting."""
    try:
        asked = next(talk)
        while True:
            asked = talk.send(await tongue.ask(*asked))
    except StopIteration as done:
        found: T = done.value
        return found


@dataclass(slots=True)
class Joining:
    """What was made part of one open transaction, and what is to be told when it has committed."""

    texts: Texts
    channel: str = ""
    origin: str = ""
    ready: bool = False
    ended: set[str] = field(default_factory=set[str])
    poked: set[str] = field(default_factory=set[str])
    born: list[str] = field(default_factory=list[str])
    """Runs that are new in this transaction."""

    def signal(self) -> Signal:
        return Signal(ready=self.ready, ended=frozenset(self.ended), poked=frozenset(self.poked), due=bool(self.ended))

    @property
    def news(self) -> bool:
        return self.ready or bool(self.ended) or bool(self.poked)

    # -- starting ------------------------------------------------------------------------------------------------------
    def start(self, ops: Sequence[Start], now: int) -> Talk[list[Started]]:
        """Store new runs. Those that a cancelled run asks for are cancelled from the beginning."""
        stopped: set[str] = set()
        askers = sorted({op.asker for op in ops if op.asker is not None})
        if askers:
            rows = yield self.texts.askers, {"ids": self.texts.ids(askers)}
            stopped = {run for run, state in rows if state in STOPPED}
        values = [dict(zip(sql.NEW_RUN_COLUMNS, sql.run_values(op.run), strict=True)) for op in ops]
        rows = yield self.texts.start, {"rows": msgspec.json.encode(values).decode()}
        made = {row[0] for row in rows}
        there: dict[str, tuple[Any, ...]] = {}
        if len(made) < len(ops):
            old = [op.run.id for op in ops if op.run.uid not in made]
            rows = yield self.texts.there, {"ids": self.texts.ids(old)}
            there = {row[0]: row for row in rows}
        cancelled = [op.run.id for op in ops if op.run.uid in made and op.asker in stopped]
        if cancelled:
            yield from self._cancel_born(cancelled, now)
        self.born += [op.run.id for op in ops if op.run.uid in made]
        self.ready = self.ready or len(made) > len(cancelled)
        yield from self._notify()
        return [_started(op, made, there) for op in ops]

    def _cancel_born(self, ids: list[str], now: int) -> Talk[None]:
        yield self.texts.born_cancelled, {"ids": self.texts.ids(ids), "now": now, "reason": WITH_ITS_STARTER}

    # -- recording -----------------------------------------------------------------------------------------------------
    def checkpoint(self, write: Write, now: int) -> Talk[bool]:
        """Record the outcome of the transaction that this is part of. False: the run is another's, or it is recorded already.

        A run that is being cancelled keeps what its transaction did, but nothing that was started in it begins.
        """
        step = write.step
        values = dict(zip(sql.STEP_COLUMNS, sql.step_values(step), strict=True), owner=write.owner)
        rows = yield self.texts.checkpoint, values
        if not rows:
            return False
        if self.born:
            rows = yield self.texts.state, {"id": step.run}
            if rows and rows[0][0] in STOPPED:
                yield from self._cancel_born(self.born, now)
        if write.mood is not None:
            yield self.texts.mood, {"run": step.run, "mood": write.mood, "due": write.due}
        return True

    # -- cancelling ----------------------------------------------------------------------------------------------------
    def cancel(self, ids: Sequence[str], reason: str | None, now: int) -> Talk[dict[str, bool]]:
        """Cancel runs and their children; see `Store.cancel`."""
        values = {"ids": self.texts.ids(ids), "reason": reason, "now": now}
        locked: set[tuple[Any, ...]] = set()
        while fresh := set((yield self.texts.lock_tree, values)) - locked:
            locked |= fresh
        in_hand: dict[str, str] = dict((yield self.texts.cancel_in_hand, values))
        rows = yield self.texts.cancel_at_once, values
        ended = {row[0] for row in rows}
        self.ended |= ended
        self.poked |= set(in_hand.values())
        if ended:
            waiting = {"ids": self.texts.ids(sorted(ended)), "now": now}
            yield self.texts.lock_waiters, waiting
            for (owner,) in (yield self.texts.wake, waiting):
                if owner is None:
                    self.ready = True
                else:
                    self.poked.add(owner)
        yield from self._notify()
        return {run: run in in_hand or run in ended for run in ids}

    def _notify(self) -> Talk[None]:
        """Other processes hear of it when, and if, the transaction commits. Saying so twice is once."""
        if self.texts.notify is not None and self.origin and self.news:
            tokens = [self.origin, *(["r"] if self.ready else []), *(["e"] if self.ended else [])]
            tokens += [*(["s"] if self.ended else []), *(["p"] if self.poked else [])]
            yield self.texts.notify, {"channel": self.channel, "payload": " ".join(tokens)}


def _started(op: Start, made: set[Any], there: dict[str, tuple[Any, ...]]) -> Started:
    run = op.run
    if run.uid in made:
        return Started(created=True, workflow=run.workflow, state=run.state)
    _, uid, workflow, state = there[run.id]
    return Started(created=uid == run.uid, workflow=workflow, state=State(state))


class Joined:
    """A conversation partner: somebody's open transaction, and what was made part of it."""

    __slots__ = ("_async", "_tongue", "joining")

    def __init__(
        self, joining: Joining, *, tongue: Tongue | None = None, async_tongue: AsyncTongue | None = None
    ) -> None:
        self.joining = joining
        self._tongue = tongue
        self._async = async_tongue

    @property
    def is_async(self) -> bool:
        return self._tongue is None

    def do(self, talk: Talk[T]) -> T:
        assert self._tongue is not None  # noqa: S101
        return carry(talk, self._tongue)

    async def ado(self, talk: Talk[T]) -> T:
        if self._tongue is not None:
            return carry(talk, self._tongue)
        assert self._async is not None  # noqa: S101
        return await carry_async(talk, self._async)
