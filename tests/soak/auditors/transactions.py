"""A transaction whose outcome is recorded has left its row once; one that has left a row in the app's database is recorded.

Chains of functions that schedule the next one have every link once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.soak.evidence import Evidence


def audit(evidence: Evidence) -> Iterator[str]:
    yield from _rows(evidence)
    yield from _chains(evidence)


def _rows(evidence: Evidence) -> Iterator[str]:
    found = Counter((row.run, row.label) for row in evidence.user_rows)
    tokens = {(row.run, row.label): row.token for row in evidence.user_rows}
    for (run, label), count in found.items():
        if count > 1:
            lines = "\n".join(str(line) for line in evidence.ledger.by_run.get(run, ()) if line.label == label)
            yield f"transaction {label} of {run} was committed {count} times\n{lines}"
    for run in evidence.runs:
        for label, token, step in evidence.recorded(run):
            if step.kind == "transaction" and tokens.get((run, label)) != f"{label}|{token}":
                yield f"transaction {label} of {run} is recorded with {token}, and its row is {tokens.get((run, label))}"


def _chains(evidence: Evidence) -> Iterator[str]:
    links = Counter((row.run, row.label) for row in evidence.user_rows)
    runs: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for line in evidence.ledger.of("begin"):
        if "chain" in line.more:
            runs[line.more["chain"], line.label].add(line.run)
    for line in evidence.promised.values():
        if line.label != "chain":
            continue
        for number in range(line.more["length"]):
            link = (line.run, f"link {number}")
            count = len(runs[link]) if line.more["function"] == "link_step" else links[link]
            if count != 1:
                yield f"chain {line.run} of {line.more['function']}: link {number} was there {count} times"
