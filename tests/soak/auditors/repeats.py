"""What was recorded as done is never executed again.

A record has the claim (epoch) under which it was written. An execution that begins under a later claim came after it; one that begins
under the same claim after a successful one repeats it. Executions under earlier claims are those of workers that were declared dead.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tests.soak.ledger import BEGIN, END

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.soak.evidence import Evidence
    from tests.soak.ledger import Line

_AMBIGUOUS = frozenset({"oracle"})
"""Workflows whose effects have labels that do not tell them apart."""


def audit(evidence: Evidence) -> Iterator[str]:
    for run, lines in evidence.ledger.by_run.items():
        row = evidence.runs.get(run)
        if row is None or row.workflow in _AMBIGUOUS:
            continue
        begun: defaultdict[str, list[Line]] = defaultdict(list)
        for line in lines:
            if line.what == BEGIN and line.generation == row.generation:
                begun[line.label].append(line)
        for finding in (*_recorded(evidence, run, begun), *_witnessed(run, lines), *_within_a_claim(run, lines)):
            yield f"{finding}\n{evidence.story(run)}"


def _recorded(evidence: Evidence, run: str, begun: dict[str, list[Line]]) -> Iterator[str]:
    for label, token, step in evidence.recorded(run):
        executions = {line.token: line for line in begun[label]}
        if token not in evidence.ledger.by_token:
            yield f"{run}: {label} at {step.position} has an outcome that no execution had: {token}"
        elif END not in evidence.ledger.by_token[token]:
            yield f"{run}: {label} at {step.position} has the outcome of an execution that did not end: {token}"
        for line in executions.values():
            if line.epoch > step.epoch and line.token != token:
                yield f"{run}: {label} was recorded under claim {step.epoch} and executed again\n{line}"


def _witnessed(run: str, lines: list[Line]) -> Iterator[str]:
    """An effect is given the outcome of the one before it, so that one was recorded by then."""
    seen: dict[str, Line] = {}
    for line in lines:
        if line.what != BEGIN:
            continue
        known = seen.get(line.label)
        if known is not None and line.epoch >= known.epoch and line.token not in known.before:
            yield f"{run}: {line.label} was executed again after the next effect had its outcome\n{known}\n{line}"
        if "|" in line.before:
            seen[line.before.split("|")[0]] = line


def _within_a_claim(run: str, lines: list[Line]) -> Iterator[str]:
    ended: dict[tuple[str, int, int], Line] = {}
    for line in lines:
        key = (line.label, line.epoch, line.generation)
        if line.what == END:
            ended[key] = line
        elif line.what == BEGIN and key in ended and not _is_transaction(line):
            yield f"{run}: {line.label} succeeded and was executed again under the same claim\n{ended[key]}\n{line}"


def _is_transaction(line: Line) -> bool:
    """One may be rolled back after its function has ended, for the sake of others, and is then executed again."""
    return bool(line.more.get("transaction"))
