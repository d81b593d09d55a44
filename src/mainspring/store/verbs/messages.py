"""Send and read messages, events and streams.

The row of a run is the lock for the numbers of its messages and values, so that numbers are in the order of commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from mainspring.model.states import State
from mainspring.store.messages import Entry, Message, Post, PublishedValue, Reading, Reply, awaited_by
from mainspring.store.sql import messages as sql
from mainspring.store.writes import Recorded, Verdict, fence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from mainspring.store.messages import Outgoing
    from mainspring.store.transaction import Read, Script, Transaction
    from mainspring.store.writes import Send


# -- sending -------------------------------------------------------------------------------------------------------------
def send(tx: Transaction, op: Send) -> Script[Recorded]:
    """Send messages that are not the outcome of an operation: from outside of runs, or within a step. All of them, or none."""
    owned = [op.run] if op.owner is not None else []
    concerned: dict[str, None] = dict.fromkeys([*owned, *(each.run for each in op.outgoing)])
    rows = yield from tx.lock_runs(list(concerned))
    if op.owner is not None and fence(rows.get(op.run), op.owner, op.epoch) is Verdict.FENCED:
        return Recorded(Verdict.FENCED)
    unknown = [run for run in recipients(op.outgoing) if run not in rows]
    if unknown:
        return Recorded(Verdict.UNKNOWN, unknown=unknown)
    yield from publish(tx, op.outgoing)
    return Recorded()


def recipients(outgoing: Iterable[Outgoing]) -> list[str]:
    """The runs that must exist."""
    return list(dict.fromkeys(each.run for each in outgoing if isinstance(each, Post)))


def publish(tx: Transaction, outgoing: Sequence[Outgoing], again: Sequence[Outgoing] = ()) -> Script[None]:
    """Store messages and values. Waiting runs are woken when the transaction closes. Those in `again` are stored already."""
    for each in outgoing:
        values = structs.asdict(each)
        match each:
            case Post():
                yield from tx.execute(sql.POST, **values, kind="question" if each.question else "message")
            case Entry():
                yield from tx.execute(sql.PUBLISH[each.table], **values)
            case Reply():
                yield from tx.execute(sql.REPLY, **values)
    tx.changes.published |= {awaited_by(each) for each in (*outgoing, *again)}


def receive(tx: Transaction, run: str, number: int, position: str) -> Script[None]:
    """Mark a message as received by the operation at a position of a run."""
    yield from tx.execute(sql.RECEIVE, run=run, number=number, position=position, now=tx.now)


# -- reading -------------------------------------------------------------------------------------------------------------
class Messages:
    """Reads messages. They are sent through the committer: `RecordAndSend` for runs, `Send` for all other callers."""

    def __init__(self, read: Read) -> None:
        self._read = read

    def next(self, run: str, topic: str, *, question: bool, skip: Collection[int]) -> Message | None:
        """The first message of a topic that the run has not received. Messages in `skip` belong to other branches."""
        kind = "question" if question else "message"
        rows = self._read(sql.NEXT_MESSAGES, run=run, kind=kind, topic=topic, limit=len(skip) + 1)
        return next((message for row in rows if (message := Message(*row)).number not in skip), None)

    def asked(self, run: str, key: str) -> tuple[Message | None, State | None]:
        """A question by its key, with its answer if there is one, and the state of the run that was asked."""
        state = self._state(
            run
        )  # read first: a run that answers and then ends must not be seen as ended without an answer
        found = self._read(sql.MESSAGE_BY_KEY, run=run, key=key)
        return Message(*found[0]) if found else None, state

    def event(self, run: str, key: str) -> Reading:
        """The last value of an event, if it was ever set."""
        state = self._state(run)
        return Reading([PublishedValue(*row) for row in self._read(sql.LAST_EVENT, run=run, key=key)], state)

    def events(self, run: str) -> Reading:
        """The last values of all events of a run, by key."""
        state = self._state(run)
        return Reading([PublishedValue(*row) for row in self._read(sql.LAST_EVENTS, run=run)], state)

    def stream(self, run: str, key: str, offset: int, limit: int) -> Reading:
        """The values of a stream, beginning at an offset."""
        state = self._state(run)
        found = self._read(sql.STREAM, run=run, key=key, offset=offset, limit=limit)
        return Reading([PublishedValue(*row) for row in found], state)

    def streams(self, run: str, limit: int) -> list[PublishedValue]:
        """The first values of all streams of a run, by key."""
        return [PublishedValue(*row) for row in self._read(sql.STREAMS, run=run, limit=limit)]

    def received(self, run: str) -> list[Message]:
        """All messages to a run, received or not, in order. Keys that an earlier generation of the run left are not included."""
        return [Message(*row) for row in self._read(sql.LIST_MESSAGES, run=run)]

    def _state(self, run: str) -> State | None:
        found = self._read(sql.RUN_STATE, run=run)
        return State(found[0][0]) if found else None
