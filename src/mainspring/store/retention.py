"""How long ended runs are kept, and how they are forgotten: the specification, and what is the same in every store.

A run is forgotten with all that it has recorded, said and been told. It is kept, however old, while somebody needs it: the run
that started it or waits for it, a child that has not ended, a schedule that has not taken note of its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Keep(Struct, frozen=True):
    """How long ended runs are kept, in microseconds; None: for ever."""

    runs: int | None = None
    functions: int | None = None
    """Those scheduled with run_after and run_at."""
    names: Mapping[str, int | None] = field(default_factory=dict[str, "int | None"])
    """Runs and functions of these names, instead of the above."""

    def of(self, name: str, *, function: bool) -> int | None:
        return self.names.get(name, self.functions if function else self.runs)

    @property
    def shortest(self) -> int | None:
        """How long the first of them is kept."""
        return min(
            (each for each in (self.runs, self.functions, *self.names.values()) if each is not None), default=None
        )


class Pruned(Struct, frozen=True):
    """What pruning came to. `next_due` is when the next run will have been kept long enough, if any will."""

    runs: int
    next_due: int | None


class Retention(Protocol):
    """Forgetting what was kept long enough."""

    def prune(self, keep: Keep, now: int, limit: int) -> Pruned:
        """Forget at most `limit` runs, in one short transaction. What somebody holds is left for another time."""
        ...

    def expired(self, keep: Keep, now: int) -> dict[str, int]:
        """How many runs of each name would be forgotten. Changes nothing."""
        ...


# -- statements --------------------------------------------------------------------------------------------------------
_PART = {
    False: "completed IS NOT NULL AND scheduled_time IS NULL",
    True: "completed IS NOT NULL AND scheduled_time IS NOT NULL",
}


def part(alias: str, *, function: bool) -> str:
    """The runs, or the functions, that have ended: exactly what one index is about."""
    return " AND ".join(f"{alias}.{term}" for term in _PART[function].split(" AND "))


NAMES = {
    function: f"""
  WITH RECURSIVE names (name) AS (
    SELECT min(f.workflow) FROM runs f WHERE {part("f", function=function)}
    UNION ALL
    SELECT (SELECT min(n.workflow) FROM runs n WHERE n.workflow > names.name AND {part("n", function=function)})
    FROM names WHERE name IS NOT NULL)
  SELECT name, (SELECT min(o.completed) FROM runs o WHERE o.workflow = names.name AND {part("o", function=function)})
  FROM names WHERE name IS NOT NULL
"""
    for function in (False, True)
}
"""The names there are, each with its oldest end: from name to name through the index, however many runs each has."""

UNNEEDED = """
  NOT EXISTS (SELECT 1 FROM runs p WHERE p.id = r.parent AND p.completed IS NULL)
  AND NOT EXISTS (SELECT 1 FROM runs p WHERE p.id = r.scheduled_by AND p.completed IS NULL)
  AND NOT EXISTS (SELECT 1 FROM runs c WHERE c.parent = r.id AND c.completed IS NULL)
  AND NOT EXISTS (SELECT 1 FROM steps s WHERE s.child = r.id AND s.completed IS NULL)
"""


class Rule(Struct):
    """Runs of a name that ended at a time or before are to go."""

    name: str
    before: int


def rules(found: Sequence[tuple[str, int]], keep: Keep, now: int, *, function: bool) -> tuple[list[Rule], int | None]:
    """What is to go of the names there are, and when the next one of the others will be to go."""
    due: list[Rule] = []
    later: list[int] = []
    for name, oldest in found:
        length = keep.of(name, function=function)
        if length is None:
            continue
        if oldest <= now - length:
            due.append(Rule(name, now - length))
        else:
            later.append(oldest + length)
    return due, min(later, default=None)
