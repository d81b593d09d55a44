"""Transactions in another database than the app's: a table of outcomes in that database says which of them have committed.

The outcome of a transaction is a row of that table, committed with the user's rows. Then the outcome is recorded in the app's database.
A worker that does not know how far an earlier attempt came, after a crash or a lost answer, looks the row up first. Two workers that
race for one transaction insert the same row: one of them commits it, the other is rolled back and takes over the outcome it finds.

The row is deleted once the outcome is recorded, so the row alone does not stop a worker that was frozen and whose run another worker
has taken over. So a worker checks in the app's database that it still owns the run, after it has inserted the row and before it
commits. If it does, a later owner waits for the row or finds it. If it does not, it rolls back.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from msgspec import Struct

from mainspring.errors import InvalidInput
from mainspring.store.external import outcomes
from mainspring.store.external.colours import finished, run_script_async
from mainspring.store.external.outcomes import Key, Outcome
from mainspring.store.external.tx import Again, Wants
from mainspring.store.open import shown, sqlite_path

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence

    from mainspring.store.external.backends import Backend
    from mainspring.store.external.transactions import Session, Transactions
    from mainspring.store.transaction import Script

T = TypeVar("T")

_FORGOTTEN_AT_ONCE = 20
_CREATIONS = 5
_TAKEN = {"23505", "42P07", "42710"}  # a row, a table, or the type that every table of PostgreSQL has
_SWEPT_AT_ONCE = 100


class _NotMade(Exception):
    """Rolls back a row that was inserted only to find out whether it exists."""


class Way(Struct, frozen=True):
    """How to execute a transaction once. `look`: look up its outcome first. `store` names the app's database.

    `idle` is the number of seconds that the transaction may be idle while others wait for its row.
    """

    key: Key
    store: str
    isolation: str | None
    look: bool
    idle: float


class OtherDatabase:
    """Another database, by its URL or a SQLAlchemy engine. Connects when first used."""

    def __init__(self, database: Any) -> None:
        self.database = database
        self._backend: Backend | None = None
        self._ready = False
        self._lock = threading.Lock()
        self._recorded: deque[Key] = deque()
        if isinstance(database, str):
            _check_url(database)
        elif not hasattr(database, "dialect") or not hasattr(database, "connect"):
            raise InvalidInput(f"database= takes a URL or a SQLAlchemy engine, not {database!r}")

    def __repr__(self) -> str:
        return shown(self.database) if isinstance(self.database, str) else str(self.database.url)

    @property
    def can_be_awaited(self) -> bool:
        """Whether `async def` functions can make transactions in it."""
        return self._is_async_engine or (isinstance(self.database, str) and urlsplit(self.database).scheme != "sqlite")

    @property
    def _is_async_engine(self) -> bool:
        return hasattr(self.database, "sync_engine")

    async def transact(self, work: Callable[[Session], Awaitable[T]], wants: Wants, isolation: str | None) -> T:
        """Execute a transaction without recording its outcome, on a connection of the kind that the function wants."""
        return await self._backend_for(wants).atransact(work, wants, isolation)

    async def once(
        self,
        way: Way,
        work: Callable[[Session], Awaitable[Outcome]],
        wants: Wants,
        check: Callable[[], Awaitable[None]],
    ) -> Outcome:
        """Execute a transaction and commit its outcome with it, or take over the outcome if it has committed before.

        `check` is called after the row of the outcome is inserted, and raises if the transaction must not commit. Until this one ends,
        no other worker can commit the same transaction.
        """
        if not self._ready:
            await asyncio.to_thread(self._make_ready) if wants.is_awaited else self._make_ready()
        backend = self._backend_for(wants)

        async def within(session: Session) -> Outcome:
            executor = session.joined.executor
            await run_script_async(outcomes.forget(done), executor)
            if way.look and (found := await run_script_async(outcomes.look(way.key), executor)):
                return found
            outcome = await work(session)
            with _taken_means_again():
                await run_script_async(_kept(way, outcome, backend), executor)
            await check()
            return outcome

        with self._forgetting() as done:
            return await backend.atransact(within, wants, way.isolation)

    def find(self, way: Way) -> Outcome | None:
        """The outcome of a transaction whose response was lost; None: it has not committed and never will.

        The insert of its row waits until an attempt that is still open has committed or rolled back.
        """
        backend = self._blocking()

        async def within(session: Session) -> Outcome:
            found = await run_script_async(outcomes.look(way.key), session.joined.executor)
            if found is None:
                with _taken_means_again():
                    await run_script_async(_kept(way, Outcome("", ""), backend), session.joined.executor)
                raise _NotMade
            return found

        while True:
            try:
                return finished(backend.atransact(within, Wants.TX, None))
            except _NotMade:
                return None
            except Again:
                continue

    def recorded(self, key: Key) -> None:
        """Note that the outcome is recorded in the app's own database. The next transaction deletes its row in this one."""
        self._recorded.append(key)

    def sweep(self, own: Transactions) -> int:
        """Delete the rows that no run needs. Return their number.

        These are outcomes recorded by a process that died before it deleted the row, and those of deleted runs.
        """
        self._make_ready()
        there = self._run(outcomes.left(own.store_id()))
        count = 0
        for first in range(0, len(there), _SWEPT_AT_ONCE):
            useless = own.transact(partial(_no_longer_needed, there[first : first + _SWEPT_AT_ONCE]))
            if useless:
                self._run(outcomes.forget(useless))
            count += len(useless)
        return count

    def _run(self, script: Script[T]) -> T:
        """Run a script in a transaction of its own, on a blocking connection."""
        return finished(
            self._blocking().atransact(
                lambda session: run_script_async(script, session.joined.executor), Wants.TX, None
            )
        )

    @contextlib.contextmanager
    def _forgetting(self) -> Generator[list[Key]]:
        """Some of the rows to delete, for a transaction that is executed anyway."""
        some: list[Key] = []
        with contextlib.suppress(IndexError):  # other threads take from it at the same time, so its length is no check
            while len(some) < _FORGOTTEN_AT_ONCE:
                some.append(self._recorded.popleft())
        try:
            yield some
        except BaseException:
            self._recorded.extend(some)
            raise

    def close(self) -> None:
        with self._lock:
            backend, self._backend, self._ready = self._backend, None, False
        if backend is not None:
            backend.close()

    def _blocking(self) -> Backend:
        with self._lock:
            if self._backend is None:
                from mainspring.store.external.backends import backend_of  # noqa: PLC0415  (only where it is used)

                self._backend = backend_of(self.database)
            return self._backend

    def _backend_for(self, wants: Wants) -> Backend:
        if wants.is_awaited and self._is_async_engine:
            from mainspring.store.external.backends import EngineBackend  # noqa: PLC0415  (only where it is used)

            return EngineBackend(self.database)
        return self._blocking()

    def _make_ready(self) -> None:
        """Create the table of outcomes, if it does not exist. Of several processes that try at once, some fail and retry."""
        if self._ready:
            return
        for left in reversed(range(_CREATIONS)):
            try:
                self._run(outcomes.create())
                break
            except Exception as error:
                if not left or not (_is_taken(error) or isinstance(error, Again)):
                    raise
        self._ready = True


