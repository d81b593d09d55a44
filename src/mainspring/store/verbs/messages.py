"""Read messages, events and streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.model.states import State
from mainspring.store.messages import Message, PublishedValue, Reading
from mainspring.store.sql.messages import (
    LAST_EVENT,
    LAST_EVENTS,
    LIST_MESSAGES,
    MESSAGE_BY_KEY,
    NEXT_MESSAGES,
    RUN_STATE,
    STREAM,
    STREAMS,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from mainspring.store.transaction import Read


class SqlMessages:
    """The verbs about messages, as `mainspring.store.messages.Messages` specifies them."""

    def __init__(self, read: Read) -> None:
        self._read = read

    def next(self, run: str, topic: str, *, question: bool, skip: Collection[int]) -> Message | None:
        kind = "question" if question else "message"
        rows = self._read(NEXT_MESSAGES, run=run, kind=kind, topic=topic, limit=len(skip) + 1)
        return next((message for row in rows if (message := Message(*row)).number not in skip), None)

    def asked(self, run: str, key: str) -> tuple[Message | None, State | None]:
        state = self._state(
            run
        )  # read first: a run that answers and then ends must not be seen as ended without an answer
        found = self._read(MESSAGE_BY_KEY, run=run, key=key)
        return Message(*found[0]) if found else None, state

    def event(self, run: str, key: str) -> Reading:
        state = self._state(run)
        return Reading([PublishedValue(*row) for row in self._read(LAST_EVENT, run=run, key=key)], state)

    def events(self, run: str) -> Reading:
        state = self._state(run)
        return Reading([PublishedValue(*row) for row in self._read(LAST_EVENTS, run=run)], state)

    def stream(self, run: str, key: str, offset: int, limit: int) -> Reading:
        state = self._state(run)
        found = self._read(STREAM, run=run, key=key, offset=offset, limit=limit)
        return Reading([PublishedValue(*row) for row in found], state)

    def streams(self, run: str, limit: int) -> list[PublishedValue]:
        return [PublishedValue(*row) for row in self._read(STREAMS, run=run, limit=limit)]

    def received(self, run: str) -> list[Message]:
        return [Message(*row) for row in self._read(LIST_MESSAGES, run=run)]

    def _state(self, run: str) -> State | None:
        found = self._read(RUN_STATE, run=run)
        return State(found[0][0]) if found else None
