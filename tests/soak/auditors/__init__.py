"""One auditor for each promise. Each is a function from the evidence to findings, one text each; no finding, no text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.soak.auditors import (
    compensations,
    endings,
    joined,
    messages,
    once,
    queues,
    rates,
    repeats,
    results,
    streams,
    ticks,
    transactions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.soak.evidence import Evidence

AUDITORS: dict[str, Callable[[Evidence], Iterator[str]]] = {
    "every run ended as it must": endings.audit,
    "nothing recorded was executed again": repeats.audit,
    "each message once and in order": messages.audit,
    "at most once": once.audit,
    "every compensation was made": compensations.audit,
    "limits of queues": queues.audit,
    "rates of queues": rates.audit,
    "every tick accounted for": ticks.audit,
    "transactions exactly once": transactions.audit,
    "joined: all or nothing": joined.audit,
    "those who wait are told what is stored": results.audit,
    "streams, events and answers": streams.audit,
}
