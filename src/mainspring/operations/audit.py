"""The audit log: every action of an operator is recorded before it is executed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003  (pages are described by their annotations)
from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.errors import InvalidInput
from mainspring.operations.filters import cursor
from mainspring.operations.records import shown
from mainspring.store.sealing.payloads import shown_input
from mainspring.store.verbs.audit import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mainspring.model.clock import Clock
    from mainspring.model.ids import IdMaker
    from mainspring.store.protocol import Store

R = TypeVar("R")
LONGEST_REASON = 1_000


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One recorded action of an operator."""

    id: str
    at: datetime
    who: str
    action: str
    subject: list[str]
    """The ids that the action was applied to."""
    reason: str | None
    details: dict[str, Any]
    """The other arguments of the action."""
    outcome: Any
    """The result of the action. None: it was not recorded, because the process died or the database was unreachable."""


@dataclass(frozen=True, slots=True)
class Intent:
    """An action that an operator is about to take: on which ids, why, and with which arguments."""

    who: str
    action: str
    subject: Sequence[str]
    reason: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class AuditPage:
    """A page of the audit log, latest first. Pass `next` as `after` to get the following page. None: this is the last page."""

    entries: list[AuditEntry]
    next: str | None


class Audit:
    """The audit log. All verbs block."""

    def __init__(self, store: Store, clock: Clock, ids: IdMaker) -> None:
        self._store = store.audit
        self._clock = clock
        self._ids = ids

    def carry_out(self, intent: Intent, act: Callable[[], R], as_json: Callable[[R], Any]) -> R:
        """Record an action and execute it. An action that cannot be recorded is not executed. `as_json` converts its result to JSON."""
        if intent.reason is not None and len(intent.reason) > LONGEST_REASON:
            raise InvalidInput(f"the reason has {len(intent.reason)} characters; the limit is {LONGEST_REASON}")
        entry = Entry(
            self._ids.new(),
            self._clock.now(),
            intent.who,
            intent.action,
            json.dumps(list(intent.subject)),
            intent.reason,
            json.dumps(dict(intent.details)),
        )
        self._store.note(entry)
        try:
            result = act()
        except Exception as error:
            self._store.record_outcome(entry.id, json.dumps({"error": str(error)}))
            raise
        self._store.record_outcome(entry.id, json.dumps(as_json(result)))
        return result

    def list(self, *, after: str | None = None, limit: int = 50) -> AuditPage:
        """Return a page of recorded actions, latest first."""
        if limit < 1:
            raise InvalidInput(f"a page has at least one entry, not {limit}")
        found = self._store.entries(cursor(after), limit + 1)
        page = found[:limit]
        return AuditPage(
            [shown(AuditEntry, entry, details=shown_input(entry.details)) for entry in page],
            page[-1].id if len(found) > limit else None,
        )
