"""A batch on PostgreSQL costs as much as its writes together, not as their square: no part of it is compared with each of another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from mainspring.model.states import State
from mainspring.store.open import open_store
from mainspring.store.postgres import bulk_statements as text
from mainspring.store.postgres.bulk import ends_alike
from mainspring.store.postgres.dialect import Dialect
from mainspring.store.postgres.libpq import to_json
from mainspring.store.writes import Finish
from tests.store.build import NOW, StoreSettings, owned, start

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
    explain = b"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) "
    with psycopg.connect(postgres_url) as db:
        if analysed:
            db.execute("ANALYZE")
        row = db.execute(explain + Dialect("mainspring")(statement), WAYS[statement]).fetchone()
        assert row is not None
        nodes = list(_nodes(row[0][0]["Plan"]))
    assert nodes[0]["Actual Rows"] == MANY
    handled = [
        (node["Actual Rows"] + node.get("Rows Removed by Join Filter", 0)) * node["Actual Loops"] for node in nodes
    ]
    assert max(handled) <= 2 * MANY


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from _nodes(inner)
