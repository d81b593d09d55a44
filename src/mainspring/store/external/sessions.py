"""Transactions in which a user's function and the library write together. What a store promises about them.

`transact` begins a transaction, has the work done in it, and commits it; whatever the work raises rolls it back and comes out
again. `Again` says that the database itself rolled it back, for the sake of others, and that it can be retried at once.
`StoreUnavailable` may mean that it committed and only the answer was lost: who must know has to look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from mainspring.model.clock import SystemClock
from mainspring.model.ids import IdMaker
from mainspring.store.external.tx import Wants

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractContextManager

    from mainspring.model.states import State
    from mainspring.store.external.engines import UsersEngine
    from mainspring.store.external.join import Joined
    from mainspring.store.sealing.payloads import Payloads
    from mainspring.store.writes import RecordStep

    Within = Callable[[], AbstractContextManager[Any]]
    """Opens a transaction on a connection of the user's, yields the connection, and commits or rolls back."""

T = TypeVar("T")


def named(session: Session) -> str:
    """The work of `store_id`: of several who want to give a name, one does."""
    execute = session.joined.executor.execute
    execute(
        "INSERT INTO meta (key, value) VALUES ('store', :id) ON CONFLICT DO NOTHING",
        {"id": IdMaker(SystemClock()).new()},
    )
    found: str = execute("SELECT value FROM meta WHERE key = 'store'", {})[0][0]
    return found


class Session(Protocol):
    """One open transaction: what the user's function gets of it, and the library's own way into it."""

    @property
    def joined(self) -> Joined:
        """The way in for verbs."""
        ...

    def give(self, wants: Wants) -> Any:
        """What a function that is part of this transaction is given. Raises `InTransaction` for what cannot be had here."""
        ...

    def flush(self) -> None:
        """Send what is still held back, as an ORM does, and see that the function has left the transaction open."""
        ...

    async def flush_async(self) -> None:
        """The same on a connection that is awaited."""
        ...

    def record(self, write: RecordStep, now: int) -> State | None:
        """Record the outcome of the transaction, as the last thing in it, blocking; see `mainspring.store.verbs.record.record_outcome`.

        It may be committed with that at once, so nothing may follow it.
        """
        ...


class Transactions(Protocol):
    """A database in which transactions can be made."""

    engine: UsersEngine | None
    """The user's own SQLAlchemy engine: functions that want SQLAlchemy's connections or sessions are given those of it."""
    payloads: Payloads | None
    """What seals the values that are written in transactions, if anything does."""

    def use(self, *, engine: UsersEngine | None = None, payloads: Payloads | None = None) -> None:
        """Set these two, before the first transaction."""
        ...

    def transact(self, work: Callable[[Session], T], wants: Wants = Wants.TX, isolation: str | None = None) -> T:
        """Do `work` in a transaction, blocking."""
        ...

    def transact_within(self, within: Within, work: Callable[[Session], T]) -> T:
        """Do `work` in a transaction that `within` opens on a connection of the user's and commits, blocking."""
        ...

    async def atransact(
        self,
        work: Callable[[Session], Awaitable[T]],
        wants: Wants = Wants.PSYCOPG_ASYNC,
        isolation: str | None = None,
    ) -> T:
        """The same on the running loop, where the database's driver can."""
        ...

    def store_id(self) -> str:
        """A name for this database that stays with it, made when it is first asked for."""
        ...

    def join(self, connection: Any) -> Joined:
        """A way into the transaction that is open on a user's own connection. Begins one where the driver leaves that to us."""
        ...
