"""Django's transactions: those that are open at a start, and those that `@app.atomic` opens."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any

from django.db import Error, connections, transaction

from mainspring.errors import InTransaction, StoreUnavailable
from mainspring.store.external.tx import Again

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_ROLLED_BACK = {"40001", "40P01"}  # serialization failure, deadlock
_MARKED = (
    "the transaction is marked for rollback, because an exception left an inner atomic block that has no savepoint, or by "
    "set_rollback(True), so it would not be committed; let the exception through"
)
_IN_BODY = (
    "a transaction of Django's is open in the body of a workflow, which would make it again in every replay, and would keep the run "
    "from being recorded; leave out transaction.atomic there, and call a function with @app.atomic"
)
_PLAIN = (
    "a query of Django's inside @app.transaction is on another connection, and would commit without the transaction; "
    "write @app.atomic and leave out the first parameter, or use what the function is given"
)


def open_on(alias: str) -> bool:
    """Whether a transaction is open on this thread's connection to a database."""
    connection = connections[alias]
    return connection.in_atomic_block or (connection.connection is not None and not connection.get_autocommit())


def open_elsewhere(alias: str | None) -> list[str]:
    """Return the other databases on which a transaction is open on this thread."""
    return [
        each.alias for each in connections.all(initialized_only=True) if each.alias != alias and each.in_atomic_block
    ]


def refuse_open(alias: str) -> None:
    """Refuse an open transaction on this thread: a run's record could not be committed, or would wait for it for ever."""
    if open_on(alias):
        raise InTransaction(_IN_BODY)


@contextlib.contextmanager
def opened(alias: str) -> Generator[Any]:
    """Open a transaction of its own, never nested in another one, so that leaving the block commits."""
    connection = connections[alias]
    connection.close_if_unusable_or_obsolete()
    raw: Any = None
    try:
        with transaction.atomic(using=alias):
            raw = connection.connection
            yield raw
            if connection.needs_rollback:
                raise InTransaction(_MARKED)
    except Error as error:
        raise _judged(error, raw) from error


def _judged(error: Error, raw: Any) -> BaseException:
    """Map a database error: `Again` after a conflict, `StoreUnavailable` if it is busy or disconnected, else the error itself."""
    cause = error.__cause__
    if getattr(cause, "sqlstate", None) in _ROLLED_BACK:
        return Again(str(error))
    if getattr(cause, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
        return StoreUnavailable(f"the database is busy: {error}")
    if raw is None or getattr(raw, "closed", False):
        return StoreUnavailable(f"the connection to the database was lost: {error}")
    return error


@contextlib.contextmanager
def refusing_queries(alias: str) -> Generator[None]:
    """Refuse Django's own queries where they would not be part of the open transaction."""

    def refuse(execute: Callable[..., Any], *args: Any) -> Any:
        del execute, args
        raise InTransaction(_PLAIN)

    with connections[alias].execute_wrapper(refuse):
        yield
