"""Sessions of users who have signed in to the dashboard.

They are rows of the database, so every process that serves the dashboard knows them, and ending one ends it everywhere.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass
from datetime import datetime  # noqa: TC003  (pages are described by their annotations)
from typing import TYPE_CHECKING

from mainspring.model.clock import SECOND, to_datetime
from mainspring.operations.actions import Actions, Answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.model.clock import Clock
    from mainspring.store.protocol import Store

_SECRET_BYTES = 32
_ID_LENGTH = 32
SESSION_ACTIONS = Actions("sessions")


@dataclass(frozen=True, slots=True)
class Session:
    """A session. Its id is a digest of the secret in the browser's cookie, so that reading the table does not give access."""

    id: str
    who: str
    address: str | None
    """The address from which the user signed in."""
    began: datetime
    ends: datetime


class Sessions:
    """The sessions of one database. All verbs block."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store.audit
        self._clock = clock

    def begin(self, who: str, mark: str, *, address: str | None, seconds: int) -> str:
        """Begin a session, and delete expired ones. Return the secret of the session, of which the database keeps a digest."""
        now = self._clock.now()
        over = [key for key, value in self._store.sessions().items() if json.loads(value)["ends"] <= now]
        self._store.end_sessions(over)
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        kept = {"who": who, "mark": mark, "address": address, "began": now, "ends": now + seconds * SECOND}
        self._store.keep_session(_digest(secret), json.dumps(kept))
        return secret

    def find(self, secret: str) -> tuple[Session, str] | None:
        """Return the session of a secret, with the mark that it began with. None: there is no such session, or it has expired."""
        key = _digest(secret)
        value = self._store.session(key)
        if value is None or json.loads(value)["ends"] <= self._clock.now():
            return None
        return _session(key, value), json.loads(value)["mark"]

    def list(self) -> list[Session]:
        """Return the sessions that have not expired, latest first."""
        found = [_session(key, value) for key, value in self._store.sessions().items()]
        now = to_datetime(self._clock.now())
        return sorted((one for one in found if one.ends > now), key=lambda one: one.began, reverse=True)

    @SESSION_ACTIONS(lambda _, ended: _ended(ended), role="admin")
    def end(self, ids: Sequence[str]) -> dict[str, bool]:
        """End sessions: their cookies are no longer accepted. Return False for those that do not exist."""
        there = self._store.sessions()
        self._store.end_sessions([each for each in ids if each in there])
        return {each: each in there for each in ids}


def _ended(ended: dict[str, bool]) -> Answer:
    count = sum(ended.values())
    return Answer(f"{count} session{'' if count == 1 else 's'} ended", dict(ended))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()[:_ID_LENGTH]


def _session(key: str, value: str) -> Session:
    kept = json.loads(value)
    return Session(key, kept["who"], kept["address"], to_datetime(kept["began"]), to_datetime(kept["ends"]))
