"""Runs that older versions began are finished by this one, from wherever they stood, in tables made by the older version."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest

from mainspring.store import migrations
from mainspring.testing import world
from tests.upgrade.workflows import app, executed

HISTORIES = sorted((Path(__file__).parent / "histories").glob("*.json"))
RECORDED: dict[str, Any] = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in HISTORIES}
MOMENTS = [(version, number) for version, recorded in RECORDED.items() for number in range(len(recorded["moments"]))]
FIRST = "0001_runs_and_steps"


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


def load_sqlite(path: str, rows: list[tuple[str, dict[str, Any]]]) -> None:
    with sqlite3.connect(path) as db:
        db.executescript(first_migration("sqlite"))
        db.execute("CREATE TABLE migrations (name TEXT NOT NULL PRIMARY KEY)")
        db.execute("INSERT INTO migrations VALUES (?)", (FIRST,))
        for table, row in rows:
            marks = ", ".join("?" * len(row))
            db.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))
    db.close()


def load_postgres(url: str, rows: list[tuple[str, dict[str, Any]]]) -> None:
    with psycopg.connect(url) as db:
        db.execute("CREATE SCHEMA mainspring")
        db.execute("SET search_path TO mainspring")
        db.execute(first_migration("postgres").encode())
        db.execute("CREATE TABLE migrations (name text NOT NULL PRIMARY KEY)")
        db.execute("INSERT INTO migrations VALUES (%s)", (FIRST,))
        for table, row in rows:
            if "poked" in row:
                row["poked"] = bool(row["poked"])
            marks = ", ".join(["%s"] * len(row))
            db.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})".encode(), list(row.values()))


def first_migration(kind: str) -> str:
    found = {one.name: one.sql for one in migrations.load(f"mainspring.store.{kind}")}
    return found[FIRST]


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
    rows = rows_to_load(moment)
    if store_url.startswith("sqlite"):
        load_sqlite(store_url.removeprefix("sqlite:///"), rows)
    else:
        load_postgres(store_url, rows)
    executed.clear()
    async with world(app, at=moment["at"], url=store_url):
        for run_id, result in recorded["results"].items():
            assert await app.handle(run_id).result() == result
    assert not done & executed.keys()
