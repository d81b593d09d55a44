"""Each message is received once, and those of one sender in the order in which it sent them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.soak.programs import mail_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.soak.evidence import Evidence


def audit(evidence: Evidence) -> Iterator[str]:
    for line in evidence.ledger.of("expects"):
        if line.run in evidence.runs:
            yield from _listener(evidence, line.run, line.more["counts"])
    for run in evidence.succeeded:
        program = evidence.operations(run)
        for count, received in mail_of(evidence.output(run.id), program) if program else ():
            if received != list(range(count)):
                yield f"{run.id} sent itself {count} messages and received {received}"


def _listener(evidence: Evidence, listener: str, counts: dict[str, int]) -> Iterator[str]:
    received = evidence.output(listener)
    if received is None:
        return  # that it has not succeeded is a finding of another auditor's
    by_sender: dict[str, list[int]] = {sender: [] for sender in counts}
    for sender, number in received:
        by_sender.setdefault(sender, []).append(number)
    for sender, numbers in by_sender.items():
        wanted = list(range(counts.get(sender, 0)))
        if numbers != wanted:
            twice = [number for number, times in Counter(numbers).items() if times > 1]
            lost = sorted(set(wanted) - set(numbers))
            yield f"{listener} received {numbers} of {sender}: twice {twice}, lost {lost}, wanted {wanted}"
