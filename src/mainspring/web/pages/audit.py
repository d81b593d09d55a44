"""The audit log of operators' actions."""

from __future__ import annotations

from msgspec import Struct

from mainspring.operations.audit import AuditEntry
from mainspring.web.views import After, Pages, PageSize, Scene

pages = Pages()


class AuditQuery(Struct):
    """A part of the audit log."""

    after: After | None = None
    limit: PageSize = 50


class AuditPage(Struct):
    """Actions of operators, latest first. Pass `next` as `after` for the next page; null is the last page."""

    entries: list[AuditEntry]
    next: str | None


@pages.view("/audit", "audit.html")
def audit(scene: Scene, query: AuditQuery) -> AuditPage:
    """Actions of operators: who, what, when and why."""
    found = scene.operations.audit.list(after=query.after, limit=query.limit)
    return AuditPage([scene.redactor.entry(entry) for entry in found.entries], found.next)
