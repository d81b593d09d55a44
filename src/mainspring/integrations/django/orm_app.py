"""An app in a database of Django's: transactions with the ORM, and Django's connection handling around functions."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from asgiref.sync import sync_to_async
from django.db import close_old_connections, connections

from mainspring.app.app import App
from mainspring.engine.replay.context import StepScope, TransactionScope, current
from mainspring.errors import InTransaction, InvalidInput
from mainspring.integrations.django import atomic
from mainspring.integrations.django.conf import IMMEDIATE, JOIN, configuration, database_url
from mainspring.model.clock import to_datetime
from mainspring.store.changes import Signal

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from datetime import datetime

    from mainspring.app.caller.in_transaction import JoinedBlock
    from mainspring.app.functions.functions import SyncFn
    from mainspring.app.functions.scope import Decorator
    from mainspring.engine.registry import Function
    from mainspring.integrations.django.conf import Configuration

P = ParamSpec("P")
R = TypeVar("R")


class OrmApp(App):
    """An app whose tables are in a database of Django's.

    `@app.atomic` is a transaction with the ORM. Connections that are too old or broken are closed around runs, as Django does around
    requests.
    """

    def __init__(self) -> None:
        found = configuration()
        super().__init__(
            lambda: database_url(self.configuration),
            name=found.name,
            version=found.version,
            settings=found.settings,
            imports=found.imports,
        )
        self.configuration: Configuration = found
        self.closes_connections = False
        """Whether to close all connections of a thread after each run, so that a test database can be dropped."""

    @property
    def alias(self) -> str | None:
        """The alias of the Django database that has the app's tables, if they are in one."""
        return self.configuration.alias

    def now(self) -> datetime:
        """Return the time of the app's clock: in a test, virtual time."""
        return to_datetime(self._runtime.clock.now())

    # -- registering ---------------------------------------------------------------------------------------------------
    @overload
    def atomic(self, fn: Callable[P, R], /) -> SyncFn[P, R]: ...
    @overload
    def atomic(self, /, *, name: str | None = None) -> Decorator: ...
    def atomic(self, fn: Any = None, /, *, name: str | None = None) -> Any:
        """Register a transaction with the ORM: its function runs inside Django's `atomic`, and that commit records its outcome.

        In a workflow it commits exactly once. The runs that it starts and enqueues begin only if it commits. Called outside of
        runs inside an open transaction, it is part of that transaction, as a savepoint.
        """

        def decorate(fn: Any) -> Any:
            decorator: Any = self.transaction(within=self._opened, name=name)
            return decorator(fn)

        return decorate if fn is None else decorate(fn)

    @contextlib.contextmanager
    def _opened(self) -> Generator[Any]:
        try:
            with atomic.opened(self._own_alias("@app.atomic")) as connection:
                yield connection
        finally:
            self.close_connections()

    def _own_alias(self, what: str) -> str:
        if self.alias is None:
            raise InvalidInput(
                f"{what} needs the app's tables in a database of Django's, and MAINSPRING has a URL; name an alias with DATABASE"
            )
        return self.alias

    def _add(self, function: Function) -> None:
        function.fn = self._tidy_async(function) if function.is_async else self._tidy(function)
        super()._add(function)

    # -- transactions --------------------------------------------------------------------------------------------------
    def joined(self, connection: Any = None) -> JoinedBlock:
        """Make every verb inside the block part of a transaction: Django's own, unless another connection is given."""
        if connection is None:
            alias = self._own_alias("app.joined()")
            if not atomic.open_on(alias):
                raise InTransaction(
                    f"no transaction is open on the database {alias!r} here; open one with `with transaction.atomic():` first"
                )
            connection = connections[alias].connection
        return super().joined(connection)

    def notify(self) -> None:
        """Notify the worker in this process, if there is one, of runs to execute."""
        if self._runtime.engine is not None:
            self._runtime.connection().notify(Signal(ready=True))

    def joins(self, what: str) -> bool:
        """Whether a start is part of an open transaction of Django's. Raise an error for a transaction of another database."""
        if current.get() is not None and not isinstance(current.get(), StepScope):
            return False  # an operation of a run, or part of a transaction already
        alias, policy = self.alias, self.configuration.atomic
        if alias is not None and atomic.open_on(alias) and policy == JOIN:
            return True
        others = atomic.open_elsewhere(alias if policy == JOIN else None)
        if others and policy != IMMEDIATE:
            raise InTransaction(
                f"{what} is called inside a transaction of the database {', '.join(others)}, and the app's tables are in another one: it "
                "could commit without what it belongs to. Open a transaction on the app's database as well, start it with "
                'transaction.on_commit, or say what is to happen in settings: MAINSPRING["ATOMIC"] = "immediate"'
            )
        return False

    def _tidy(self, function: Function) -> Callable[..., Any]:
        """Wrap a `def` function: close Django's old connections before and after it, on the thread that executes it."""
        fn = function.fn
        plain = function.kind == "transaction" and function.within is None and function.database is None

        @functools.wraps(fn)
        def tidy(*args: Any, **kwargs: Any) -> Any:
            where = current.get()
            if isinstance(where, TransactionScope):
                return self._without_queries(fn, args, kwargs) if plain else fn(*args, **kwargs)
            if where is None:
                return fn(*args, **kwargs)
            close_old_connections()
            try:
                return fn(*args, **kwargs)
            finally:
                self.close_connections()

        return tidy

    def _tidy_async(self, function: Function) -> Callable[..., Any]:
        """Wrap an `async def` step: close Django's old connections before and after it, on Django's thread for queries."""
        fn = function.fn
        if function.kind != "step":
            return fn

        @functools.wraps(fn)
        async def tidy(*args: Any, **kwargs: Any) -> Any:
            if not isinstance(current.get(), StepScope):
                return await fn(*args, **kwargs)
            await sync_to_async(close_old_connections, thread_sensitive=True)()
            try:
                return await fn(*args, **kwargs)
            finally:
                await sync_to_async(self.close_connections, thread_sensitive=True)()

        return tidy

    def _without_queries(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function of a transaction that is not Django's, and refuse Django's queries in it."""
        if self.alias is None:
            return fn(*args, **kwargs)
        try:
            with atomic.refusing_queries(self.alias):
                return fn(*args, **kwargs)
        finally:
            self.close_connections()  # a refused query has opened a connection

    def close_connections(self) -> None:
        """Close the connections of this thread that are too old or broken."""
        close_old_connections()
        if self.closes_connections:
            for connection in connections.all(initialized_only=True):
                if not connection.in_atomic_block:
                    connection.close()
