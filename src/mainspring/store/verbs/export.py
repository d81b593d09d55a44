"""Export runs as plain records and load them into another database: a run, what it recorded, its children.

A record is an object with the name of its table and its columns. JSON columns are values, not text, so that an operator can read them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mainspring.errors import Conflict, InvalidInput, NotFound
from mainspring.model.states import State
from mainspring.store.sql.conditions import has_wait, undoable, wait_is_over
from mainspring.store.sql.dialect import insert_one, json_columns
from mainspring.store.sql.messages import MESSAGE_COLUMNS, PUBLISHED_COLUMNS
from mainspring.store.sql.records import RUN_COLUMNS, STEP_COLUMNS, to_run, to_step
from mainspring.store.sql.runs import by_uids
from mainspring.store.verbs.revive import require_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mainspring.model.runs import Run, Step
    from mainspring.store.transaction import Script, Transaction

FORMAT = 1
LOG_COLUMNS = ("run", "at", "level", "logger", "message", "step", "position", "attempt", "worker")
COLUMNS: dict[str, Sequence[str]] = {
    "runs": RUN_COLUMNS,
    "steps": STEP_COLUMNS,
    "messages": MESSAGE_COLUMNS,
    "events": PUBLISHED_COLUMNS,
    "streams": PUBLISHED_COLUMNS,
    "logs": LOG_COLUMNS,
}
_ORDER = {
    "steps": "seq IS NULL, seq, position",
    "messages": "number",
    "events": "key, number",
    "streams": "key, number",
    "logs": "number",
}
_JSON = {*json_columns([*RUN_COLUMNS, *STEP_COLUMNS]), "body", "answer", "value"}
_SELECT = {
    table: f"SELECT {', '.join(columns)} FROM {table} WHERE {'id' if table == 'runs' else 'run'} = :run"
    + (f" ORDER BY {_ORDER[table]}" if table in _ORDER else "")
    for table, columns in COLUMNS.items()
}
_INSERT = {table: insert_one(table, columns) for table, columns in COLUMNS.items()}
_CHILDREN = "SELECT id FROM runs WHERE parent = :run ORDER BY uid"
_THERE = "SELECT uid FROM runs WHERE id = :run"
_ENDED = "SELECT 1 FROM runs WHERE id = :run AND completed IS NOT NULL"
_UID = by_uids("id")
_WAKE = f"""
  UPDATE runs SET state = 'queued', due = :now
  WHERE id = :run AND state = 'waiting' AND ({wait_is_over("runs")} OR NOT {has_wait("runs")})
"""
_STOP = f"""
  UPDATE runs SET state = CASE WHEN {undoable("runs")} THEN 'queued' ELSE 'cancelled' END,
    undo_reason = CASE WHEN {undoable("runs")} THEN coalesce(reason, '') END,
    completed = CASE WHEN {undoable("runs")} THEN NULL ELSE CAST(:now AS bigint) END, due = coalesce(due, :now),
    end_unreported = NOT {undoable("runs")}
  WHERE id = :run AND state = 'cancelling'
