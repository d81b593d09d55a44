"""One open transaction on SQLite: what it has done so far, and what there is to tell the world once it is committed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mainspring.model.states import State
from mainspring.store.ops import Verdict
from mainspring.store.protocol import Signal
from mainspring.store.sqlite.statements import UNBLOCK, WAITERS, WAITERS_FOR_ONE

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable

    from mainspring.store.messages import Heard
    from mainspring.store.protocol import Poke


class Doing:
    """What all writes have in common."""

    def __init__(self, connection: sqlite3.Connection, now: int) -> None:
        self._db = connection
        self._now = now
        self.ready = False
        self.due = False
        """Schedules may be due."""
        self.ended: set[str] = set()
        self.poked: set[str] = set()
        self.stops: list[Poke] = []
        self.said: set[Heard] = set()

    def signal(self) -> Signal:
        """What there is to tell once it is committed."""
        ended, poked, said = frozenset(self.ended), frozenset(self.poked), frozenset(self.said)
        return Signal(ready=self.ready, ended=ended, poked=poked, stops=tuple(self.stops), due=self.due, said=said)

    def ask(self, text: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        return self._db.execute(text, values).fetchall()

    def _note_new(self, owners: Iterable[str | None]) -> None:
        self.ready = self.ready or any(owner is None for owner in owners)

    def _fence(self, run: str, owner: str, epoch: int) -> Verdict:
        row = self._db.execute("SELECT owner, epoch, state FROM runs WHERE id = ?", (run,)).fetchone()
        if row is None or row[:2] != (owner, epoch) or State(row[2]).ended:
            return Verdict.FENCED
        return Verdict.STOPPING if row[2] == State.CANCELLING else Verdict.DONE

    def unblock(self, ended: Collection[str], told: Iterable[str] = ()) -> None:
        """Wake the runs that wait for runs that have ended: queue the parked, poke those in a worker's hand."""
        if len(ended) == 1:
            found = self._db.execute(WAITERS_FOR_ONE, tuple(ended))
        else:
            found = self._db.execute(WAITERS, (json.dumps(list(ended)),))
        self._wake([row[0] for row in found], told)

    def _wake(self, waiters: list[str], told: Iterable[str] = ()) -> None:
        if waiters:
            for (owner,) in self._db.execute(
                UNBLOCK, (self._now, json.dumps(waiters), json.dumps(list(told)))
            ).fetchall():
                if owner is None:
                    self.ready = True
                else:
                    self.poked.add(owner)
