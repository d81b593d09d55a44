"""The audit log of operators' actions, and the sessions of users who are signed in."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from mainspring.operations.audit import AuditEntry
from mainspring.operations.sessions import SESSION_ACTIONS, Session
from mainspring.web.views import After, Body, NoQuery, Pages, PageSize, Reason, Scene

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


class SessionList(Struct):
    """The sessions that have not ended, latest first."""

    sessions: list[Session]


class EndingSessions(Body):
    """Sessions to end, and the reason."""

    ids: Annotated[list[Annotated[str, Meta(max_length=100)]], Meta(min_length=1, max_length=500)]
    reason: Reason | None = None


@pages.view("/sessions", "sessions.html", role="admin")
def sessions(scene: Scene, query: NoQuery) -> SessionList:
    """The users signed in with a token: since when, until when and from where."""
    del query
    return SessionList(scene.operations.sessions.list())


@pages.action(SESSION_ACTIONS["end"], lambda body: body.ids)
def end(scene: Scene, body: EndingSessions) -> dict[str, bool]:
    return scene.operations.sessions.end(body.ids)
