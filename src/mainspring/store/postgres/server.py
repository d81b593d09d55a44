"""What a PostgreSQL server says of itself that decides how well a store works: connections, old snapshots, dead rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.store.protocol import DeadRows, ServerState, Snapshot

if TYPE_CHECKING:
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
"""Rows that died after it was taken cannot be removed. Snapshots in other databases of the server do not matter."""
_DEAD_ROWS = """
  SELECT relname, n_live_tup, n_dead_tup FROM pg_stat_user_tables
  WHERE schemaname = :schema AND relname IN ('runs', 'steps') ORDER BY relname
"""


def state(transactor: Transactor, schema: str) -> ServerState:
    """The state of the server at this moment. What the role may not see is left out."""
    ((used, allowed),) = transactor.read(_CONNECTIONS)
    held = transactor.read(_OLDEST_SNAPSHOT)
    dead = transactor.read(_DEAD_ROWS, schema=schema)
    return ServerState(
        connections=int(used or 0),
        allowed=int(allowed),
        snapshot=Snapshot(*held[0]) if held else None,
        dead_rows=[DeadRows(*row) for row in dead],
    )
