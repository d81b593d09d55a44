"""Checks for rows that should not be in a database: rows that no worker will continue, orphans, and rows that cannot be decoded.

The same queries in every store. They change nothing. The cheap ones use indexes; the thorough ones read whole tables.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from mainspring.model.queues import Limits
from mainspring.model.states import ENDED, LIVE
from mainspring.store.bad_rows import FAULTS, describe
from mainspring.store.sql.conditions import LATER, has_wait, next_wake, wait_is_over
from mainspring.store.sql.dialect import Where
from mainspring.store.sql.retention import TABLES_OF_RUN
from mainspring.store.sql.runs import newest
from mainspring.store.sql.schedules import AHEAD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Rows = Callable[..., Sequence[Sequence[Any]]]

ALTERED = (
    "something else has changed it: restore a backup, or change it back; `mainspring db sql` prints how it should be"
)
"""What helps against a table that differs from those of the migrations."""
MOST = 10
"""The most rows that one finding names."""
RECENT = 20_000
"""The most ended runs that are checked, latest first."""


class Defect(Struct, frozen=True):
    """A finding: what is odd, in which rows, and what to do about it. `wrong` is False if it does no harm."""

    what: str
    which: str
    hint: str
    wrong: bool = True


class Question(Struct, frozen=True):
    """A query whose rows begin with the id of an odd row. The description may use the columns by number."""

    what: str
    text: str
    which: str
    hint: str
    wrong: bool = True


_ended = ", ".join(f"'{state}'" for state in sorted(ENDED))
_live = ", ".join(f"'{state}'" for state in sorted(LIVE))
_UNOWNED = f"{LATER} AND state = 'waiting'"
_WAKE = "wake it, so that it looks for itself: UPDATE runs SET due = 0 WHERE id = '{0}'; or: mainspring runs cancel {0}"
_LATEST = f"""
    SELECT id, workflow, kind, state, reason FROM runs WHERE id IN ({newest(Where(), Where(), str(RECENT))})
    ORDER BY uid DESC LIMIT {RECENT}"""

CHEAP = [
    Question(
        "stuck",
        f"""SELECT r.id, r.workflow FROM runs r WHERE {_UNOWNED} AND r.due IS NULL AND NOT {has_wait("r")} LIMIT :most""",
        "run {0} of {1} is waiting, and has nothing that it waits for",
        _WAKE,
    ),
    Question(
        "stuck",
        f"""
  SELECT r.id, r.workflow FROM runs r WHERE {_UNOWNED}
    AND coalesce(r.due > {next_wake("r")}, {next_wake("r")} IS NOT NULL) LIMIT :most""",
        "run {0} of {1} is waiting for a time, and is not due then but later or never",
        _WAKE,
    ),
    Question(
        "stuck",
        f"""
  SELECT r.id, r.workflow, s.child FROM runs r JOIN steps s ON s.run = r.id AND s.completed IS NULL AND s.child IS NOT NULL
  WHERE {_UNOWNED} AND NOT EXISTS (SELECT 1 FROM runs c WHERE c.id = s.child) LIMIT :most""",
        "run {0} of {1} is waiting for run {2}, which is not there",
        _WAKE,
    ),
    Question(
        "stuck",
        f"SELECT r.id, r.workflow FROM runs r WHERE {_UNOWNED} AND {wait_is_over('r')} LIMIT :most",
        "run {0} of {1} is waiting for something that has happened",
        _WAKE,
    ),
    Question(
        "stuck",
        f"""
  SELECT r.id, r.workflow FROM runs r WHERE {LATER} AND state = 'scheduled' AND due IS NULL
    AND NOT EXISTS (SELECT 1 FROM ticks t WHERE t.schedule = r.schedule AND t.outcome IN ('pending', 'buffered') AND t.run = r.id)
  LIMIT :most""",
        "run {0} of {1} is scheduled at no time, and no tick of a schedule waits to start it",
        "start it: UPDATE runs SET due = 0 WHERE id = '{0}'; or: mainspring runs cancel {0}",
    ),
    Question(
        "ahead of time",
        f"SELECT id FROM schedules WHERE cursor > :now + {AHEAD} LIMIT :most",
        "schedule {0} has acted on times that are yet to come: a clock was ahead",
        "a worker that starts sets it back to the present",
        wrong=False,
    ),
    Question(
        "leftover",
        "SELECT DISTINCT queue FROM queue_starts s WHERE NOT EXISTS (SELECT 1 FROM queues q WHERE q.name = s.queue) LIMIT :most",
        "table queue_starts has starts of the queue {0}, which is not there",
        "DELETE FROM queue_starts WHERE queue = '{0}'",
        wrong=False,
    ),
    Question(
        "leftover",
        "SELECT DISTINCT queue FROM queue_partitions s WHERE NOT EXISTS (SELECT 1 FROM queues q WHERE q.name = s.queue) LIMIT :most",
        "table queue_partitions has limits for the queue {0}, which is not there",
        "DELETE FROM queue_partitions WHERE queue = '{0}'",
        wrong=False,
    ),
    Question(
        "leftover",
        """
  SELECT id, schedule FROM backfills b WHERE completed IS NULL AND NOT EXISTS (SELECT 1 FROM schedules s WHERE s.id = b.schedule)
  LIMIT :most""",
        "backfill {0} is of the schedule {1}, which is not there",
        "DELETE FROM backfills WHERE id = '{0}'",
        wrong=False,
    ),
]
THOROUGH = [
    Question(
        "stuck",
        "SELECT id, workflow, state FROM runs WHERE owner IS NULL AND state IN ('running', 'cancelling') LIMIT :most",
        "run {0} of {1} is {2}, and no worker owns it",
        "have it claimed again: UPDATE runs SET state = 'queued', due = 0 WHERE id = '{0}'",
    ),
    Question(
        "unreadable",
        f"SELECT id, state FROM runs WHERE state NOT IN ({_live}, {_ended}) LIMIT :most",
        "table runs, row {0}: there is no state '{1}'",
        "UPDATE runs SET state = 'queued', owner = NULL WHERE id = '{0}', or delete the row",
    ),
    Question(
        "unfinished record",
        f"""
  SELECT r.id, r.workflow, s.position, s.name FROM ({_LATEST}) r JOIN steps s ON s.run = r.id AND s.completed IS NULL
  WHERE r.state = 'succeeded' AND r.reason IS NULL AND s.kind IN ('step', 'transaction') AND s.due IS NULL
  LIMIT :most""",  # reason: an operator ended it; due: given up between two attempts
        "run {0} of {1} has succeeded, and its step {3} at position {2} has no outcome",
        "whether that step was executed is not known: look at what it does",
    ),
    Question(
        "lost record",
        f"""
  SELECT r.id, r.workflow FROM ({_LATEST}) r
  WHERE r.state = 'succeeded' AND r.kind = 'transaction' AND r.reason IS NULL
    AND NOT EXISTS (SELECT 1 FROM steps s WHERE s.run = r.id) LIMIT :most""",  # jobs of batch steps have no other row; reason: an operator ended it
        "run {0} of {1} has succeeded, and has no record of its transaction",
        "a fork of this run would execute the transaction again: leave it as it is",
    ),
    Question(
        "incomplete end",
        f"SELECT id, workflow, state FROM runs WHERE state IN ({_ended}) AND completed IS NULL LIMIT :most",
        "run {0} of {1} is {2}, and has no time of its end",
        "UPDATE runs SET completed = created WHERE id = '{0}'",
    ),
    *(
        Question(
            "leftover",
            f"SELECT DISTINCT run FROM {table} t WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = t.run) LIMIT :most",
            f"table {table} has rows of run {{0}}, which is not there",
            f"DELETE FROM {table} WHERE run = '{{0}}'",
            wrong=False,
        )
        for table in TABLES_OF_RUN
    ),
    Question(
        "leftover",
        "SELECT DISTINCT schedule FROM ticks t WHERE NOT EXISTS (SELECT 1 FROM schedules s WHERE s.id = t.schedule) LIMIT :most",
        "table ticks has times of the schedule {0}, which is not there",
        "DELETE FROM ticks WHERE schedule = '{0}'",
        wrong=False,
    ),
]


def ask(rows: Rows, questions: Sequence[Question], now: int, errors: tuple[type[Exception], ...]) -> Iterator[Defect]:
    """Run the queries. One that the database cannot answer is a finding as well."""
    for question in questions:
        try:
            found = rows(question.text, now=now, most=MOST + 1)
        except errors as error:
            yield Defect(question.what, f"cannot be looked for: {describe(error)}", "see what else is wrong first")
            continue
        for row in found[:MOST]:
            yield Defect(question.what, question.which.format(*row), question.hint.format(*row), question.wrong)
        if len(found) > MOST:
            yield Defect(question.what, f"and more like {found[0][0]}", question.hint.format(*found[0]), question.wrong)


def unreadable(rows: Rows, errors: tuple[type[Exception], ...]) -> Iterator[Defect]:
    """Rows of queues and workers that cannot be decoded."""
    for table, key, text, check in (
        ("queues", "name", "SELECT name, limits, retry FROM queues", _check_queue),
        ("queue_partitions", "queue", "SELECT queue, limits, NULL FROM queue_partitions", _check_queue),
        ("workers", "id", "SELECT id, functions, crontab FROM workers", _check_objects),
    ):
        try:
            found = rows(text)
        except errors as error:
            yield Defect("unreadable", f"table {table} cannot be read: {describe(error)}", "mainspring db check")
            continue
        for row in found:
            try:
                check(row)
            except FAULTS as error:
                hint = (
                    f"mainspring queues set {row[0]}, with its limits; or: DELETE FROM queues WHERE name = '{row[0]}'"
                    if table == "queues"
                    else f"DELETE FROM {table} WHERE {key} = '{row[0]}'"
                )
                yield Defect("unreadable", f"table {table}, row {row[0]}: {describe(error)}", hint)


def _check_queue(row: Sequence[Any]) -> None:
    msgspec.json.decode(row[1], type=Limits)
    if row[2] is not None:
        dict(json.loads(row[2]))


def _check_objects(row: Sequence[Any]) -> None:
    for text in row[1:]:
        dict(json.loads(text))
