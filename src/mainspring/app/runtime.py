"""What stands behind an app's functions and handles: its registry, its connection, and those who act on them."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.app.backstage import Backstage
from mainspring.app.calls import Calls
from mainspring.app.changing import change, terminate
from mainspring.app.connection import Connection
from mainspring.app.declared import Declarations
from mainspring.app.dual import refuse_blocking_on_loop
from mainspring.app.events import Listeners
from mainspring.app.handle import Handle
from mainspring.app.portal import Portal, bridged
from mainspring.app.queues import QueueDeclarations
from mainspring.app.results import Results
from mainspring.app.starting import Starting
from mainspring.app.transacting import Transacting, after, is_ready, ready, run_ready
from mainspring.codec import value_codec
from mainspring.engine import flows
from mainspring.engine.branches import ours
from mainspring.engine.context import Line, StepScope, TransactionScope, current
from mainspring.engine.drivers import drive
from mainspring.engine.flows import StepCall
from mainspring.engine.registry import FOR_EVER, Registry
from mainspring.engine.retry import Retry
from mainspring.errors import (
    InTransaction,
    InvalidInput,
    MainspringError,
)
from mainspring.model.clock import SystemClock
from mainspring.model.ids import IdMaker
from mainspring.operations.managing import Managing, check_reason
from mainspring.operations.retention import keep_of
from mainspring.operations.runs import Runs

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from mainspring.app.crontab import Crontab
    from mainspring.app.settings import Settings
    from mainspring.engine.engine import Engine
    from mainspring.model.clock import Clock
    from mainspring.store.elsewhere import Elsewhere
    from mainspring.store.protocol import Store
    from mainspring.store.retention import Keep

R = TypeVar("R")


class Runtime:
    """One app's registry, its connection, and the engine while it executes."""

    def __init__(self, url: str, settings: Settings, clock: Clock | None) -> None:
        self.url = url
        self.settings = settings
        self.clock: Clock = clock or SystemClock()
        self.registry = Registry()
        self.backstage = Backstage()
        self.ids = IdMaker(self.clock)
        self.name = "app"
        self.version = ""
        self.stage = ""
        """What entering or leaving the app is about at this moment, for people who wait for it."""
        self.declarations = Declarations()
        self.queues = QueueDeclarations()
        self.crontab: Crontab | None = None
        self.listeners = Listeners()
        self.engine: Engine | None = None
        self.calls = Calls(self)
        self.starting = Starting(self)
        self.results = Results(self)
        self.transacting = Transacting(self)
        self._connecting = threading.Lock()
        self._connection: Connection | None = None
        self._portal: Portal | None = None

    @property
    def executing(self) -> bool:
        return self.engine is not None and bool(self.engine.executions)

    @property
    def places(self) -> list[Elsewhere]:
        """Other databases in which transactions are made."""
        return list({id(each.database): each.database for each in self.registry if each.database is not None}.values())

    @property
    def keep(self) -> Keep:
        """How long ended runs are kept, by the settings and by what functions say of themselves."""
        names = {
            function.name: None if function.retention == FOR_EVER else function.retention
            for function in self.registry
            if function.retention is not None
        }
        return keep_of(self.settings.retention, self.settings.function_retention, names)

    # -- connection ----------------------------------------------------------------------------------------------------
    def connection(self, *, beside: bool = False) -> Connection:
        """The connection, made now if there is none. `beside`: while the caller has a transaction of its own open there."""
        with self._connecting:
            if self._connection is None:
                self._connection = Connection(self.url, self.settings, self.clock, self.backstage, beside=beside)
            return self._connection

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    async def connected(self, *, beside: bool = False) -> Connection:
        if self._connection is not None:
            return self._connection
        return await self.in_thread(functools.partial(self.connection, beside=beside))

    async def in_thread(self, work: Callable[..., R], *args: Any) -> R:
        """Do something blocking on a thread, with civil time standing still meanwhile."""
        self.clock.busy()
        try:
            return await asyncio.to_thread(work, *args)
        finally:
            self.clock.idle()

    def disconnect(self) -> None:
        with self._connecting:
            connection, self._connection = self._connection, None
            portal, self._portal = self._portal, None
        if connection is not None:
            connection.close()
        for place in self.places:
            place.close()
        if portal is not None:
            portal.close()

    def leave_to_parent(self) -> list[object]:
        """In a forked process: nothing of the parent's is used, not even its lock, which some thread there may hold."""
        left: list[object] = [self._connection, self._portal, self.engine]
        self._connection = self._portal = self.engine = None
        self._connecting = threading.Lock()
        return left

    # -- blocking ------------------------------------------------------------------------------------------------------
    def block(self, work: Coroutine[Any, Any, R], label: str) -> R:
        """Run a coroutine on the app's loop, or on one made for the purpose, and wait for it here."""
        try:
            refuse_blocking_on_loop(f"await {label}(…)")
        except MainspringError:
            work.close()
            raise
        if is_ready(work):
            return run_ready(work)
        loop = self.engine.loop if self.engine is not None else self.portal().loop
        return asyncio.run_coroutine_threadsafe(bridged(work), loop).result()

    def portal(self) -> Portal:
        with self._connecting:
            if self._portal is None:
                self._portal = Portal()
            return self._portal

    # -- asking --------------------------------------------------------------------------------------------------------
    def cancel(self, run_id: str, reason: str | None) -> Coroutine[Any, Any, bool]:
        """Cancel a run, as part of the transaction that is open here, if any. A function that cancels itself goes on."""
        check_reason(reason)
        if run_id == _function_here():
            return ready(value=False)
        where = current.get()
        if isinstance(where, TransactionScope):
            return after(self.transacting.cancel(where, [run_id], reason), lambda done: done[run_id])
        return change(self, "cancel", bool, lambda store: store.cancel([run_id], reason, self.clock.now())[run_id])

    def cancel_many(self, ids: Sequence[str], reason: str | None) -> Coroutine[Any, Any, dict[str, bool]]:
        """Cancel runs, as part of the transaction that is open here, if any."""
        check_reason(reason)
        where, oneself = current.get(), _function_here()
        if oneself in ids:
            others = self.cancel_many([run_id for run_id in ids if run_id != oneself], reason)
            return after(others, lambda done: {run_id: done.get(run_id, False) for run_id in ids})
        if isinstance(where, TransactionScope):
            return self.transacting.cancel(where, ids, reason)
        return change(self, "runs.cancel", dict[str, bool], lambda store: store.cancel(ids, reason, self.clock.now()))

    def terminate_many(self, ids: Sequence[str], reason: str | None) -> Coroutine[Any, Any, dict[str, bool]]:
        """End runs at once, as part of the transaction that is open here, if any."""
        check_reason(reason)
        return terminate(self, list(ids), lambda store, found: store.terminate(found, reason, self.clock.now()))

    def ask(
        self, label: str, kind: Any, question: Callable[[Runs], R], *, reads: bool = False
    ) -> Coroutine[Any, Any, R]:
        """Ask the operations something. Inside a run the answer is recorded, so that a replay gets the same."""
        where = current.get()
        if isinstance(where, TransactionScope) and not reads:
            raise InTransaction(f"{label} cannot be part of a transaction; do it before or after")
        if not isinstance(where, Line):
            return self._ask(question)
        codec = value_codec(kind, f"the answer of {label}")

        async def step() -> R:
            return await self._ask(question)

        call = StepCall(label, step, (), {}, True, Retry(1), None, False, False, codec)  # noqa: FBT003
        return drive(where.execution, flows.step(where.execution, where.take_position(), call))

    @ours
    async def _ask(self, question: Callable[[Runs], R]) -> R:
        connection = await self.connected()
        return await self.in_thread(question, Runs(connection.store, self.clock))

    def manage(self, label: str, kind: Any, work: Callable[[Managing], R]) -> Coroutine[Any, Any, R]:
        """Change runs, together with the record of that or as part of the transaction that is open here, if any."""
        return change(self, label, kind, lambda store: work(Managing(store, self.clock)))

    def ask_store(
        self, label: str, kind: Any, question: Callable[[Store], R], *, reads: bool = False
    ) -> Coroutine[Any, Any, R]:
        """Ask the store something. Inside a run the answer is recorded."""
        return self.ask(label, kind, lambda _: question(self.connection().store), reads=reads)

    def handle(self, run_id: str, result: Any = Any) -> Handle[Any]:
        if not isinstance(run_id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"a run id is a string, not {run_id!r}")
        return Handle(self, run_id, value_codec(result, f"the result of run {run_id!r}"), created=False)


def _function_here() -> str | None:
    """The id of the step or transaction that is a run of its own and that we are in. Cancelling oneself is no cancelling."""
    where = current.get()
    place = where.step if isinstance(where, TransactionScope) else where
    if isinstance(place, StepScope) and place.execution.function.kind != "workflow":
        return place.execution.id
    return None
