"""Send and receive messages in bulk: a few statements in one round trip and one transaction, for any number of runs.

The rows of all runs concerned are locked first. The row of a run is the lock under which its messages and values are numbered, so numbers
are in the order of commits. A run that begins to wait for a message either has committed before the message is sent, and the query for
waiters finds it, or gets the lock afterwards, and finds the message. So later statements must see what was committed before the locks were
granted.

A setting of the transaction, `CLEAN`, hands the numbers of the writes that are still valid from one statement to the next. A write is valid
if all its runs were free, and its owner still owns its run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from mainspring.store.changes import READY, SOME_PUBLISHED
from mainspring.store.messages import Entry, Post, Reply, awaited_by, is_public
from mainspring.store.postgres.bulk_statements import MOVE, STEP, STEP_WRITE, WOKEN, notify_woken, rows, values, woken
from mainspring.store.postgres.libpq import array, to_json
from mainspring.store.sql.conditions import ENDED
from mainspring.store.sql.messages import POSTED, PUBLISHED, TABLES_OF_VALUES, reply
from mainspring.store.sql.records import RECORDED_COLUMNS, step_values, to_ending
from mainspring.store.sql.steps import ON_STEP
from mainspring.store.verbs.messages import recipients
from mainspring.store.writes import RecordAndSend, Recorded, Send

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from mainspring.store.changes import Changes
    from mainspring.store.messages import Outgoing
    from mainspring.store.postgres.libpq import Row, Value
    from mainspring.store.writes import RecordStep, Result

    Part = tuple[str, dict[str, Value], Callable[[list[Row]], None]]

CLEAN = "mainspring.clean"
"""A setting of the transaction: the numbers of the writes of a batch that are still valid, by which a statement learns of earlier ones."""
_IS_CLEAN = f"IN (SELECT unnest(string_to_array(current_setting('{CLEAN}'), ',')::integer[]))"
_CONCERNED = {"n": "integer", "run": "text", "owner": "text", "epoch": "bigint", "needs": "text[]"}
_HOLD = f"""
  WITH asked AS MATERIALIZED ({rows(_CONCERNED)}),
  held AS MATERIALIZED (
    SELECT id, owner, epoch, state, reason, output, error FROM runs
    WHERE id = ANY(ARRAY(SELECT unnest(needs) FROM asked)) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED),
  clean AS MATERIALIZED (
    SELECT n FROM asked a
    WHERE NOT EXISTS (SELECT 1 FROM unnest(a.needs) AS u (id) WHERE (u.id IN (SELECT id FROM held)) IS NOT TRUE)
      AND (a.owner IS NULL
        OR ((a.run, a.owner, a.epoch) IN (
          SELECT id, owner, epoch FROM held WHERE state IN ('running', 'waiting'))) IS TRUE))
  SELECT set_config('{CLEAN}', coalesce(string_agg(n::text, ','), ''), true),
    NULL AS id, NULL AS state, NULL AS reason, NULL AS output, NULL AS error FROM clean
  UNION ALL SELECT NULL, id, state, reason, output::text, error::text FROM held
    WHERE id = ANY(:watched) OR state = 'queued'
"""
_WRITE = f"""
  WITH clean AS MATERIALIZED (
    SELECT unnest(string_to_array(current_setting('{CLEAN}'), ',')::integer[]) AS n),
  asked AS MATERIALIZED ({rows(STEP_WRITE)}),
  mine AS MATERIALIZED (SELECT * FROM asked WHERE n IN (SELECT n FROM clean)),
  written AS (
    INSERT INTO steps ({STEP}) SELECT {values(RECORDED_COLUMNS, "mine")} FROM mine {ON_STEP} RETURNING run, position),
  done AS MATERIALIZED (
    SELECT n, run, position, due, run_state, wake, watch FROM mine WHERE ((run, position) IN (SELECT run, position FROM written)) IS TRUE),
  moved AS ({MOVE}
      AND NOT EXISTS (SELECT 1 FROM runs w WHERE w.id = d.watch AND w.state IN {ENDED}))
  SELECT set_config('{CLEAN}', coalesce(string_agg(n::text, ','), ''), true) FROM clean
  WHERE n IN (SELECT n FROM done) OR (n IN (SELECT n FROM asked)) IS NOT TRUE
"""
_RECEIVE = f"""
  UPDATE messages m SET received = :now, position = p.position
  FROM json_to_recordset(:takes::json) AS p (op integer, run text, number bigint, position text)
  WHERE m.run = p.run AND m.number = p.number AND p.op {_IS_CLEAN} RETURNING m.run
