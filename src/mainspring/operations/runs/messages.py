"""The messages, events and streams of a run, for display."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003  (pages are described by their annotations)
from typing import TYPE_CHECKING, Any

from mainspring.operations.records import shown

if TYPE_CHECKING:
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
        [shown(MessageInfo, each) for each in messages.received(run)[:MOST_SHOWN]],
        [shown(PublishedInfo, each, closed=False) for each in messages.events(run).entries[:MOST_SHOWN]],
        [shown(PublishedInfo, each, closed=each.value is None) for each in messages.streams(run, MOST_SHOWN)],
    )
