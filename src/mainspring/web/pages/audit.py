"""The audit log of operators' actions."""

from __future__ import annotations

from msgspec import Struct

from mainspring.operations.audit import AuditEntry
from mainspring.web.views import After, Pages, PageSize, Scene

pages = Pages()


class DeedQuery(Struct):
    """A part of the audit log."""

    after: After | None = None
    limit: PageSize = 50


class DeedList(Struct):
    """Actions of operators, latest first. Pass `next` as `after` for the next page; null is the last page."""

    deeds: list[AuditEntry]
    next: str | None


@pages.view("/audit", "audit.html")
def audit(scene: Scene, query: DeedQuery) -> DeedList:
    """Actions of operators: who, what, when and why."""
    found = scene.operations.audit.list(after=query.after, limit=query.limit)
    return DeedList([scene.redactor.deed(deed) for deed in found.deeds], found.next)
