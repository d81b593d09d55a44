"""Statements about the table `workers`."""

from __future__ import annotations

from mainspring.store.sql.records import WORKER_COLUMNS

LIST_WORKERS = f"SELECT {', '.join(WORKER_COLUMNS)} FROM workers ORDER BY started, id"
REGISTER = f"""
  INSERT INTO workers ({", ".join(WORKER_COLUMNS)}) VALUES ({", ".join(f":{name}" for name in WORKER_COLUMNS)})
  ON CONFLICT (id) DO NOTHING
"""
SET_CRONTAB = "UPDATE workers SET crontab = :crontab WHERE id = :id"
SET_INSTANCES = "UPDATE workers SET instances = :instances WHERE id = :id"
BEAT = "UPDATE workers SET beat = beat + 1, seen = :now WHERE id = :id RETURNING id"
REMOVE_WORKER = "DELETE FROM workers WHERE id = :worker"
REMEMBER_VERSION = "INSERT INTO versions (version, first_seen) VALUES (:version, :now) ON CONFLICT DO NOTHING"
