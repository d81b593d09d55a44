"""Group failed runs by their error: one fault that fails three hundred runs is one line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime  # noqa: TC003  (pages are described by their annotations)
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainspring.operations.runs.lists import RunSummary

MOST_IDS = 500
"""The maximum number of runs of a group that a verb acts on at once."""
_VARYING = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8}-[0-9a-f-]{27}|'[^']*'|\"[^\"]*\"|\d+", re.IGNORECASE)
_TYPE = re.compile(r"(?P<type>[A-Za-z_][\w.]*): ")
_LONGEST = 200


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """Failed runs of one function with the same exception and a message that differs only in numbers and quoted texts."""

    workflow: str
    type: str | None
    message: str
    """The message of the latest run of the group."""
    count: int
    first: datetime | None
    last: datetime | None
    ids: list[str]
    """The latest runs of the group, at most `MOST_IDS`."""


def error_groups(runs: Iterable[RunSummary]) -> list[ErrorGroup]:
    """Group failed runs, which are given latest first. The largest group comes first."""
    found: dict[tuple[str, str | None, str], list[RunSummary]] = {}
    for run in runs:
        kind, message = _type_and_message(run)
        found.setdefault((run.workflow, kind, _VARYING.sub("…", message)[:_LONGEST]), []).append(run)
    groups = [
        ErrorGroup(
            workflow,
            kind,
            _type_and_message(members[0])[1],
            len(members),
            members[-1].completed,
            members[0].completed,
            [run.id for run in members[:MOST_IDS]],
        )
        for (workflow, kind, _), members in found.items()
    ]
    return sorted(groups, key=lambda group: -group.count)


def _type_and_message(run: RunSummary) -> tuple[str | None, str]:
    """Return the type of the exception, if the reason names it, and the message."""
    reason = run.reason or ""
    named = _TYPE.match(reason)
    if named is None:
        return None, run.message or reason or "failed"
    return named["type"], run.message or reason[named.end() :]
