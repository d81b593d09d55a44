"""The sessions of users who are signed in, and ending them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from mainspring.operations.sessions import SESSION_ACTIONS, Session
from mainspring.web.views import Body, NoQuery, Pages, Reason, Scene

pages = Pages()


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
