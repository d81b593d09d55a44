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
STAGES = [one.name for one in migrations.load("mainspring.store.sqlite")][:-1]
"""The migration that tables of earlier versions ended with; the first is that of the recorded histories."""


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


def load(url: str, rows: list[tuple[str, dict[str, Any]]], stage: str) -> None:
    """Make tables as they were after a migration, with rows in them that were there from the first one on."""
    if url.startswith("sqlite"):
        load_sqlite(url.removeprefix("sqlite:///"), rows, stage)
    else:
        load_postgres(url, rows, stage)


def load_sqlite(path: str, rows: list[tuple[str, dict[str, Any]]], stage: str) -> None:
    first, *later = migrations_until(stage, "sqlite")
    with sqlite3.connect(path) as db:
        db.executescript(first.sql)
        for table, row in rows:
            marks = ", ".join("?" * len(row))
            db.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))
        db.execute("CREATE TABLE migrations (name TEXT NOT NULL PRIMARY KEY)")
        for each in later:
            db.executescript(each.sql)
        db.executemany("INSERT INTO migrations VALUES (?)", [(each.name,) for each in (first, *later)])
    db.close()


def load_postgres(url: str, rows: list[tuple[str, dict[str, Any]]], stage: str) -> None:
    first, *later = migrations_until(stage, "postgres")
    with psycopg.connect(url) as db:
        db.execute("CREATE SCHEMA mainspring")
        db.execute("SET search_path TO mainspring")
        db.execute(first.sql.encode())
        db.execute("CREATE TABLE migrations (name text NOT NULL PRIMARY KEY)")
        for table, row in rows:
            if "poked" in row:
                row["poked"] = bool(row["poked"])
            marks = ", ".join(["%s"] * len(row))
            db.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})".encode(), list(row.values()))
        for each in later:
            db.execute(each.sql.encode())
        for each in (first, *later):
            db.execute("INSERT INTO migrations VALUES (%s)", (each.name,))


def migrations_until(stage: str, kind: str) -> list[migrations.Migration]:
    found = migrations.load(f"mainspring.store.{kind}")
    return found[: 1 + [each.name for each in found].index(stage)]


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
    load(store_url, rows_to_load(moment), STAGES[0])
    executed.clear()
    async with world(app, at=moment["at"], url=store_url):
        for run_id, result in recorded["results"].items():
            assert await app.handle(run_id).result() == result
    assert not done & executed.keys()


@pytest.mark.parametrize("stage", STAGES[1:])
async def test_tables_of_any_version_between_are_brought_up_to_date_with_a_run_under_way(
    store_url: str, stage: str
) -> None:
    version, recorded = next(iter(RECORDED.items()))
    moment: dict[str, Any] = json.loads(json.dumps(recorded["moments"][len(recorded["moments"]) // 2]))
    load(store_url, rows_to_load(moment), stage)
    async with world(app, at=moment["at"], url=store_url):
        for run_id, result in RECORDED[version]["results"].items():
            assert await app.handle(run_id).result() == result
