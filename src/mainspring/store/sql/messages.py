"""Statements about the tables `messages`, `events` and `streams`."""

from __future__ import annotations

from mainspring.store.messages import Message, PublishedValue
from mainspring.store.sql.dialect import PerDatabase

MESSAGE_COLUMNS = Message.__struct_fields__
PUBLISHED_COLUMNS = PublishedValue.__struct_fields__
POSTED = "run, number, kind, topic, body, key, sender, sent"
"""The columns of a new message."""
PUBLISHED = ", ".join(PUBLISHED_COLUMNS)
TABLES_OF_VALUES = ("events", "streams")

_MESSAGE = f"SELECT {', '.join(MESSAGE_COLUMNS)} FROM messages"
NEXT_MESSAGES = f"""
  {_MESSAGE} WHERE run = :run AND kind = :kind AND topic = :topic AND received IS NULL ORDER BY number LIMIT :limit
"""
MESSAGE_BY_KEY = f"{_MESSAGE} WHERE run = :run AND key = :key"
LIST_MESSAGES = f"""
  {_MESSAGE} WHERE run = :run AND (received IS NULL OR position IS NOT NULL OR answered IS NOT NULL) ORDER BY number
"""
LAST_EVENT = f"SELECT {PUBLISHED} FROM events WHERE run = :run AND key = :key ORDER BY number DESC LIMIT 1"
LAST_EVENTS = f"""
  SELECT {PUBLISHED} FROM events
  WHERE run = :run AND number = (SELECT max(e.number) FROM events e WHERE e.run = events.run AND e.key = events.key)
  ORDER BY key
"""
STREAM = f"""
  SELECT {PUBLISHED} FROM streams
  WHERE run = :run AND key = :key AND number >= :offset ORDER BY number LIMIT :limit
"""
STREAMS = f"SELECT {PUBLISHED} FROM streams WHERE run = :run ORDER BY key, number LIMIT :limit"
RUN_STATE = "SELECT state FROM runs WHERE id = :run"

# Numbers are assigned under the lock of the run's row, so they are in the order of commits. If an old snapshot (REPEATABLE READ) hides the
# last number, ON CONFLICT makes it a serialization failure instead of a violated constraint.
POST = f"""
  INSERT INTO messages ({POSTED})
  SELECT :run::text, coalesce((SELECT max(number) + 1 FROM messages WHERE run = :run), 0), :kind::text, :topic::text, :body::json,
    :key::text, :sender::text, :sent::bigint
  WHERE true ON CONFLICT DO NOTHING
"""
PUBLISH = {
    table: f"""
  INSERT INTO {table} ({PUBLISHED})
  SELECT :run::text, :key::text, coalesce((SELECT max(number) + 1 FROM {table} WHERE run = :run AND key = :key), 0), :value::json,
    :set_at::bigint, :position::text
  WHERE true ON CONFLICT DO NOTHING
"""
    for table in TABLES_OF_VALUES
}


def reply(source: str) -> str:
    """The SET clause for a question `m` that is answered. `source` is ":" for parameters, or a row and a dot."""
    return f"""answer = {source}answer::json, error = {source}error::json, answered = {source}answered::bigint,
    received = coalesce(m.received, {source}answered::bigint)"""


REPLY = f"UPDATE messages AS m SET {reply(':')} WHERE run = :run AND number = :number AND answered IS NULL"
RECEIVE = "UPDATE messages SET received = :now, position = :position WHERE run = :run AND number = :number"
RETURNED = "received = NULL, position = NULL"
"""The SET clause for a message that the run has not received after all."""
RETURN_MESSAGE = f"UPDATE messages SET {RETURNED} WHERE run = :run AND position = :position AND answered IS NULL"
"""Returns the message of a discarded operation to the run, for the next receive."""
SUBSCRIBERS = PerDatabase(  # a list of triples is JSON, which each database reads in its own way
    postgres="""
  SELECT DISTINCT s.run FROM json_array_elements(:published::json) w
  JOIN steps s ON s.child = w ->> 0 AND s.kind = w ->> 1 AND s.name = w ->> 2
  WHERE s.completed IS NULL
""",
    sqlite="""
  SELECT DISTINCT s.run FROM json_each(:published) w JOIN steps s ON s.child = json_extract(w.value, '$[0]')
  WHERE s.completed IS NULL AND s.kind = json_extract(w.value, '$[1]') AND s.name = json_extract(w.value, '$[2]')
""",
)
"""Runs that wait for a message, event or stream: (run, kind of wait, topic or key)."""


def arrived(run: str) -> str:
    """A condition: the message or value that the run waits for has been written. `run` is the name of its row in the statement.

    A worker may be notified, and die or release the run before it has read the message. So every statement that takes a run from its owner
    must check this condition. A wait for a value of a stream has its offset in the column of the outcome.
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