"""
# The numbers and ON CONFLICT: as in `sql/messages.py`.
_POST = f"""
  INSERT INTO messages ({POSTED})
  SELECT p.run, coalesce((SELECT max(m.number) FROM messages m WHERE m.run = p.run), -1)
    + row_number() OVER (PARTITION BY p.run ORDER BY p.n), p.kind, p.topic, p.body::json, p.key, p.sender, p.sent
  FROM json_to_recordset(:outgoing::json)
    AS p (op integer, n integer, run text, kind text, topic text, body text, key text, sender text, sent bigint)
  WHERE p.op {_IS_CLEAN}
  ON CONFLICT DO NOTHING RETURNING run
"""
_PUBLISH = {
    table: f"""
  INSERT INTO {table} ({PUBLISHED})
  SELECT p.run, p.key, coalesce((SELECT max(e.number) FROM {table} e WHERE e.run = p.run AND e.key = p.key), -1)
    + row_number() OVER (PARTITION BY p.run, p.key ORDER BY p.n), p.value::json, p.set_at, p.position
  FROM json_to_recordset(:outgoing::json)
    AS p (op integer, n integer, run text, key text, value text, set_at bigint, position text)
  WHERE p.op {_IS_CLEAN}
  ON CONFLICT DO NOTHING RETURNING run
"""
    for table in TABLES_OF_VALUES
}
_REPLY = f"""
  UPDATE messages m SET {reply("p.")}
  FROM json_to_recordset(:outgoing::json)
    AS p (op integer, run text, number bigint, answer text, error text, answered bigint)
  WHERE m.run = p.run AND m.number = p.number AND m.answered IS NULL AND p.op {_IS_CLEAN} RETURNING m.run
"""
_WAKE = f"""
  WITH published AS MATERIALIZED ({rows({"op": "integer", "run": "text", "kind": "text", "name": "text"}, "published")}),
  clean AS MATERIALIZED (
    SELECT unnest(string_to_array(current_setting('{CLEAN}'), ',')::integer[]) AS n),
  waiting AS MATERIALIZED (
    SELECT id, owner, state FROM set_config('lock_timeout', :patience, true) CROSS JOIN runs
    WHERE id = ANY(ARRAY(
      SELECT s.run FROM published w JOIN steps s ON s.child = w.run AND s.kind = w.kind AND s.name = w.name
      WHERE s.completed IS NULL AND w.op IN (SELECT n FROM clean)))
    ORDER BY id FOR NO KEY UPDATE OF runs),
  {WOKEN},
  passed AS (SELECT CASE WHEN EXISTS (
    SELECT 1 FROM runs WHERE id = ANY(ARRAY(SELECT run FROM published)) AND state = 'queued') THEN ' {READY}' ELSE '' END AS token)
  SELECT tokens, CASE WHEN :aloud::boolean OR tokens || token <> '' THEN {notify_woken("token || tokens")} END
  FROM to_notify CROSS JOIN passed
