"""Send messages to runs, answer questions, publish events and values of streams.

The row of a run is the lock for the numbers of its messages and values, so that numbers are in the order of commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from mainspring.store.messages import Entry, Post, Reply, awaited_by
from mainspring.store.sql.messages import POST, PUBLISH, RECEIVE, REPLY
from mainspring.store.verbs.fence import fence
from mainspring.store.writes import Recorded, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mainspring.store.messages import Outgoing
    from mainspring.store.transaction import Script, Transaction
    from mainspring.store.writes import Send


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
                yield from tx.execute(POST, **values, kind="question" if each.question else "message")
            case Entry():
                yield from tx.execute(PUBLISH[each.table], **values)
            case Reply():
                yield from tx.execute(REPLY, **values)
    tx.changes.published |= {awaited_by(each) for each in (*outgoing, *again)}


def receive(tx: Transaction, run: str, number: int, position: str) -> Script[None]:
    """Mark a message as received by the operation at a position of a run."""
    yield from tx.execute(RECEIVE, run=run, number=number, position=position, now=tx.now)
