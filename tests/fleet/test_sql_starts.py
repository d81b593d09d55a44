"""A trigger starts runs while workers are killed: each row has one run, and each run comes to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.support.processes import Fleet, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.processes

SET_UP = b"""
CREATE TABLE orders (id integer PRIMARY KEY);
CREATE FUNCTION order_made() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM mainspring.start('note', json_build_array('ordered', NEW.id), id => 'order-' || NEW.id);
  RETURN NEW;
END $$;
CREATE TRIGGER order_made AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION order_made();
"""


@pytest.fixture
def postgres_fleet(tmp_path: Path, postgres_url: str) -> Iterator[Fleet]:
    with Fleet(tmp_path, postgres_url, lease=0.6, poll=60) as made:
        yield made


def test_a_trigger_starts_runs_while_workers_are_killed(postgres_fleet: Fleet, postgres_url: str) -> None:
    fleet = postgres_fleet
    workers = [fleet.worker(), fleet.worker()]
    with psycopg.connect(postgres_url, autocommit=True) as sql:
        sql.execute(SET_UP)
        for number in range(0, 1_000, 100):
            sql.execute(b"INSERT INTO orders SELECT generate_series(%s::integer, %s)", [number, number + 99])
            if number in {200, 600}:
                workers.pop(0).kill()
                workers.append(fleet.worker())
        with sql.transaction(force_rollback=True):
            sql.execute(b"INSERT INTO orders VALUES (5000)")

        def ended() -> bool:
            row = sql.execute(b"SELECT count(*) FROM mainspring.runs WHERE state = 'succeeded'").fetchone()
            return row == (1_000,)

        eventually(ended, "all runs end", within=60)
        rows = sql.execute(b"SELECT id, output::text::integer, recoveries FROM mainspring.runs").fetchall()
    assert {row[0]: row[1] for row in rows} == {f"order-{number}": number + 1 for number in range(1_000)}
    recovered = {row[0] for row in rows if row[2]}
    assert all(len(fleet.ledger.steps(row[0])) == 1 for row in rows if row[0] not in recovered)
