"""Which sessions hold the locks that this library waits for: for people who look into a standstill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mainspring.store.postgres.database import Database

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
"""Sessions are distinguished by their application_name, which poolers pass on: it has the host and the pid."""


def blockers(database: Database, *, everywhere: bool) -> list[str]:
    """The sessions that this process waits for, in words; with `everywhere`, any process of the library."""
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
