"""Apply one write of the committer in a transaction of its own, for writes that a batch could not apply in bulk.

These are writes that lost a race, repeat a write after a lost acknowledgement, meet a locked row, or have bad data. The answer says which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.store.verbs.messages import send
from mainspring.store.verbs.record import discard_outcome, finish, record
from mainspring.store.verbs.start import start
from mainspring.store.verbs.suspend import compensate, continue_as, release, retry_later, suspend
from mainspring.store.writes import (
    Compensate,
    ContinueAs,
    DiscardOutcome,
    Finish,
    RecordAndRevive,
    RecordAndSend,
    RecordStep,
    Release,
    RetryLater,
    Send,
    Start,
    Suspend,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.store.transaction import Script, Transaction
    from mainspring.store.writes import Op, Result


def _start(tx: Transaction, op: Start) -> Script[Result]:
    return (yield from start(tx, [op]))[0]


_VERBS: dict[type, Callable[[Transaction, Any], Script[Any]]] = {
    Start: _start,
    RecordStep: record,
    RecordAndSend: record,
    RecordAndRevive: record,
    Send: send,
    DiscardOutcome: discard_outcome,
    Suspend: suspend,
    Release: release,
    RetryLater: retry_later,
    ContinueAs: continue_as,
    Compensate: compensate,
    Finish: finish,
}


def apply(tx: Transaction, op: Op) -> Script[Result]:
    """Apply a write. Raises `Taken` if the whole write must be rolled back."""
    return _VERBS[type(op)](tx, op)
