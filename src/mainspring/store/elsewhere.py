"""Transactions in a database that is not the app's own: the table of outcomes there says which of them have been committed.

A transaction's outcome is a row there, committed with the user's rows. Then it is recorded here. Whoever comes in between and
does not know how far it went, after a crash or a lost answer, looks there first. Two who race for one transaction want the same
row; one of them gets it, the other one is rolled back and takes over what it finds.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from msgspec import Struct

from mainspring.errors import InvalidInput
from mainspring.store.open import shown, sqlite_path
from mainspring.store.places import AlchemyPlace, SqlitePlace
from mainspring.store.transactions import Again, Wants

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.store.places import ElsewhereSession, Place

T = TypeVar("T")

TABLE = "mainspring_outcomes"
_CREATE = f"""
  CREATE TABLE IF NOT EXISTS {TABLE} (
    run        VARCHAR(64) NOT NULL,
    generation VARCHAR(32) NOT NULL,
    position   VARCHAR(250) NOT NULL,
    output     TEXT NOT NULL,
    deferred   TEXT NOT NULL,
    PRIMARY KEY (run, generation, position))
"""
_LOOK = f"SELECT output, deferred FROM {TABLE} WHERE run = :run AND generation = :generation AND position = :position"
_KEEP = f"INSERT INTO {TABLE} VALUES (:run, :generation, :position, :output, :deferred)"
_FORGET = f"DELETE FROM {TABLE} WHERE run = :run AND generation = :generation AND position = :position"
_FORGOTTEN_AT_ONCE = 20


class Key(Struct, frozen=True):
    """Which transaction it is: of which run (by its uid), begun anew how often, at which position."""

    run: str
    generation: str
    position: str

    def values(self) -> dict[str, Any]:
        return {"run": self.run, "generation": self.generation, "position": self.position}


class Outcome(Struct, frozen=True):
    """What a transaction returned, as JSON, and what it wants to happen in the app's own database."""

    output: str
    deferred: str


class Elsewhere:
    """Another database, by its URL or by a SQLAlchemy engine. Connected to when first used."""

    def __init__(self, database: Any) -> None:
        self.database = database
        self._place: Place | None = None
        self._ready = False
        self._lock = threading.Lock()
        self._recorded: deque[Key] = deque()
        if isinstance(database, str):
            _check_url(database)
        elif not hasattr(database, "dialect") or not hasattr(database, "connect"):
            raise InvalidInput(f"database= takes a URL or a SQLAlchemy engine, not {database!r}")

    def __repr__(self) -> str:
        return shown(self.database) if isinstance(self.database, str) else str(self.database.url)

    def transact(self, work: Callable[[ElsewhereSession], T], wants: Wants, isolation: str | None) -> T:
        """A transaction that nobody records."""
        return self._at().transact(work, wants, isolation)

    def once(
        self,
        key: Key,
        work: Callable[[ElsewhereSession], Outcome],
        wants: Wants,
        isolation: str | None,
        *,
        look: bool,
    ) -> Outcome:
        """Make a transaction whose outcome is committed with it; or, with `look`, take over the outcome if it was made before."""
        self._make_ready()
        forget = [self._recorded.popleft() for _ in range(min(len(self._recorded), _FORGOTTEN_AT_ONCE))]

        def within(session: ElsewhereSession) -> Outcome:
            if look and (rows := session.tongue.ask(_LOOK, key.values())):
                return Outcome(*rows[0])
            outcome = work(session)
            try:
                session.tongue.ask(_KEEP, {**key.values(), "output": outcome.output, "deferred": outcome.deferred})
            except Exception as error:
                if _is_taken(error):
                    raise Again(f"somebody else has made this transaction: {error}") from error
                raise
            for each in forget:
                session.tongue.ask(_FORGET, each.values())
            return outcome

        try:
            return self._at().transact(within, wants, isolation)
        except BaseException:
            self._recorded.extend(forget)
            raise

    def recorded(self, key: Key) -> None:
        """It is recorded in the app's own database: its row there can go, with the next transaction."""
        self._recorded.append(key)

    def close(self) -> None:
        with self._lock:
            place, self._place, self._ready = self._place, None, False
        if place is not None:
            place.close()

    def _at(self) -> Place:
        with self._lock:
            if self._place is None:
                self._place = _place(self.database)
            return self._place

    def _make_ready(self) -> None:
        """Make the table of outcomes, if it is not there. Several may try at once; one of them is refused, and that is fine."""
        if self._ready:
            return
        for attempt in (1, 2):
            try:
                self._at().transact(lambda session: session.tongue.ask(_CREATE, {}), Wants.TX, None)
            except Exception as error:
                if attempt == 2 or not (_is_taken(error) or isinstance(error, Again)):
                    raise
        self._ready = True


def _check_url(url: str) -> None:
    if urlsplit(url).scheme not in {"sqlite", "postgresql", "postgres"}:
        raise InvalidInput(
            f"database={url!r} is neither sqlite:///… nor postgresql://…; for another one give a SQLAlchemy engine"
        )
    if urlsplit(url).scheme == "sqlite" and not sqlite_path(url):
        raise InvalidInput(f"database={url!r} is a temporary database; name a file")


def _place(database: Any) -> Place:
    if not isinstance(database, str):
        return AlchemyPlace(database)
    if urlsplit(database).scheme == "sqlite":
        return SqlitePlace(sqlite_path(database))
    from mainspring.store.postgres.elsewhere import PostgresPlace  # noqa: PLC0415  (only the driver in use is loaded)

    return PostgresPlace(database)


def _is_taken(error: BaseException) -> bool:
    found = getattr(error, "orig", None) or error
    names = {kind.__name__ for kind in type(found).__mro__}
    state = getattr(found, "sqlstate", None)
    return state in {"23505", "42P07"} if state else "IntegrityError" in names
