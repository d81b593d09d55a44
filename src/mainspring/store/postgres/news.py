"""What a transaction will have changed for somebody who waits, and how other processes are told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mainspring.store.protocol import Signal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainspring.store.messages import Heard
    from mainspring.store.postgres.database import Connection
    from mainspring.store.postgres.dialect import Dialect
    from mainspring.store.protocol import Poke

LONGEST_PAYLOAD = 7_000
"""PostgreSQL refuses more than 8,000 bytes in one notification."""
NOTIFY = "SELECT pg_notify(:channel, :payload)"
ECHO = "echo"
"""What a listener says to itself, to find out whether it can hear."""
EVERYTHING = Signal(ready=True, ended=None, poked=None, due=True, said=None)
LOST = replace(EVERYTHING, lost=True)


@dataclass(slots=True)
class News:
    """Collected while a transaction is open, told to others within it and to this process after it."""

    ready: bool = False
    ended: set[str] = field(default_factory=set[str])
    poked: set[str] = field(default_factory=set[str])
    stops: list[Poke] = field(default_factory=list["Poke"])
    due: bool = False
    """There may be schedules to look at."""
    said: set[Heard] = field(default_factory=set["Heard"])

    def __bool__(self) -> bool:
        return self._for_others or bool(self.said)

    @property
    def _aloud(self) -> bool:
        """Whether something was said that somebody outside runs may wait for. Messages are heard by pokes alone."""
        return any(kind in {"event", "stream", "answer"} for _, kind, _ in self.said)

    @property
    def _for_others(self) -> bool:
        return self.ready or self.due or bool(self.ended) or bool(self.poked) or self._aloud

    def woken(self, owners: Iterable[str | None]) -> None:
        """Runs were woken: those without an owner can be claimed now, the others' owners are to look."""
        for owner in owners:
            if owner is None:
                self.ready = True
            else:
                self.poked.add(owner)

    def add(self, other: News) -> None:
        self.ready = self.ready or other.ready
        self.due = self.due or other.due
        self.ended |= other.ended
        self.poked |= other.poked
        self.stops += other.stops
        self.said |= other.said

    def signal(self) -> Signal:
        ended, poked, said = frozenset(self.ended), frozenset(self.poked), frozenset(self.said)
        return Signal(ready=self.ready, ended=ended, poked=poked, stops=tuple(self.stops), due=self.due, said=said)

    def payload(self, origin: str) -> str:
        """Tokens, the sender's first: "r" there are runs to claim, "s" schedules to look at, "e" runs that ended, "v" something was
        said, "p=…" a worker's run was poked.
        """
        tokens = [origin]
        if self.ready:
            tokens.append("r")
        if self.due:
            tokens.append("s")
        if self.ended:
            tokens.append("e")
        if self._aloud:
            tokens.append("v")
        tokens.extend(f"p={worker}" for worker in sorted(self.poked))
        text = " ".join(tokens)
        return text if len(text.encode()) <= LONGEST_PAYLOAD else f"{origin} r s e v p"

    def notify(self, connection: Connection, dialect: Dialect, origin: str) -> None:
        """Tell other processes, when and if the open transaction commits."""
        if self._for_others:
            connection.execute(dialect(NOTIFY), {"channel": dialect.channel, "payload": self.payload(origin)})


def read(payload: str, origin: str) -> Signal | None:
    """What another process told; None for what this one sent, which it has already heard of in more detail."""
    sender, *tokens = payload.split(" ")
    if sender == origin:
        return None
    named = frozenset(token[2:] for token in tokens if token.startswith("p="))
    return Signal(
        ready="r" in tokens,
        ended=None if "e" in tokens else frozenset(),
        poked=None if "p" in tokens else named,
        due="s" in tokens,
        said=None if "v" in tokens else frozenset(),
    )
