"""The specification of transactions in which a user's function and the library write together.

`transact` begins a transaction, calls `work` in it, and commits. An exception of `work` rolls the transaction back and is raised. `Again`:
the database rolled the transaction back because of other transactions, and it can be retried at once. `StoreUnavailable`: the transaction
may have committed and the response was lost. A caller that must know has to look it up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
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


class OpenSession(Protocol):
    """One open transaction, in the app's database or another: the connection for the user's function, and the library's access to it."""

    @property
    def joined(self) -> Joined:
        """The transaction for the library's verbs."""
        ...

    def give(self, wants: Wants) -> Any:
        """The connection or session that a function in this transaction is given. Raises `InTransaction` if there is none of that kind."""
        ...

    def flush(self) -> None:
        """Send pending statements of an ORM, and check that the function has left the transaction open."""
        ...

    async def flush_async(self) -> None:
        """Send pending statements of an ORM on an async connection, and check that the transaction is open."""
        ...


class Session(OpenSession, Protocol):
    """An open transaction in the app's own database."""

    def record(self, write: RecordStep, now: int) -> State | None:
        """Record the outcome as the last statement of the transaction; see `mainspring.store.verbs.record.record_outcome`.

        The transaction may be committed in the same round trip, so no statement may follow.
        """
        ...


class Transactions(ABC):
    """A database in which users' transactions are executed: what is the same on both databases."""

    engine: UsersEngine | None = None
    """The user's own SQLAlchemy engine, which provides SQLAlchemy's connections and sessions to functions."""
    payloads: Payloads | None = None
    """The codec that seals values which are written in transactions, if there is one."""
    _store_id: str | None = None

    def use(self, *, engine: UsersEngine | None = None, payloads: Payloads | None = None) -> None:
        """Set the engine and the codec, before the first transaction."""
        self.engine, self.payloads = engine or self.engine, payloads or self.payloads

    @abstractmethod
    def transact(self, work: Callable[[Session], T], wants: Wants = Wants.TX, isolation: str | None = None) -> T:
        """Call `work` in a transaction, on a blocking connection."""

    @abstractmethod
    async def atransact(self, work: Callable[[Session], Awaitable[T]], wants: Wants, isolation: str | None = None) -> T:
        """Call `work` in a transaction on the running loop, if the database's driver has async connections."""

    def transact_within(self, within: Within, work: Callable[[Session], T]) -> T:
        """Call `work` in a transaction that `within` opens on a user's blocking connection and commits."""
        return self._transact_on(within(), work, on_engine=False)

    @abstractmethod
    def _transact_on(self, opened: AbstractContextManager[Any], work: Callable[[Session], T], *, on_engine: bool) -> T:
        """Call `work` in a transaction that is opened on a user's connection."""

    def store_id(self) -> str:
        """A permanent name of this database, created on first use. Of several processes that try, one succeeds."""
        if self._store_id is None:
            self._store_id = self.transact(_named)
        return self._store_id

    @abstractmethod
    def join(self, connection: Any) -> Joined:
        """Join the transaction that is open on a user's own connection. Begins one if the driver does not."""


def _named(session: Session) -> str:
    execute = session.joined.executor.execute
    execute(
        "INSERT INTO meta (key, value) VALUES ('store', :id) ON CONFLICT DO NOTHING",
        {"id": IdMaker(SystemClock()).new()},
    )
    found: str = execute("SELECT value FROM meta WHERE key = 'store'", {})[0][0]
    return found
