"""Runs in the order of their uids, which is that of their creation.

The id of most runs is their uid. The primary key finds them in the order of uids, so that the index `runs_uid` has the other runs only: each
version of a row that PostgreSQL writes is one entry less. A statement for the newest runs reads from both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainspring.store.sql.where import Where

OF_OTHER_UID = "(id <> uid OR id < '1k' OR id >= '2')"
"""The condition of the index `runs_uid`, the same text. Ids that are made from July 2025 to September 2039 lie between the two bounds, most ids
that users choose do not, so that a statement that reads the primary key in this range passes over few of them.
"""
OF_OWN_UID = "id >= '1k' AND id < '2' AND CASE WHEN id = uid THEN true ELSE false END"
"""The opposite. CASE, because PostgreSQL expects a single run for which two columns are equal, and would read and sort the whole table."""


def by_uids(columns: str) -> str:
    """A statement that finds runs by their uids, `:uids`."""
    return f"""
  SELECT {columns} FROM runs WHERE id = ANY(:uids) AND uid = id
  UNION ALL SELECT {columns} FROM runs WHERE uid = ANY(:uids) AND id <> uid AND {OF_OTHER_UID}
"""


def newest(other: Where, own: Where, limit: str = ":limit") -> str:
    """A statement for the ids of the newest runs, up to a limit, that meet conditions, and of some older ones.

    `other` has the conditions for runs by the index of uids, `own` the same for runs by the primary key. The second part reads no runs that are
    older than the page that the first part fills. It would otherwise pass over all children of a run, whose ids begin with its id.
    """
    return f"""
    WITH others AS MATERIALIZED (SELECT id, uid FROM runs {other & OF_OTHER_UID} ORDER BY uid DESC LIMIT {limit})
    SELECT id FROM others UNION ALL SELECT id FROM (
      SELECT id FROM runs {own & OF_OWN_UID} AND id >= (SELECT CASE WHEN count(*) < {limit} THEN '' ELSE min(uid) END FROM others)
      ORDER BY id DESC LIMIT {limit}) x"""


def oldest_of(*, before: bool) -> str:
    """A statement for the uid of a run such that about `:within` runs are newer, but older than `:before`; NULL: there are fewer runs.

    They are up to twice as many, if the ids of half of the runs are not their uids. The second part ends where the first does, as in `newest`.
    """
    other, own = ("AND uid < :before", "AND id < :before") if before else ("", "")
    return f"""
  WITH others AS MATERIALIZED (
    SELECT uid FROM runs WHERE {OF_OTHER_UID} {other} ORDER BY uid DESC LIMIT 1 OFFSET :within)
  SELECT max(uid) FROM (SELECT uid FROM others UNION ALL SELECT id FROM (
    SELECT id FROM runs WHERE {OF_OWN_UID} {own} AND id >= coalesce((SELECT uid FROM others), '')
    ORDER BY id DESC LIMIT 1 OFFSET :within) x) AS found
"""
