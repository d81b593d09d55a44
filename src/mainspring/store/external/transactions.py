"""The specification of transactions in which a user's function and the library write together.

`transact` begins a transaction, calls `work` in it, and commits. An exception of `work` rolls the transaction back and is raised. `Again`:
the database rolled the transaction back because of other transactions, and it can be retried at once. `StoreUnavailable`: the transaction
may have committed and the response was lost. A caller that must know has to look it up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.errors import InTransaction
from mainspring.model.clock import SystemClock
from mainspring.model.ids import IdMaker
from mainspring.store.external.colours import called, finished
from mainspring.store.external.tx import Wants, no_such
from mainspring.store.verbs.record import record_outcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractContextManager

    from mainspring.model.states import State
    from mainspring.store.external.engines import UsersEngine
    from mainspring.store.external.join import Joined
    from mainspring.store.external.sqlalchemy import Wrapped
    from mainspring.store.sealing.payloads import Payloads
    from mainspring.store.transaction import Script, Transaction
    from mainspring.store.writes import RecordStep

    Within = Callable[[], AbstractContextManager[Any]]
    """Opens a transaction on a connection of the user's, yields the connection, and commits or rolls back."""

T = TypeVar("T")


class Session(ABC):
    """One open transaction, in the app's database or another: the connection for the user's function, and the library's access to it."""

    def __init__(self, wrapped: Wrapped | None = None) -> None:
        self._wrapped: Wrapped | None = wrapped
        """SQLAlchemy's connections and sessions for the function, if it wants one."""
        self.joined_if_any: Joined | None = None
        """The transaction for the library's verbs, if any was called."""

    @property
    def joined(self) -> Joined:
        """The transaction for the library's verbs, created on first use: most transactions call none."""
        if self.joined_if_any is None:
            self.joined_if_any = self._join()
        return self.joined_if_any

    @abstractmethod
    def _join(self) -> Joined:
        """The transaction for the library's verbs, at the first use of it."""

    def give(self, wants: Wants) -> Any:
        """The connection or session that a function in this transaction is given. Raises `InTransaction` if there is none of that kind."""
        if self._wrapped is None:
            raise no_such(wants)
        return self._wrapped.give(wants)

    async def flush(self) -> None:
        """Send pending statements of an ORM, and check that the function has left the transaction open."""
        if self._wrapped is not None:
            await self._wrapped.flush()
        self.require_open()

    @abstractmethod
    def require_open(self) -> None:
        """Raise if the transaction has ended or failed."""

    async def record(self, write: RecordStep, now: int) -> State | None:
        """Record the outcome in the app's own database; see `mainspring.store.verbs.record.record_outcome`.

        This is the last statement of the transaction, which may be committed in the same round trip.
        """
        joined = self.joined
        return await joined.run_async(lambda tx: record_outcome(tx, write, joined.started), now)


class JoinedSession(Session):
    """A transaction on a user's connection. Functions are given the connections and sessions of `wrapped`, if there is one."""

    def __init__(self, joined: Joined, wrapped: Wrapped | None = None) -> None:
        super().__init__(wrapped)
        self._given = joined

    def _join(self) -> Joined:
        return self._given

    def give(self, wants: Wants) -> Any:
        if self._wrapped is not None:
            return self._wrapped.give(wants)
        if wants is not Wants.NOTHING:
            raise InTransaction(
                f"a transaction that wants a {wants.value} is called inside one on a connection of yours (within=); "
                "call them one after the other"
            )
        return None

    def require_open(self) -> None:
        """Do nothing: the owner of the connection looks after the transaction."""


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

    def transact(self, work: Callable[[Session], T], wants: Wants = Wants.TX, isolation: str | None = None) -> T:
        """Call `work` in a transaction, on a blocking connection."""
        return finished(self.atransact(called(work), wants, isolation))

    @abstractmethod
    async def atransact(self, work: Callable[[Session], Awaitable[T]], wants: Wants, isolation: str | None = None) -> T:
        """Call `work` in a transaction, on a connection of the kind that the function wants: blocking, or async on the running loop."""

    def transact_within(self, within: Within, work: Callable[[Session], T]) -> T:
        """Call `work` in a transaction that `within` opens on a user's blocking connection and commits."""
        return finished(self._transact_on(within(), called(work)))

    @abstractmethod
    async def _transact_on(
        self, opened: Any, work: Callable[[Session], Awaitable[T]], engine: UsersEngine | None = None
    ) -> T:
        """Call `work` in a transaction that a context manager opens on a user's connection: of the engine, or of `within`."""

    def store_id(self) -> str:
        """A permanent name of this database, created on first use. Of several processes that try, one succeeds."""
        if self._store_id is None:
            self._store_id = self.transact(lambda session: session.joined.run(_named))
        return self._store_id

    @abstractmethod
    def join(self, connection: Any) -> Joined:
        """Join the transaction that is open on a user's own connection. Begins one if the driver does not."""


def _named(tx: Transaction) -> Script[str]:
    yield from tx.execute(
        "INSERT INTO meta (key, value) VALUES ('store', :id) ON CONFLICT DO NOTHING", id=IdMaker(SystemClock()).new()
    )
    found: str = (yield from tx.execute("SELECT value FROM meta WHERE key = 'store'"))[0][0]
    return found
