"""Runs that older versions began are finished by this one, from wherever they stood, in tables made by the older version."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from mainspring.store import migrations
from mainspring.store.open import open_store, sqlite_path
from mainspring.store.postgres import schema as postgres_schema
from mainspring.store.sqlite import schema as sqlite_schema
from mainspring.testing import world
from tests.store.build import StoreSettings
from tests.upgrade.workflows import app, executed

pytestmark = pytest.mark.empty_database

HISTORIES = sorted((Path(__file__).parent / "histories").glob("*.json"))
RECORDED: dict[str, Any] = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in HISTORIES}
MOMENTS = [(version, number) for version, recorded in RECORDED.items() for number in range(len(recorded["moments"]))]
BOOLEANS = {"needs_attention", "end_unprocessed", "end_unreported"}


def rows_to_load(moment: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The rows as a worker that died would have left them once it was retired."""
    rows: list[tuple[str, dict[str, Any]]] = []
    for run in moment["runs"]:
        if run["state"] == "running":
            run["state"] = "queued"
        run.pop("owner", None)
        rows.append(("runs", run))
    rows += [("steps", step) for step in moment["steps"]]
    return rows


def make_tables(url: str, last: str) -> None:
    """Make the tables as they were after a migration, by the code that makes them."""
    with pytest.MonkeyPatch.context() as patch:
        for schema in (sqlite_schema, postgres_schema):
            names = [each.name for each in schema.MIGRATIONS]
            patch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[: 1 + names.index(last)])
        with closing(open_store(url, StoreSettings())) as store:
            store.open()


def insert(url: str, rows: list[tuple[str, dict[str, Any]]]) -> None:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(sqlite_path(url), isolation_level=None)) as lite:
            for table, row in rows:
                marks = ", ".join("?" * len(row))
                lite.execute(f"INSERT INTO mainspring_{table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))
        return
    with psycopg.connect(url) as db:
        db.execute("SET search_path TO mainspring")
        for table, row in rows:
            values = [bool(value) if name in BOOLEANS else value for name, value in row.items()]
            marks = ", ".join(["%s"] * len(row))
            db.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})".encode(), values)


def test_both_databases_have_the_same_migrations() -> None:
    sqlite, postgres = (
        [each.name for each in migrations.load(f"mainspring.store.{kind}")] for kind in ("sqlite", "postgres")
    )
    assert sqlite == postgres


@pytest.mark.parametrize(("version", "number"), MOMENTS)
async def test_an_old_run_is_finished_from_where_it_stood(store_url: str, version: str, number: int) -> None:
    recorded = RECORDED[version]
    moment: dict[str, Any] = json.loads(json.dumps(recorded["moments"][number]))
    done = {
        step["output"].strip('"').removeprefix("did ")
        for step in moment["steps"]
        if step.get("output", "").startswith('"did')
    }
    assert done
    make_tables(store_url, recorded["migration"])
    insert(store_url, rows_to_load(moment))
    executed.clear()
    async with world(app, at=moment["at"], url=store_url):
        for run_id, result in recorded["results"].items():
            assert await app.handle(run_id).result() == result
    assert not done & executed.keys()
