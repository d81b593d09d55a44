"""What a claim requires of a ready run, and what it writes to the run. Each database finds and locks runs in its own way."""

from __future__ import annotations

from mainspring.store.sql.dialect import PerDatabase, per_database

_INPUT = r"CAST(replace(CAST(input AS text), E'\\u0000', E'\\ufffd') AS json)"
INSTANCE = PerDatabase(
    postgres=f"coalesce({_INPUT} ->> 'self', {_INPUT} -> '*' ->> 0)",
    sqlite="coalesce(json_extract(input, '$.self'), json_extract(input, '$.\"*\"[0]'))",
)
"""The name of the instance that a run of a method needs: its first argument. PostgreSQL has no text with a zero byte."""


def same_source(fingerprint: str, known: str) -> str:
    """A condition: a worker can continue a run that began under a fingerprint. `known` is the worker's fingerprint of that function."""
    return f"({fingerprint} = {known} OR {known} LIKE 'patched-%')"


def _known(known: str) -> str:
    return f"(:compatible OR fingerprint = '' OR {same_source('fingerprint', known)})"


CLAIMABLE = per_database(
    """{known}
      AND (version IS NULL OR version = :version OR fingerprint <> '')
      AND CASE WHEN workflow {is_method} THEN coalesce({instance} {is_here}, true) ELSE true END
      AND {not_refused}""",
    known=PerDatabase(
        postgres=_known("(SELECT :functions::jsonb) ->> workflow"),
        sqlite=f"EXISTS (SELECT 1 FROM known WHERE name = workflow AND {_known('print')})",
    ),
    is_method=PerDatabase("= ANY(:methods::text[])", "IN (SELECT key FROM json_each(:instances))"),
    instance=INSTANCE,
    is_here=PerDatabase(
        postgres="= ANY(:instances::text[])",
        sqlite="IN (SELECT i.value FROM json_each(:instances) m, json_each(m.value) i)",
    ),
    not_refused=PerDatabase(
        postgres="""(blocked IS NULL OR (json_typeof(blocked -> 'versions') = 'array'
        AND NOT jsonb_exists(blocked::jsonb -> 'versions', :version)))""",
        sqlite="""CASE WHEN blocked IS NULL THEN true WHEN NOT json_valid(blocked) THEN false
        ELSE NOT EXISTS (SELECT 1 FROM json_each(blocked, '$.versions') v WHERE v.value = :version) END""",
    ),
)
"""A condition: the worker has the function and the instance of a run, in a source that can continue the run.

On PostgreSQL the functions are a subquery, which is evaluated once per statement. A plain parameter would be evaluated once per run. On SQLite
they are the rows of `known`.
"""
TAKEN = per_database(
    """state = 'running', owner = :worker, epoch = epoch + 1, needs_attention = false,
    kind = coalesce({kind}, kind),
    blocked = CASE WHEN {refusals} > 0 THEN blocked END,
    started = coalesce(started, greatest(created, :now)), attempt_started = coalesce(attempt_started, :now),
    attempts = CASE WHEN attempt_started IS NULL THEN attempts + 1 ELSE greatest(attempts, 1) END,
    began_epoch = CASE WHEN attempt_started IS NULL THEN epoch + 1 ELSE began_epoch END,
    version = coalesce(version, :version),
    fingerprint = CASE WHEN fingerprint = '' THEN {known} ELSE fingerprint END,
    deadline = CASE WHEN attempt_started IS NULL AND timeout IS NOT NULL
      THEN least(coalesce(deadline, :now + timeout), :now + timeout) ELSE deadline END,
    retry = coalesce(retry, {retry})""",
    kind=PerDatabase("(SELECT :kinds::jsonb) ->> r.workflow", "(SELECT kinds.kind FROM kinds WHERE name = workflow)"),
    refusals=PerDatabase("json_array_length(blocked -> 'versions')", "json_array_length(blocked, '$.versions')"),
    known=PerDatabase("(SELECT :functions::jsonb) ->> r.workflow", "(SELECT print FROM known WHERE name = workflow)"),
    retry=PerDatabase(
        postgres="(SELECT json_object_agg(q.name, q.retry) FROM queues q WHERE q.retry IS NOT NULL) -> r.queue",
        sqlite="(SELECT q.retry FROM queues q WHERE q.name = r.queue)",
    ),
)
"""The SET clause for a claimed run `r`. On PostgreSQL the retries of queues are read once per statement."""
