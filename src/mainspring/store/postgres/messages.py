"""Saying things on PostgreSQL, inside an open transaction that holds the rows of the runs concerned.

The row of a run is the lock under which everything for it and by it is numbered: so numbers are in the order of commits, and
whoever begins to wait for something either has done so before it is said, and is found by the statement that looks for
waiters, or gets the lock afterwards, and finds what was said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.store.messages import Entry, Post, Reply
from mainspring.store.postgres.wire import to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mainspring.store.messages import Heard, Say

POSTS = """
  INSERT INTO messages (run, number, kind, topic, body, key, sender, sent)
  SELECT p.run, coalesce((SELECT max(m.number) FROM messages m WHERE m.run = p.run), -1)
    + row_number() OVER (PARTITION BY p.run ORDER BY p.n), p.kind, p.topic, p.body::json, p.key, p.sender, p.sent
  FROM json_to_recordset(:says::json)
    AS p (n integer, run text, kind text, topic text, body text, key text, sender text, sent bigint)
  ON CONFLICT (run, key) WHERE key IS NOT NULL DO NOTHING RETURNING run
"""
ENTRIES = {
    table: f"""
  INSERT INTO {table} (run, key, number, value, said, position)
  SELECT p.run, p.key, coalesce((SELECT max(e.number) FROM {table} e WHERE e.run = p.run AND e.key = p.key), -1)
    + row_number() OVER (PARTITION BY p.run, p.key ORDER BY p.n), p.value::json, p.said, p.position
  FROM json_to_recordset(:says::json)
    AS p (n integer, run text, key text, value text, said bigint, position text)
  RETURNING run
"""
    for table in ("events", "streams")
}
REPLIES = """
  UPDATE messages m SET answer = p.answer::json, error = p.error::json, answered = p.answered,
    received = coalesce(m.received, p.answered)
  FROM json_to_recordset(:says::json) AS p (run text, number bigint, answer text, error text, answered bigint)
  WHERE m.run = p.run AND m.number = p.number AND m.answered IS NULL RETURNING m.run
"""
TAKES = """
  UPDATE messages m SET received = :now, position = p.position
  FROM json_to_recordset(:takes::json) AS p (run text, number bigint, position text)
  WHERE m.run = p.run AND m.number = p.number RETURNING m.run
"""
UNTAKE = """
  UPDATE messages SET received = NULL, position = NULL
  WHERE run = :run AND position = :position AND answered IS NULL RETURNING run
"""
LISTENERS = """
  SELECT DISTINCT s.run FROM json_to_recordset(:said::json) AS w (run text, kind text, name text)
  JOIN steps s ON s.child = w.run AND s.kind = w.kind AND s.name = w.name
  WHERE s.completed IS NULL
"""


def statements(says: Sequence[Say]) -> list[tuple[str, dict[str, Any]]]:
    """The statements that say all of this, with their parameters."""
    made: list[tuple[str, dict[str, Any]]] = []
    posts = [_post(number, say) for number, say in enumerate(says) if isinstance(say, Post)]
    if posts:
        made.append((POSTS, {"says": to_json(posts)}))
    for table, statement in ENTRIES.items():
        rows = [_entry(n, say) for n, say in enumerate(says) if isinstance(say, Entry) and say.table == table]
        if rows:
            made.append((statement, {"says": to_json(rows)}))
    replies = [_reply(say) for say in says if isinstance(say, Reply)]
    if replies:
        made.append((REPLIES, {"says": to_json(replies)}))
    return made


def destinations(says: Iterable[Say]) -> list[str]:
    """The runs that have to exist."""
    return list(dict.fromkeys(say.run for say in says if isinstance(say, Post)))


def listening(said: Iterable[Heard]) -> str:
    """What was said, as the parameter of `LISTENERS`."""
    return to_json([{"run": run, "kind": kind, "name": name} for run, kind, name in sorted(said)])


def _post(number: int, say: Post) -> dict[str, Any]:
    return {
        "n": number,
        "run": say.run,
        "kind": "question" if say.question else "message",
        "topic": say.topic,
        "body": say.body,
        "key": say.key,
        "sender": say.sender,
        "sent": say.sent,
    }


def _entry(number: int, say: Entry) -> dict[str, Any]:
    return {
        "n": number,
        "run": say.run,
        "key": say.key,
        "value": say.value,
        "said": say.said,
        "position": say.position,
    }


def _reply(say: Reply) -> dict[str, Any]:
    return {
        "run": say.run,
        "number": say.number,
        "answer": say.answer,
        "error": say.error,
        "answered": say.answered,
    }
