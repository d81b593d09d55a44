"""The messages, events and streams of a run, for display."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003  (pages are described by their annotations)
from typing import TYPE_CHECKING, Any

from mainspring.model.clock import to_datetime
from mainspring.store.sealing.payloads import shown

if TYPE_CHECKING:
    from mainspring.store.messages import Message, PublishedValue
    from mainspring.store.protocol import Store

MOST_SHOWN = 100


@dataclass(frozen=True, slots=True)
class MessageInfo:
    """A message or question for a run."""

    number: int
    kind: str
    topic: str
    body: Any
    sender: str | None
    sent: datetime
    received: datetime | None
    answer: Any
    error: dict[str, Any] | None
    answered: datetime | None


@dataclass(frozen=True, slots=True)
class PublishedInfo:
    """A value of an event or a stream of a run. `closed`: the stream ends here."""

    key: str
    number: int
    value: Any
    closed: bool
    set_at: datetime


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages, events and streams of a run. At most `MOST_SHOWN` of each, messages and streams from their beginning."""

    messages: list[MessageInfo]
    events: list[PublishedInfo]
    streams: list[PublishedInfo]


def conversation(store: Store, run: str) -> Conversation:
    """Return the messages, events and streams of a run."""
    messages = store.messages
    return Conversation(
        [_message(each) for each in messages.received(run)[:MOST_SHOWN]],
        [_published(each) for each in messages.events(run).entries[:MOST_SHOWN]],
        [_published(each) for each in messages.streams(run, MOST_SHOWN)],
    )


def _message(message: Message) -> MessageInfo:
    return MessageInfo(
        message.number,
        message.kind,
        message.topic,
        shown(message.body),
        message.sender,
        to_datetime(message.sent),
        None if message.received is None else to_datetime(message.received),
        None if message.answer is None else shown(message.answer),
        None if message.error is None else shown(message.error),
        None if message.answered is None else to_datetime(message.answered),
    )


def _published(spoken: PublishedValue) -> PublishedInfo:
    value = None if spoken.value is None else shown(spoken.value)
    return PublishedInfo(spoken.key, spoken.number, value, spoken.value is None, to_datetime(spoken.set_at))