def _check_url(url: str) -> None:
    if urlsplit(url).scheme not in {"sqlite", "postgresql", "postgres"}:
        raise InvalidInput(
            f"database={shown(url)!r} is neither sqlite:///… nor postgresql://…; for another one give a SQLAlchemy engine"
        )
    if urlsplit(url).scheme == "sqlite" and not sqlite_path(url):
        raise InvalidInput(f"database={url!r} is a temporary database; name a file")


def _kept(way: Way, outcome: Outcome, backend: Backend) -> Script[None]:
    return outcomes.keep(way.key, way.store, outcome, way.idle if backend.on_postgres else None)


@contextlib.contextmanager
def _taken_means_again() -> Generator[None]:
    try:
        yield
    except Exception as error:
        if _is_taken(error):
            raise Again(f"another attempt has made this transaction: {error}") from error
        raise


def _is_taken(error: BaseException) -> bool:
    found = getattr(error, "orig", None) or error
    names = {kind.__name__ for kind in type(found).__mro__}
    state = getattr(found, "sqlstate", None)
    return state in _TAKEN if state else "IntegrityError" in names


def _no_longer_needed(keys: Sequence[Key], session: Session) -> list[Key]:
    return session.joined.run(lambda tx: outcomes.no_longer_needed(tx, keys))