"""
"""Wakes the runs that wait for these messages. A claim skips ready runs while they are locked, so workers are notified to claim again."""


class BulkMessages:
    """Writes of one batch that send or receive messages. Those that were applied are added to the `answers`, by `id(op)`."""

    def __init__(
        self,
        ops: Sequence[RecordAndSend | Send],
        here: Collection[str],
        now: int,
        changes: Changes,
        answers: dict[int, Result | Exception],
    ) -> None:
        self._ops = [op for op in ops if isinstance(op, Send) or not op.starts]
        self._here = here
        self._now = now
        self._changes = changes
        self._answers = answers
        self._outgoing: list[Outgoing] = [each for op in self._ops for each in op.outgoing]
        self._senders = [number for number, op in enumerate(self._ops) for _ in op.outgoing]
        self._notifies_all = any(is_public(awaited_by(each)) for each in self._outgoing)
        self._endings: dict[str | None, Row] = {}

    @property
    def payload(self) -> str:
        """The notification that other processes get in any case."""
        return SOME_PUBLISHED if self._notifies_all else ""

    def parts(self) -> Iterator[Part]:
        """The statements, in their order."""
        if not self._ops:
            return
        records = [(number, op) for number, op in enumerate(self._ops) if isinstance(op, RecordAndSend)]
        asked = to_json([_concerned(number, op) for number, op in enumerate(self._ops)])
        watched = array({op.watch for _, op in records if op.watch is not None})
        yield _HOLD, {"ops": asked, "watched": watched}, self._held
        if records:
            yield _WRITE, {"ops": to_json([write_row(number, op) for number, op in records])}, self._stand
        takes = [
            {"op": number, "run": op.step.run, "number": op.takes, "position": op.step.position}
            for number, op in records
            if op.takes is not None
        ]
        if takes:
            yield _RECEIVE, {"takes": to_json(takes), "now": self._now}, _ignore
        sent: dict[str, list[dict[str, Any]]] = {}
        for number, (op, each) in enumerate(zip(self._senders, self._outgoing, strict=True)):
            sent.setdefault(_sending(each), []).append(_sent(number, op, each))
        for statement in (_POST, *_PUBLISH.values(), _REPLY):
            if statement in sent:
                yield statement, {"outgoing": to_json(sent[statement])}, _ignore
        if self._outgoing:
            published = {
                (number, *awaited_by(each)) for number, each in zip(self._senders, self._outgoing, strict=True)
            }
            listed = [{"op": op, "run": run, "kind": kind, "name": name} for op, run, kind, name in sorted(published)]
            wake: dict[str, Value] = {
                "published": to_json(listed),
                # A worker of this store is notified in memory, with the messages, before a notification could arrive.
                "informed": array(self._here),
                "now": self._now,
                "aloud": "true" if self._notifies_all else "false",
            }
            yield _WAKE, wake, self._woken

    def _held(self, found: list[Row]) -> None:
        self._endings = {row[1]: row for row in found if row[1] is not None}
        self._changes.ready = self._changes.ready or any(row[2] == "queued" for row in found)
        self._stand([row for row in found if row[0] is not None])

    def _stand(self, found: list[Row]) -> None:
        """Note the writes that are still valid. All statements are sent before any is answered, so the last answer counts."""
        standing = {int(number) for number in (found[0][0] or "").split(",") if number}
        for number, op in enumerate(self._ops):
            if number not in standing:
                self._answers.pop(id(op), None)
            elif id(op) not in self._answers:
                self._answers[id(op)] = self._written(op)

    def _written(self, op: RecordAndSend | Send) -> Recorded:
        watched = watched_by(op) if isinstance(op, RecordAndSend) else None
        if watched is None:
            return Recorded()
        row = self._endings[watched]
        return Recorded(ending=to_ending(row[1:]))

    def _woken(self, found: list[Row]) -> None:
        tokens = (found[0][0] or "").split()
        woken(self._changes, tokens)
        for op in self._ops:
            if id(op) in self._answers:
                self._changes.published |= {awaited_by(each) for each in op.outgoing}


def _ignore(_: list[Row]) -> None:
    """Ignore the rows: the previous statement says whether the write was applied."""


def _sending(each: Outgoing) -> str:
    """The statement that stores a message or value."""
    match each:
        case Post():
            return _POST
        case Entry():
            return _PUBLISH[each.table]
        case Reply():
            return _REPLY


def _sent(number: int, op: int, each: Outgoing) -> dict[str, Any]:
    """A message or value as a row of the parameter of its statement. `op` is the number of the write that sends it."""
    row = {"op": op, "n": number, **asdict(each)}
    if isinstance(each, Post):
        row["kind"] = "question" if each.question else "message"
    return row


def _concerned(number: int, op: RecordAndSend | Send) -> dict[str, Any]:
    """The runs that a write needs, and its fence."""
    if isinstance(op, Send):
        needs = {op.run, *(each.run for each in op.outgoing)}
        return {"n": number, "run": op.run, "owner": op.owner, "epoch": op.epoch, "needs": sorted(needs)}
    needs = {op.step.run, *recipients(op.outgoing), *([] if op.watch is None else [op.watch])}
    return {"n": number, "run": op.step.run, "owner": op.owner, "epoch": op.step.epoch, "needs": sorted(needs)}


def write_row(number: int, op: RecordStep) -> dict[str, Any]:
    row = dict(zip(RECORDED_COLUMNS, step_values(op.step), strict=True))
    row["n"] = number
    row["owner"] = op.owner
    row["run_state"] = op.run_state
    row["wake"] = op.due
    row["watch"] = watched_by(op)
    return row


def watched_by(op: RecordStep) -> str | None:
    """The run that a write watches. A run that this write starts cannot have ended, and no other worker knows of it yet."""
    return None if op.watch is None or op.watch in [run.id for run in op.starts] else op.watch
