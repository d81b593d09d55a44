"""The state of a PostgreSQL server that affects a store: connections, old snapshots, dead rows, and sessions that block others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.store.postgres.database import application_name
from mainspring.store.protocol import DeadRows, ServerState, Snapshot

if TYPE_CHECKING:
    from mainspring.store.postgres.database import Database
    from mainspring.store.transaction import Transactor

_CONNECTIONS = """
  SELECT (SELECT sum(numbackends) FROM pg_stat_database)::bigint,
    current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint
      - coalesce(current_setting('reserved_connections', true), '0')::bigint
"""
_OLDEST_SNAPSHOT = """
  SELECT pid, name, state, seconds FROM (
    SELECT pid, coalesce(application_name, '') AS name, coalesce(state, '') AS state, age(coalesce(backend_xmin, backend_xid)) AS age,
      extract(epoch FROM clock_timestamp() - xact_start)::double precision AS seconds
    FROM pg_stat_activity
    WHERE datname = current_database() AND coalesce(backend_xmin, backend_xid) IS NOT NULL AND pid <> pg_backend_pid()
      AND backend_type IN ('client backend', 'walsender') AND xact_start IS NOT NULL
    UNION ALL
    SELECT NULL, gid, 'prepared transaction', age(transaction), extract(epoch FROM clock_timestamp() - prepared)::double precision
    FROM pg_prepared_xacts WHERE database = current_database()) AS held
  ORDER BY age DESC, seconds DESC LIMIT 1
"""
"""Rows that died after this snapshot was taken cannot be removed. Snapshots in other databases of the server do not matter."""
_DEAD_ROWS = """
  SELECT relname, n_live_tup, n_dead_tup FROM pg_stat_user_tables
  WHERE schemaname = :schema AND relname IN ('runs', 'steps') ORDER BY relname
"""


def state(transactor: Transactor, schema: str) -> ServerState:
    """The present state of the server. Figures that the role may not read are left out."""
    ((used, allowed),) = transactor.read(_CONNECTIONS)
    held = transactor.read(_OLDEST_SNAPSHOT)
    dead = transactor.read(_DEAD_ROWS, schema=schema)
    return ServerState(
        connections=int(used or 0),
        allowed=int(allowed),
        snapshot=Snapshot(*held[0]) if held else None,
        dead_rows=[DeadRows(*row) for row in dead],
    )


_END_IDLE = """
  SELECT count(*) FROM (
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND usename = current_user AND application_name = :name
      AND state IN ('idle in transaction', 'idle in transaction (aborted)') AND state_change < clock_timestamp() - make_interval(secs => :seconds)) AS ended
"""


def end_idle_transactions(transactor: Transactor, process: str, seconds: float) -> int:
    """End the sessions of a process, `HOST-PID`, that have been idle in a transaction for so long. Return their number.

    For a process that is frozen, or whose machine is gone: others wait for the rows that a user's function has locked, above all the next
    owner of its run.
    """
    found: int = transactor.execute(_END_IDLE, name=application_name(process), seconds=seconds)[0][0]
    return found


_BLOCKING = b"""
  SELECT b.pid, coalesce(b.application_name, ''), coalesce(host(b.client_addr), ''), coalesce(b.state, ''),
    extract(epoch FROM clock_timestamp() - b.state_change)::bigint, left(regexp_replace(b.query, '\\s+', ' ', 'g'), 100),
    max(extract(epoch FROM clock_timestamp() - a.query_start))::bigint
  FROM pg_stat_activity a
    CROSS JOIN LATERAL unnest(pg_blocking_pids(a.pid)) AS blocking (pid)
    JOIN pg_stat_activity b ON b.pid = blocking.pid
  WHERE a.datname = current_database() AND a.wait_event_type = 'Lock'
    AND CASE WHEN %(everywhere)s THEN a.application_name LIKE 'mainspring%%'
        ELSE a.application_name = current_setting('application_name') END
  GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 7 DESC
"""
"""Sessions are distinguished by their application_name, which poolers pass on: it contains the host and the pid."""


def blockers(database: Database, *, everywhere: bool) -> list[str]:
    """Describe the sessions that this process waits for, or with `everywhere` any process of the library."""
    with database.connection() as db:
        rows = db.execute(_BLOCKING, {"everywhere": everywhere}).fetchall()
    return [_in_words(row) for row in rows]


def _in_words(row: tuple[Any, ...]) -> str:
    pid, name, host, state, since, query, waited = row
    who = f"the session {pid}" + (f" of {name}" if name else "") + (f" from {host}" if host else "")
    doing = f", {state} for {since or 0} s" if state else ""
    statement = f', whose last statement is "{query}"' if query else ""
    return (
        f"{who}{doing}{statement}, holds a lock that is waited for since {waited or 0} s "
        f"(SELECT pg_terminate_backend({pid}) ends it)"
    )
