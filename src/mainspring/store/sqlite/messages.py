"""Saying things on SQLite, inside the transaction of a batch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec import structs

from mainspring.store.messages import Entry, Post, Reply

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from mainspring.store.messages import Heard, Say

_KNOWN = "SELECT id FROM runs WHERE id IN (SELECT value FROM json_each(?))"
_POST = """
  INSERT INTO messages (run, number, kind, topic, body, key, sender, sent)
  SELECT :run, coalesce((SELECT max(number) + 1 FROM messages WHERE run = :run), 0), :kind, :topic, :body, :key, :sender, :sent
  WHERE true ON CONFLICT (run, key) WHERE key IS NOT NULL DO NOTHING
"""
_ENTRY = {
    table: f"""
  INSERT INTO {table} (run, key, number, value, said, position)
  SELECT :run, :key, coalesce((SELECT max(number) + 1 FROM {table} WHERE run = :run AND key = :key), 0),
    :value, :said, :position
"""
    for table in ("events", "streams")
}
_REPLY = """
  UPDATE messages SET answer = :answer, error = :error, answered = :answered, received = coalesce(received, :answered)
  WHERE run = :run AND number = :number AND answered IS NULL
"""
_TAKE = "UPDATE messages SET received = ?, position = ? WHERE run = ? AND number = ?"
_UNTAKE = "UPDATE messages SET received = NULL, position = NULL WHERE run = ? AND position = ? AND answered IS NULL"
_LISTENERS = """
  SELECT DISTINCT s.run FROM json_each(:said) w JOIN steps s ON s.child = json_extract(w.value, '$[0]')
  WHERE s.completed IS NULL AND s.kind = json_extract(w.value, '$[1]') AND s.name = json_extract(w.value, '$[2]')
"""


def unknown(db: sqlite3.Connection, says: Sequence[Say]) -> list[str]:
    """The runs among those that are told something which do not exist."""
    wanted = dict.fromkeys(say.run for say in says if isinstance(say, Post))
    if not wanted:
        return []
    there = {row[0] for row in db.execute(_KNOWN, (json.dumps(list(wanted)),))}
    return [run for run in wanted if run not in there]


def statement(what: Say) -> tuple[str, dict[str, Any]]:
    """The statement that says this, with its parameters."""
    values = structs.asdict(what)
    match what:
        case Post():
            return _POST, {**values, "kind": "question" if what.question else "message"}
        case Entry():
            return _ENTRY[what.table], values
        case Reply():
            return _REPLY, values


def say(db: sqlite3.Connection, what: Say) -> None:
    db.execute(*statement(what))


def take(db: sqlite3.Connection, run: str, number: int, position: str, now: int) -> None:
    """The run receives a message, by the operation at this position."""
    db.execute(_TAKE, (now, position, run, number))


def untake(db: sqlite3.Connection, run: str, position: str) -> None:
    """The operation at this position was cancelled by the workflow's own code: its message is for the next one."""
    db.execute(_UNTAKE, (run, position))


def listeners(db: sqlite3.Connection, said: Iterable[Heard]) -> list[str]:
    """The runs that wait for what was said."""
    return [row[0] for row in db.execute(*listening(said))]


def listening(said: Iterable[Heard]) -> tuple[str, dict[str, Any]]:
    """The statement that finds them."""
    return _LISTENERS, {"said": json.dumps(sorted(said))}
