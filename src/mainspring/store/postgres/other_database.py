"""Another PostgreSQL database than the app's own, for transactions of users' functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar

from mainspring.store.postgres.database import Database
from mainspring.store.postgres.dialect import Dialect
from mainspring.store.postgres.transactions import PostgresTransactions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mainspring.store.external.databases import AwaitedSession, ElsewhereSession
    from mainspring.store.external.sessions import Session
    from mainspring.store.external.tx import Wants
    from mainspring.store.transaction import AsyncExecutor, Executor

T = TypeVar("T")


class _Session:
    """An open transaction on a blocking connection to another database."""

    awaited: Literal[False] = False
    on_postgres = True

    def __init__(self, session: Session) -> None:
        self._session = session
        self.executor: Executor = session.joined.executor

    def give(self, wants: Wants) -> Any:
        return self._session.give(wants)

    def flush(self) -> None:
        self._session.flush()


class _Awaited:
    """An open transaction on an async connection to another database."""

    awaited: Literal[True] = True
    on_postgres = True

    def __init__(self, session: Session) -> None:
        self._session = session
        self.executor: AsyncExecutor = session.joined.async_executor

    def give(self, wants: Wants) -> Any:
        return self._session.give(wants)

    async def flush_async(self) -> None:
        await self._session.flush_async()


class PostgresPlace:
    """See `mainspring.store.external.other_database.Place`."""

    def __init__(self, url: str) -> None:
        self._transactions = PostgresTransactions(Database(url), Dialect("mainspring"), "", lambda _: None)

    def transact(self, work: Callable[[ElsewhereSession], T], wants: Wants, isolation: str | None) -> T:
        return self._transactions.transact(lambda session: work(_Session(session)), wants, isolation)

    async def atransact(self, work: Callable[[AwaitedSession], Awaitable[T]], wants: Wants, isolation: str | None) -> T:
        return await self._transactions.atransact(lambda session: work(_Awaited(session)), wants, isolation)

    def close(self) -> None:
        self._transactions.close()
