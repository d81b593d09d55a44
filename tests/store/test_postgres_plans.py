"""A batch or a claim on PostgreSQL costs as much as its parts together, not as their square: none is compared with each of the others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from mainspring.model.states import State
from mainspring.store.open import open_store
from mainspring.store.postgres import bulk_statements as text
from mainspring.store.postgres.bulk import ends_alike
from mainspring.store.postgres.claim_statements import FULL, LOOK
from mainspring.store.postgres.dialect import Dialect
from mainspring.store.postgres.libpq import to_json
from mainspring.store.writes import Finish
from tests.store.build import NOW, StoreSettings, owned, request, run, start

if TYPE_CHECKING:
    from collections.abc import Iterator

MANY = 300


ENDS = [Finish("w1", f"r{n}", 1, State.SUCCEEDED, NOW, output="1") for n in range(MANY)]
WAYS: dict[str, dict[str, Any]] = {text.FINISH: {"ops": to_json(ENDS)}, text.FINISH_ALIKE: ends_alike(ENDS)}


@pytest.mark.parametrize("statement", WAYS, ids=["as JSON", "as arrays"])
@pytest.mark.parametrize("analysed", [False, True])
def test_ends_of_many_runs(postgres_url: str, statement: str, *, analysed: bool) -> None:
    store = open_store(postgres_url, StoreSettings())
    store.open()
    start(store, *(owned(f"r{n}", uid=f"{n:05d}") for n in range(MANY)))
    store.close()
    with psycopg.connect(postgres_url) as db:
        if analysed:
            db.execute("ANALYZE")
        nodes = _plan(db, statement, WAYS[statement])
    assert nodes[0]["Actual Rows"] == MANY
    assert max(map(_handled, nodes)) <= 2 * MANY


@pytest.mark.parametrize("functions", [1, 2, 6])
def test_a_claim_from_many_partitions(postgres_url: str, functions: int) -> None:
    names = [f"wf{number}" for number in range(functions)]
    asked = request(functions=dict.fromkeys(names, ""))
    values: dict[str, Any] = {
        "wanted": json.dumps([{"queue": "q", "partition": f"p{n}", "count": 1} for n in range(MANY)]),
        "known": json.dumps([{"queue": "q", "name": name} for name in names]),
        "functions": json.dumps(dict(asked.functions)),
        "kinds": "{}",
        "methods": [],
        "instances": [],
        "compatible": False,
        "version": asked.version,
        "worker": asked.worker,
        "now": NOW,
    }
    store = open_store(postgres_url, StoreSettings())
    store.open()
    for name in names:
        start(store, *(run(f"{name}-{n}", workflow=name, queue="q", partition=f"p{n}") for n in range(MANY)))
    store.close()
    with psycopg.connect(postgres_url) as db:
        db.execute("ANALYZE")
        nodes = _plan(db, FULL.take_shares, values)
    assert nodes[0]["Actual Rows"] == MANY
    assert max(map(_handled, nodes)) <= 3 * functions * MANY


def test_a_claim_reads_the_next_times_from_indexes_alone(postgres_url: str) -> None:
    """A condition that an index does not have makes the planner expect most of the table behind it, and start parallel workers."""
    store = open_store(postgres_url, StoreSettings())
    store.open()
    start(store, *(run(f"r{n}") for n in range(MANY)))
    store.close()
    with psycopg.connect(postgres_url) as db:
        db.execute("ANALYZE")
        db.execute("SET enable_seqscan = off")  # the table is small enough to be read instead
        nodes = _plan(db, LOOK, {"due_floor": 0, "deadline_floor": 0, "resumed_floor": 0})
    assert {node.get("Index Name") for node in nodes} >= {"runs_due", "runs_deadline", "runs_resumed"}
    assert not any("Filter" in node for node in nodes)


def _plan(db: psycopg.Connection, statement: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    """Execute a statement, and return the nodes of its plan with what each of them did."""
    explained = b"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) " + Dialect("mainspring")(statement)
    row = db.execute(explained, values).fetchone()
    assert row is not None
    return list(_nodes(row[0][0]["Plan"]))


def _handled(node: dict[str, Any]) -> int:
    """Return the rows that a node read or produced."""
    removed = node.get("Rows Removed by Join Filter", 0) + node.get("Rows Removed by Filter", 0)
    return int((node["Actual Rows"] + removed) * node["Actual Loops"])


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from _nodes(inner)
