"""Messages, events and streams: what is sent, and what is stored.

A **message** is sent to one run and one topic. The run receives each message once, in the order of commits. A **question** is a message
that is answered. An **event** is a named value of a run that every process can read. The last value counts. A **stream** is a named list of
values of a run that every process can read from any position.

All of them are numbered under the lock of the run's row, so that the order of numbers is the order of commits. The transaction that writes
one wakes the runs that wait for it: suspended runs are enqueued, and the workers of the others are notified. A waiting run has an
unfinished step: its `child` is the run that must write the value, its `kind` is what the run waits for (receive, question, event, stream or
answer), and its `name` is the topic or key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from mainspring.model.states import State

Awaited: TypeAlias = tuple[str, str, str]
"""The key of a wait: the run that publishes or receives, the kind of wait, the topic or key."""

Table: TypeAlias = Literal["events", "streams"]


class Post(Struct):
    """Send a message to a run. A message with a `key` that the run has received before is not stored again."""

    run: str
    topic: str
    body: str
    sent: int
    key: str | None = None
    sender: str | None = None
    question: bool = False


class Entry(Struct):
    """Write the next value of an event or stream of a run. The value None closes a stream."""

    table: Table
    run: str
    key: str
    value: str | None
    set_at: int
    position: str | None = None


class Reply(Struct):
    """Answer a question with a value or an exception. `refused`: the question counts as received, without a recorded step."""

    run: str
    number: int
    topic: str
    answer: str | None
    error: str | None
    answered: int
    refused: bool = False


Outgoing: TypeAlias = Post | Entry | Reply


def awaited_by(each: Outgoing) -> Awaited:
    """The key under which runs wait for this."""
    match each:
        case Post():
            return each.run, "question" if each.question else "receive", each.topic
        case Entry():
            return each.run, "event" if each.table == "events" else "stream", each.key
        case Reply():
            return each.run, "answer", each.topic


def is_public(awaited: Awaited) -> bool:
    """Whether processes wait for this, and not only runs."""
    return awaited[1] in {"event", "stream", "answer"}


class Message(Struct, frozen=True):
    """A stored message."""

    run: str
    number: int
    kind: str
    topic: str
    body: str
    key: str | None
    sender: str | None
    sent: int
    received: int | None
    position: str | None
    answer: str | None
    error: str | None
    answered: int | None


class PublishedValue(Struct, frozen=True):
    """A stored value of an event or stream."""

    run: str
    key: str
    number: int
    value: str | None
    set_at: int
    position: str | None


class Reading(Struct, frozen=True):
    """The values that were found of an event or stream, and the state of its run; None: there is no such run."""

    entries: list[PublishedValue]
    state: State | None
