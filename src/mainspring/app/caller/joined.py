"""`app.joined(connection)`: the verbs of the app as part of a transaction that the user has opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from mainspring.engine.replay.context import StepScope, TransactionScope, current
from mainspring.errors import InTransaction
from mainspring.store.external import sqlalchemy

if TYPE_CHECKING:
    from mainspring.app.runtime import Runtime


class JoinedBlock:
    """`with app.joined(connection):` or `async with`. What is started inside is there when, and only if, the user commits."""

    def __init__(self, runtime: Runtime, connection: Any) -> None:
        self._runtime = runtime
        self._connection = connection
        self._scope: TransactionScope | None = None

    def __enter__(self) -> Self:
        step = _step_here()
        beside = not self._runtime.is_connected and sqlalchemy.has_begun(self._connection)
        joined = self._runtime.connection(beside=beside).store.transactions.join(self._connection)
        joined.check()
        self._scope = TransactionScope(self._runtime, joined, step=step)
        self._scope.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._scope is not None:
            self._scope.__exit__(*exc)

    async def __aenter__(self) -> Self:
        beside = not self._runtime.is_connected and await sqlalchemy.has_begun_async(self._connection)
        await self._runtime.connected(beside=beside)
        self.__enter__()
        if self._scope is not None:
            try:
                await self._scope.joined.check_async()
            except BaseException:
                self.__exit__()
                raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.__exit__(*exc)


def _step_here() -> StepScope | None:
    """The step that the block stands in, if any. In a workflow's body, and in a transaction, it has no place."""
    where = current.get()
    if where is None or isinstance(where, StepScope):
        return where
    if isinstance(where, TransactionScope):
        raise InTransaction("a transaction is open here already, and everything inside is part of it")
    raise InTransaction(
        "in a workflow's own body a transaction would be executed again by every replay; "
        "use @app.transaction, or join inside a step"
    )
