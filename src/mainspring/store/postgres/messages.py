"""Send messages on PostgreSQL, inside an open transaction that has locked the rows of the runs concerned.

The row of a run is the lock under which its messages and values are numbered, so numbers are in the order of commits. A run that begins to
wait for a message either has committed before the message is sent, and the query for waiters finds it, or gets the lock afterwards, and
finds the message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.store.messages import Entry, Post, Reply
from mainspring.store.postgres.libpq import to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mainspring.store.messages import Awaited, Outgoing, Table

CLEAN = "mainspring.clean"
"""A setting of the transaction: the numbers of the writes of a batch that are still valid.

By it, a statement of a round trip learns the results of earlier ones.
"""
_STANDS = f"IN (SELECT unnest(string_to_array(current_setting('{CLEAN}'), ',')::integer[]))"


def _posts(only: str = "") -> str:
    return f"""
  INSERT INTO messages (run, number, kind, topic, body, key, sender, sent)
  SELECT p.run, coalesce((SELECT max(m.number) FROM messages m WHERE m.run = p.run), -1)
    + row_number() OVER (PARTITION BY p.run ORDER BY p.n), p.kind, p.topic, p.body::json, p.key, p.sender, p.sent
  FROM json_to_recordset(:outgoing::json)
    AS p (op integer, n integer, run text, kind text, topic text, body text, key text, sender text, sent bigint) {only}
  ON CONFLICT DO NOTHING RETURNING run
"""


# Two messages cannot get one number, because the row of the run is locked; except if an old snapshot (REPEATABLE READ) hides the last one.
# ON CONFLICT makes that a serialization failure, instead of a violated constraint.


def _entries(table: str, only: str = "") -> str:
    return f"""
  INSERT INTO {table} (run, key, number, value, set_at, position)
  SELECT p.run, p.key, coalesce((SELECT max(e.number) FROM {table} e WHERE e.run = p.run AND e.key = p.key), -1)
    + row_number() OVER (PARTITION BY p.run, p.key ORDER BY p.n), p.value::json, p.set_at, p.position
  FROM json_to_recordset(:outgoing::json)
    AS p (op integer, n integer, run text, key text, value text, set_at bigint, position text) {only}
  ON CONFLICT DO NOTHING RETURNING run
"""


def _replies(only: str = "") -> str:
    return f"""
  UPDATE messages m SET answer = p.answer::json, error = p.error::json, answered = p.answered,
    received = coalesce(m.received, p.answered)
  FROM json_to_recordset(:outgoing::json)
    AS p (op integer, run text, number bigint, answer text, error text, answered bigint)
  WHERE m.run = p.run AND m.number = p.number AND m.answered IS NULL {only} RETURNING m.run
"""


_TABLES: tuple[Table, ...] = ("events", "streams")
_POSTS = {False: _posts(), True: _posts(f"WHERE p.op {_STANDS}")}
_ENTRIES = {table: {False: _entries(table), True: _entries(table, f"WHERE p.op {_STANDS}")} for table in _TABLES}
_REPLIES = {False: _replies(), True: _replies(f"AND p.op {_STANDS}")}
TAKES_OF_BATCH = f"""
  UPDATE messages m SET received = :now, position = p.position
  FROM json_to_recordset(:takes::json) AS p (op integer, run text, number bigint, position text)
  WHERE m.run = p.run AND m.number = p.number AND p.op {_STANDS} RETURNING m.run
"""
LISTENERS = """
  SELECT DISTINCT s.run FROM json_to_recordset(:published::json) AS w (run text, kind text, name text)
  JOIN steps s ON s.child = w.run AND s.kind = w.kind AND s.name = w.name
  WHERE s.completed IS NULL
"""


def statements(outgoing: Sequence[Outgoing], ops: Sequence[int] | None = None) -> list[tuple[str, dict[str, Any]]]:
    """The statements that send all of this, with their parameters. `ops` are the writes of a batch; only valid ones are applied."""
    numbered = list(zip(range(len(outgoing)), outgoing, ops or [0] * len(outgoing), strict=True))
    batch = ops is not None
    made: list[tuple[str, dict[str, Any]]] = []
    posts = [_post(number, each, op) for number, each, op in numbered if isinstance(each, Post)]
    if posts:
        made.append((_POSTS[batch], {"outgoing": to_json(posts)}))
    for table in _TABLES:
        rows = [_entry(n, each, op) for n, each, op in numbered if isinstance(each, Entry) and each.table == table]
        if rows:
            made.append((_ENTRIES[table][batch], {"outgoing": to_json(rows)}))
    replies = [_reply(each, op) for _, each, op in numbered if isinstance(each, Reply)]
    if replies:
        made.append((_REPLIES[batch], {"outgoing": to_json(replies)}))
    return made


def destinations(outgoing: Iterable[Outgoing]) -> list[str]:
    """The runs that must exist."""
    return list(dict.fromkeys(each.run for each in outgoing if isinstance(each, Post)))


def listening(published: Iterable[Awaited]) -> str:
    """Messages, as the parameter of `LISTENERS`."""
    return to_json([{"run": run, "kind": kind, "name": name} for run, kind, name in sorted(published)])


def _post(number: int, each: Post, op: int) -> dict[str, Any]:
    return {
        "op": op,
        "n": number,
        "run": each.run,
        "kind": "question" if each.question else "message",
        "topic": each.topic,
        "body": each.body,
        "key": each.key,
        "sender": each.sender,
        "sent": each.sent,
    }


def _entry(number: int, each: Entry, op: int) -> dict[str, Any]:
    return {
        "op": op,
        "n": number,
        "run": each.run,
        "key": each.key,
        "value": each.value,
        "set_at": each.set_at,
        "position": each.position,
    }


def _reply(each: Reply, op: int) -> dict[str, Any]:
    return {
        "op": op,
        "run": each.run,
        "number": each.number,
        "answer": each.answer,
        "error": each.error,
        "answered": each.answered,
    }
