"""Changing a set of runs all at once or not at all, without ever waiting while holding.

A tree that is cancelled has its parents before its children; a child that ends is held before its parent is woken. Whoever
waited for the next row with the first one in hand would sooner or later meet somebody who goes the other way. So the set is
locked as far as it is free; if somebody has part of it, everything is let go, that part is waited for alone, and it begins
anew. After a while of bad luck it does wait with its hands full, in order of id: the others give up after a moment.

Where the rest can be changed later, as soon as it is looked for again, the part that is free is changed (`part`): a run that a
frozen process has locked must not hold up the recovery of all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.store.postgres.claims import wait_for
from mainspring.store.postgres.database import LOCKED
from mainspring.store.postgres.news import News
from mainspring.store.postgres.one import Held, One

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.store.postgres.database import Connection, Database
    from mainspring.store.postgres.dialect import Dialect

T = TypeVar("T")

_POLITE = 20
_PART = 5
"""How often to wait for the whole set where a part of it will do."""
_LOCK = "SELECT id FROM runs WHERE id = ANY(:ids) ORDER BY id FOR NO KEY UPDATE"


class Whole:
    """One change of a set of runs: `find` says which, `act` changes them and tells the news."""

    def __init__(self, database: Database, dialect: Dialect, origin: str) -> None:
        self._db = database
        self._sql = dialect
        self._origin = origin

    def change(
        self, find: str, values: dict[str, Any], act: Callable[[Change], T], *, part: bool = False
    ) -> tuple[T, News]:
        tries = 0
        with self._db.connection() as db:
            while True:
                tries += 1
                change = Change(db, self._sql, values)
                try:
                    with db.transaction():
                        polite = part or tries <= _POLITE
                        change.values["locked"] = self._lock(
                            db, find, values, polite=polite, part=part and tries > _PART
                        )
                        answer = act(change)
                        if change.news.ended:
                            change.news.due = True  # some of them may be a schedule's
                            One(db, self._sql, values["now"], change.news).unblock(change.news.ended)
                        change.news.notify(db, self._sql, self._origin)
                except Held as held:
                    for run in held.runs:
                        wait_for(db, self._sql, run)
                except LOCKED:
                    pass
                else:
                    return answer, change.news

    def _lock(self, db: Connection, find: str, values: dict[str, Any], *, polite: bool, part: bool) -> list[str]:
        """Lock all that is found, and look again until nothing new turns up: a locked run starts no more children.

        What turns up later is out of order, so that is never waited for. With `part`, only what is free.
        """
        locked: set[str] = set()
        lock = f"{_LOCK} SKIP LOCKED" if polite else _LOCK
        while fresh := {row[0] for row in db.execute(self._sql(find), values)} - locked:
            got = {row[0] for row in db.execute(self._sql(lock), {"ids": list(fresh)})}
            if part:
                return list(got)
            if got != fresh:
                raise Held(fresh - got)
            locked |= got
            lock = f"{_LOCK} SKIP LOCKED"
        return list(locked)


class Change:
    """What `act` works with: the transaction, and the news it makes."""

    def __init__(self, connection: Connection, dialect: Dialect, values: dict[str, Any]) -> None:
        self._db = connection
        self._sql = dialect
        self.values = dict(values)
        """Those of the verb, and `locked`: the runs that are held. No others may be changed: that would be to wait for them."""
        self.news = News()

    def rows(self, statement: str, **more: Any) -> list[tuple[Any, ...]]:
        """Execute a statement with the values of the change, and some of its own."""
        done = self._db.execute(self._sql(statement), self.values | more)
        return done.fetchall() if done.description else []

    def ended(self, run: str) -> None:
        self.news.ended.add(run)

    def ready(self) -> None:
        """There will be runs to claim."""
        self.news.ready = True
