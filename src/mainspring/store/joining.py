"""The verbs that can be part of somebody's open transaction: starting, cancelling, saying, and recording what a transaction came to.

They are conversations (`mainspring.store.conversations`), so there is one text of each verb for all kinds of connections, and the
differences between databases are in `Texts`.

Nothing here begins, commits or rolls back, and nothing relies on what has not been committed becoming true.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, field

from mainspring.model.forgetting import MADE
from mainspring.model.states import State
from mainspring.store import sql
from mainspring.store.keyed import KeyTexts, meet_holder
from mainspring.store.messages import Post, heard_by
from mainspring.store.ops import Complete, Started, StoppedFirst
from mainspring.store.outcomes import generation_of
from mainspring.store.protocol import Signal
from mainspring.store.stopped import Stops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mainspring.store.conversations import Asked, Talk
    from mainspring.store.messages import Heard, Say
    from mainspring.store.ops import Start, Write
    from mainspring.store.protocol import Poke

Place = tuple[str, str, str]
"""Of a transaction: the uid of its run, its generation there (`outcomes.generation_of`), and its position."""
Fence = tuple[str, str, int]
"""A run, the worker that has it in hand, and the epoch of that."""

STOPPED = (State.CANCELLING, State.CANCELLED)
WITH_ITS_STARTER = "the run that started it was cancelled"
"""Why a run that a cancelled one starts is cancelled from the beginning."""


@dataclass(frozen=True, slots=True)
class Texts:
    """The statements in one database's words. `ids` writes a list of ids as their parameter."""

    start: str
    there: str
    askers: str
    checkpoint: Callable[[Write], Talk[State | None]]
    mood: str
    succeed: str
    born_cancelled: str
    lock_tree: str
    cancel_in_hand: str
    cancel_undoable: str
    cancel_at_once: str
    terminate: str
    lock_runs: str
    waiters: str
    wake: str
    notify: str | None
    ids: Callable[[Sequence[str]], Any]
    keys: KeyTexts
    says: Callable[[Sequence[Say]], list[Asked]]
    listeners: Callable[[Iterable[Heard]], Asked]
    generations: str
    recorded: str
    old_snapshot: str | None
    """Asks whether statements are blind to what was committed since the transaction began. None: they never are."""
    parents: str


