"""What joins a transaction of the user's is there if that was committed, and only then: the run, the row and the message together."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.soak.evidence import Evidence


def audit(evidence: Evidence) -> Iterator[str]:
    outcomes = {
        line.run: line for line in evidence.ledger.of("committed", "rolled back", "unknown") if line.label == "joined"
    }
    rows = dict(evidence.joined_rows)
    for tried in evidence.ledger.of("tries"):
        if tried.label != "joined":
            continue
        listener = tried.more["listener"]
        told = evidence.output(listener) if listener in evidence.runs else None
        there = {tried.run in evidence.runs, rows.get(tried.run) == listener, told == f"by {tried.run}"}
        outcome = outcomes.get(tried.run)
        wanted = {"committed": {True}, "rolled back": {False}}.get(outcome.what if outcome else "unknown")
        if len(there) > 1 or (wanted is not None and there != wanted):
            yield (
                f"{tried.run} was {outcome.what if outcome else 'unknown'}: the run is {'' if tried.run in evidence.runs else 'not '}there,"
                f" the row is {rows.get(tried.run)!r}, and {listener} was told {told!r}"
            )