"""


def dump(ids: Iterable[str]) -> Script[list[dict[str, Any]]]:
    """Runs with all their descendants, parents first, each followed by what it recorded. The script must read from one snapshot."""
    records: list[dict[str, Any]] = []
    for run_id in ids:
        run = {"run": run_id}
        found = yield _SELECT["runs"], run
        if not found:
            raise NotFound(f"run {run_id!r} not found")
        records.append(_record("runs", found[0]))
        for table in _ORDER:
            records += [_record(table, each) for each in (yield _SELECT[table], run)]
        records += yield from dump([row[0] for row in (yield _CHILDREN, run)])
    return records


def load(tx: Transaction, records: Iterable[dict[str, Any]]) -> Script[tuple[int, int]]:
    """Load exported runs. Return the number of new runs, and the number of those that already existed and stay as they are.

    Loaded runs have no owner, as if their worker had been lost: see `_release`.
    """
    new: set[str] = set()
    there: set[str] = set()
    for record in records:
        table = record.get("table")
        if not isinstance(table, str) or table not in COLUMNS:
            raise InvalidInput(f"an export has records of {', '.join(COLUMNS)}, not of {table!r}; nothing was loaded")
        values = _values(table, record)
        if table == "runs":
            (new if (yield from _is_new(tx, values)) else there).add(values["id"])
            if values["id"] in new:
                _free(values, tx.now)
                if not State(values["state"]).ended:
                    yield from require_key(tx, values["id"], values["key"])
                yield from tx.execute(_INSERT[table], **values)
        elif values["run"] in new:
            yield from tx.execute(_INSERT[table], **values)
        elif values["run"] not in there:
            raise InvalidInput(f"a record of {table} comes before its run {values['run']!r}; nothing was loaded")
    for run in new:
        yield from _release(tx, run)
    tx.changes.ready = True
    return len(new), len(there)


def run_of_record(record: dict[str, Any]) -> Run:
    """Decode the run in a record of an export."""
    return to_run([_values("runs", record)[column] for column in RUN_COLUMNS])


def step_of_record(record: dict[str, Any]) -> Step:
    """Decode the step in a record of an export."""
    return to_step([_values("steps", record)[column] for column in STEP_COLUMNS])


def _record(table: str, row: Sequence[Any]) -> dict[str, Any]:
    record: dict[str, Any] = {"table": table}
    for column, value in zip(COLUMNS[table], row, strict=True):
        if value is not None:  # left out: a missing value is not the same as null
            record[column] = json.loads(value) if column in _JSON else bool(value) if column == "discarded" else value
    return record


def _values(table: str, record: dict[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(record) - {"table", *COLUMNS[table]})
    if unknown:
        raise InvalidInput(
            f"a record of {table} has {', '.join(unknown)}, which this version does not know: it was exported by a newer one, "
            "or is not an export; nothing was loaded"
        )
    values: dict[str, Any] = {}
    for column in COLUMNS[table]:
        value = record.get(column, _DEFAULTS.get(column))
        there = column in record or column in _DEFAULTS
        values[column] = json.dumps(value, ensure_ascii=False) if column in _JSON and there else value
    missing = [column for column in ("id", "uid", "workflow", "state") if table == "runs" and not values.get(column)]
    if missing:
        raise InvalidInput(f"a record of runs has no {', '.join(missing)}; nothing was loaded")
    return values


_DEFAULTS: dict[str, Any] = {
    "attributes": {},
    "fingerprint": "",
    "generation": 0,
    "began_epoch": 1,
    "priority": 0,
    "partition": "",
    "attempts": 0,
    "discarded": False,
}


def _is_new(tx: Transaction, values: dict[str, Any]) -> Script[bool]:
    found = yield from tx.execute(_THERE, run=values["id"])
    if found and found[0][0] != values["uid"]:
        raise Conflict(f"there is another run {values['id']!r} already; delete it first. Nothing was loaded")
    if not found and (yield from tx.execute(_UID, uids=[values["uid"]])):
        raise Conflict(f"run {values['id']!r} is there already, under another id. Nothing was loaded")
    return not found


def _free(values: dict[str, Any], now: int) -> None:
    """Clear the run's owner and its wait for the turn of a tick: neither exists in this database."""
    values["owner"] = None
    if values["state"] == State.RUNNING:
        values["state"], values["due"] = State.QUEUED.value, now if values["due"] is None else min(values["due"], now)
    elif values["state"] == State.SCHEDULED and values["due"] is None:
        values["due"] = now


def _release(tx: Transaction, run: str) -> Script[None]:
    """Wake a run whose wait is over, which its worker may not have noticed before the export.

    A run that was being cancelled is stopped. Runs that wait for an ended one are woken.
    """
    yield from tx.execute(_STOP, run=run, now=tx.now)
    yield from tx.execute(_WAKE, run=run, now=tx.now)
    if (yield from tx.execute(_ENDED, run=run)):
        tx.changes.end([run])