class Joining(Struct):
    """What was made part of one open transaction, and what is to be told when it has committed."""

    texts: Texts
    channel: str = ""
    origin: str = ""
    ready: bool = False
    ended: set[str] = field(default_factory=set[str])
    poked: set[str] = field(default_factory=set[str])
    stops: list[Poke] = field(default_factory=list["Poke"])
    said: set[Heard] = field(default_factory=set["Heard"])
    due: bool = False
    """Schedules were changed."""
    born: list[str] = field(default_factory=list[str])
    """Runs that are new in this transaction."""
    blind: bool | None = None
    """Whether runs that began to wait since the transaction began cannot be found in it. None: not asked yet."""
    at: int = 0
    """When something was said in it last, or a run ended."""

    def signal(self) -> Signal:
        ended, poked, said = frozenset(self.ended), frozenset(self.poked), frozenset(self.said)
        due = self.due or bool(ended)
        return Signal(ready=self.ready, ended=ended, poked=poked, stops=tuple(self.stops), due=due, said=said)

    @property
    def news(self) -> bool:
        return self.ready or self.due or bool(self.ended) or bool(self.poked) or bool(self.said)

    @property
    def missed(self) -> bool:
        """Whether runs may wait for what happened here that could not be found here."""
        return bool(self.blind and (self.ended or self.said))

    def add(self, signal: Signal) -> None:
        """Something else that happened in the transaction, to be told with the rest."""
        self.ready, self.due = self.ready or signal.ready, self.due or signal.due
        self.ended |= signal.ended or set()
        self.poked |= signal.poked or set()
        self.stops += signal.stops

    # -- starting ------------------------------------------------------------------------------------------------------
    def start(self, ops: Sequence[Start], now: int) -> Talk[list[Started]]:
        """Store new runs. Those that a cancelled run asks for are cancelled from the beginning."""
        stopped: set[str] = set()
        askers = sorted({op.asker for op in ops if op.asker is not None})
        if askers:
            rows = yield self.texts.askers, {"ids": self.texts.ids(askers)}
            stopped = {run for run, state in rows if state in STOPPED}
        made = yield from self._insert(ops)
        met: dict[str, Started] = {}
        for op in ops:
            if op.run.key is not None and op.run.uid not in made:
                met |= yield from self._keyed(op, made, now)
        there: dict[str, tuple[Any, ...]] = {}
        while left := [op for op in ops if not {op.run.uid} & (made | met.keys()) and op.run.id not in there]:
            rows = yield self.texts.there, {"ids": self.texts.ids([op.run.id for op in left])}
            there |= {row[0]: row for row in rows}
            if gone := [op for op in left if op.run.id not in there]:  # deleted since the insert met it
                made |= yield from self._insert(gone)
        cancelled = [op.run.id for op in ops if op.run.uid in made and op.asker in stopped]
        if cancelled:
            yield from self._cancel_born(cancelled, now)
        self.born += [op.run.id for op in ops if op.run.uid in made]
        self.ready = self.ready or bool(met) or len(made) > len(cancelled)
        yield from self._notify()
        return [met.get(op.run.uid) or _started(op, made, there) for op in ops]

    def _insert(self, ops: Sequence[Start]) -> Talk[set[str]]:
        """The uids of the runs that could be stored."""
        values = [dict(zip(sql.NEW_RUN_COLUMNS, sql.run_values(op.run), strict=True)) for op in ops]
        rows = yield self.texts.start, {"rows": msgspec.json.encode(values).decode()}
        return {row[0] for row in rows}

    def _keyed(self, op: Start, made: set[str], now: int) -> Talk[dict[str, Started]]:
        """What a run became whose key is taken; nothing if it is its id that is taken, or if the key is free by now."""
        while True:
            rows = yield self.texts.there, {"ids": self.texts.ids([op.run.id])}
            if rows:
                return {}
            met = yield from meet_holder(op.run, now, self.texts.keys)
            if met is not None:
                return {op.run.uid: met}
            made |= yield from self._insert([op])
            if op.run.uid in made:
                return {}

    def _cancel_born(self, ids: list[str], now: int) -> Talk[None]:
        yield self.texts.born_cancelled, {"ids": self.texts.ids(ids), "now": now, "reason": WITH_ITS_STARTER}

    # -- recording -----------------------------------------------------------------------------------------------------
    def checkpoint(self, write: Write, now: int) -> Talk[State | None]:
        """Record the outcome of the transaction that this is part of, and tell the state of the run.

        None: the run is another's, or it is recorded already. A run that is being cancelled keeps what its transaction did, but nothing that was started in it begins.
        """
        state = yield from self.texts.checkpoint(write)
        if state is None:
            return None
        if isinstance(write, Complete):
            if state not in STOPPED:
                return (yield from self._succeed(write, now))
            if not write.kept:
                raise StoppedFirst
        if self.born and state in STOPPED:
            yield from self._cancel_born(self.born, now)
        if write.mood is not None:
            yield self.texts.mood, {"run": write.step.run, "mood": write.mood, "due": write.due}
        return state

    def _succeed(self, write: Complete, now: int) -> Talk[State]:
        step = write.step
        yield self.texts.succeed, {"run": step.run, "output": step.output, "completed": step.completed}
        yield from self.settle({step.run}, now)
        return State.SUCCEEDED

    def done_with(self, keys: Sequence[Place]) -> Talk[list[Place]]:
        """Which transactions in another database nobody will ask for any more: what they came to is recorded here, or their run
        has begun anew since, or it was deleted.
        """
        rows = yield self.texts.generations, {"ids": self.texts.ids(sorted({uid for uid, _, _ in keys}))}
        runs = {uid: (run, generation) for uid, run, generation in rows}
        rows = yield self.texts.recorded, {"ids": self.texts.ids(sorted(run for run, _ in runs.values()))}
        recorded = {(run, position): output for run, position, output in rows}

        def needed(key: Place) -> bool:
            uid, generation, position = key
            if uid not in runs:
                return False
            run, latest = runs[uid]
            forgotten = int(recorded.get((run, f"{MADE}{position}"), 0))
            return generation == generation_of(latest, forgotten) and (run, position) not in recorded

        return [key for key in keys if not needed(key)]

    # -- cancelling ----------------------------------------------------------------------------------------------------
    def cancel(self, ids: Sequence[str], reason: str | None, now: int) -> Talk[dict[str, bool]]:
        """Cancel runs and their children; see `Store.cancel`."""
        values = {"ids": self.texts.ids(ids), "reason": reason, "now": now}
        yield from self.hold(ids)
        in_hand = Stops((yield self.texts.cancel_in_hand, values), State.CANCELLING, reason)
        later = {row[0] for row in (yield self.texts.cancel_undoable, values)}
        self.ready = self.ready or bool(later)
        rows = yield self.texts.cancel_at_once, values
        ended = {row[0] for row in rows}
        self.poked |= in_hand.owners
        self.stops += in_hand.pokes
        yield from self.settle(ended, now)
        return {run: run in in_hand.runs or run in later or run in ended for run in ids}

    def terminate(self, ids: Sequence[str], reason: str | None, now: int) -> Talk[dict[str, bool]]:
        """End runs and their children at once; see `Store.terminate`."""
        yield from self.hold(ids)
        rows = yield self.texts.terminate, {"ids": self.texts.ids(ids), "reason": reason, "now": now}
        ended = {row[0] for row in rows}
        owned = Stops(rows, State.CANCELLED, reason)
        self.poked |= owned.owners
        self.stops += owned.pokes
        yield from self.settle(ended, now)
        return {run: run in ended for run in ids}

    def hold(self, ids: Sequence[str]) -> Talk[None]:
        """Lock runs and all that descend from them, and look again until nothing new turns up."""
        values = {"ids": self.texts.ids(ids)}
        locked: set[tuple[Any, ...]] = set()
        while fresh := set((yield self.texts.lock_tree, values)) - locked:
            locked |= fresh

    def settle(self, ended: set[str], now: int) -> Talk[None]:
        """Wake those who wait for runs that have ended, and tell others of all that is new."""
        self.ended |= ended
        if ended:
            yield from self._wake_waiters(ended, now)
        yield from self._notify()

    def _wake_waiters(self, ended: set[str], now: int) -> Talk[None]:
        found = {row[0] for row in (yield self.texts.waiters, {"ids": self.texts.ids(sorted(ended))})}
        if (yield from self._is_blind()):
            found |= {row[0] for row in (yield self.texts.parents, {"ids": self.texts.ids(sorted(ended))})}
        yield from self._wake(sorted(found), now)

    def _is_blind(self) -> Talk[bool]:
        if self.blind is None:
            self.blind = self.texts.old_snapshot is not None and bool((yield self.texts.old_snapshot, {})[0][0])
        return self.blind

    def look_again(self, now: int) -> Talk[None]:
        """Wake the runs that a transaction with an old snapshot could not find. To be made after its commit, in another one."""
        if self.ended:
            yield from self._wake_waiters(self.ended, now)
        if self.said:
            yield from self._wake([row[0] for row in (yield self.texts.listeners(self.said))], now)
        yield from self._notify()

    def _wake(self, waiters: list[str], now: int) -> Talk[None]:
        self.at = now
        if not waiters:
            return
        concerned = {"ids": self.texts.ids(sorted(waiters))}
        yield self.texts.lock_runs, concerned
        for (owner,) in (yield self.texts.wake, {**concerned, "now": now}):
            if owner is None:
                self.ready = True
            else:
                self.poked.add(owner)

    # -- saying --------------------------------------------------------------------------------------------------------
    def say(self, says: Sequence[Say], now: int, fence: Fence | None = None) -> Talk[list[str]]:
        """Say things; the runs that were to be told something and do not exist: then nothing was said.

        With a `fence`, nothing is said either when that run is no longer in that worker's hand.
        """
        concerned = sorted({say.run for say in says} | ({fence[0]} if fence is not None else set()))
        rows = yield self.texts.lock_runs, {"ids": self.texts.ids(concerned)}
        if fence is not None and fence not in {(run, owner, epoch) for run, owner, epoch in rows}:
            return []
        self.ready = self.ready or any(
            owner is None for _, owner, _ in rows
        )  # a claim may have passed over what is held
        there = {row[0] for row in rows}
        unknown = list(dict.fromkeys(say.run for say in says if isinstance(say, Post) and say.run not in there))
        if unknown:
            return unknown
        for text, values in self.texts.says(says):  # noqa: UP028  (a list cannot be sent to)
            yield text, values
        said = {heard_by(say) for say in says}
        self.said |= said
        found = {row[0] for row in (yield self.texts.listeners(said))}
        if (yield from self._is_blind()):
            found |= {say.run for say in says if isinstance(say, Post)}
        yield from self._wake(sorted(found), now)
        yield from self._notify()
        return []

    def _notify(self) -> Talk[None]:
        """Other processes hear of it when, and if, the transaction commits. Saying so twice is once."""
        if self.texts.notify is not None and self.origin and self.news:
            signal = self.signal()
            tokens = [self.origin, *(["r"] if signal.ready else []), *(["s"] if signal.due else [])]
            tokens += [
                *(["e"] if signal.ended else []),
                *(["p"] if signal.poked else []),
                *(["v"] if signal.said else []),
            ]
            yield self.texts.notify, {"channel": self.channel, "payload": " ".join(tokens)}


def _started(op: Start, made: set[Any], there: dict[str, tuple[Any, ...]]) -> Started:
    run = op.run
    if run.uid in made:
        return Started(created=True, workflow=run.workflow, state=run.state)
    _, uid, workflow, state = there[run.id]
    return Started(created=uid == run.uid, workflow=workflow, state=State(state))
