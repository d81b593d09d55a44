"""Reading messages, events and streams: the same statements in every store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from mainspring.model.states import State
from mainspring.store.messages import Message, Reading, Spoken

if TYPE_CHECKING:
    from collections.abc import Collection

MESSAGE_COLUMNS = Message.__struct_fields__
SPOKEN_COLUMNS = Spoken.__struct_fields__

_MESSAGE = f"SELECT {', '.join(MESSAGE_COLUMNS)} FROM messages"
_NEXT = f"""
  {_MESSAGE} WHERE run = :run AND kind = :kind AND topic = :topic AND received IS NULL ORDER BY number LIMIT :limit
"""
_ASKED = f"{_MESSAGE} WHERE run = :run AND key = :key"
_RECEIVED = f"""
  {_MESSAGE} WHERE run = :run AND (received IS NULL OR position IS NOT NULL OR answered IS NOT NULL) ORDER BY number
"""
_EVENT = f"SELECT {', '.join(SPOKEN_COLUMNS)} FROM events WHERE run = :run AND key = :key ORDER BY number DESC LIMIT 1"
_EVENTS = f"""
  SELECT {", ".join(SPOKEN_COLUMNS)} FROM events
  WHERE run = :run AND number = (SELECT max(e.number) FROM events e WHERE e.run = events.run AND e.key = events.key)
  ORDER BY key
"""
_STREAM = f"""
  SELECT {", ".join(SPOKEN_COLUMNS)} FROM streams
  WHERE run = :run AND key = :key AND number >= :offset ORDER BY number LIMIT :limit
"""
_STREAMS = f"SELECT {', '.join(SPOKEN_COLUMNS)} FROM streams WHERE run = :run ORDER BY key, number LIMIT :limit"
_STATE = "SELECT state FROM runs WHERE id = :run"


def heard(run: str) -> str:
    """A condition: what the run waits for has been said. `run` is what its row is called in the statement.

    Whoever is woken by what is said looks for it. A worker that is told, and dies or lets go before it has looked, leaves nothing
    behind that says so; whoever takes the run from its hand has to ask. A wait for a value of a stream has its offset where the
    outcome will be.
    """
    return f"""EXISTS (
    SELECT 1 FROM steps w WHERE w.run = {run}.id AND w.completed IS NULL AND CASE w.kind
      WHEN 'receive' THEN EXISTS (SELECT 1 FROM messages m
        WHERE m.run = w.run AND m.kind = 'message' AND m.topic = w.name AND m.received IS NULL)
      WHEN 'question' THEN EXISTS (SELECT 1 FROM messages m
        WHERE m.run = w.run AND m.kind = 'question' AND m.topic = w.name AND m.received IS NULL)
      WHEN 'answer' THEN EXISTS (SELECT 1 FROM messages m
        WHERE m.run = w.child AND m.key = {run}.uid || '-' || w.position AND m.answered IS NOT NULL)
      WHEN 'event' THEN EXISTS (SELECT 1 FROM events e WHERE e.run = w.child AND e.key = w.name)
      WHEN 'stream' THEN EXISTS (SELECT 1 FROM streams e
        WHERE e.run = w.child AND e.key = w.name AND e.number >= coalesce(CAST(CAST(w.output AS text) AS bigint), 0))
      ELSE false END)"""


class Rows(Protocol):
    """Reads with one statement."""

    def __call__(self, statement: str, **values: Any) -> list[tuple[Any, ...]]: ...


class SqlMessages:
    """See `mainspring.store.messages.Messages` for what each verb promises."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def next(self, run: str, topic: str, *, question: bool, skip: Collection[int]) -> Message | None:
        kind = "question" if question else "message"
        rows = self._rows(_NEXT, run=run, kind=kind, topic=topic, limit=len(skip) + 1)
        return next((message for row in rows if (message := Message(*row)).number not in skip), None)

    def asked(self, run: str, key: str) -> tuple[Message | None, State | None]:
        state = self._state(run)  # first: a run that answers and then ends must not be seen as ended without an answer
        found = self._rows(_ASKED, run=run, key=key)
        return Message(*found[0]) if found else None, state

    def event(self, run: str, key: str) -> Reading:
        state = self._state(run)
        return Reading([Spoken(*row) for row in self._rows(_EVENT, run=run, key=key)], state)

    def events(self, run: str) -> Reading:
        state = self._state(run)
        return Reading([Spoken(*row) for row in self._rows(_EVENTS, run=run)], state)

    def stream(self, run: str, key: str, offset: int, limit: int) -> Reading:
        state = self._state(run)
        found = self._rows(_STREAM, run=run, key=key, offset=offset, limit=limit)
        return Reading([Spoken(*row) for row in found], state)

    def streams(self, run: str, limit: int) -> list[Spoken]:
        return [Spoken(*row) for row in self._rows(_STREAMS, run=run, limit=limit)]

    def received(self, run: str) -> list[Message]:
        return [Message(*row) for row in self._rows(_RECEIVED, run=run)]

    def _state(self, run: str) -> State | None:
        found = self._rows(_STATE, run=run)
        return State(found[0][0]) if found else None
