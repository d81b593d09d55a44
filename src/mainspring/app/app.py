"""The app: a registry of functions, their settings, and the database they live in. An object, never a global."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from mainspring.app.caller.mistakes import refuse_blocking_on_loop
from mainspring.app.client_api import ByName, ClientApi
from mainspring.app.coroutines import Portal
from mainspring.app.dual import dual
from mainspring.app.functions.functions import as_call
from mainspring.app.functions.scope import Blueprint, Scope
from mainspring.app.handle import Handle
from mainspring.app.runtime import Runtime
from mainspring.app.settings import Settings
from mainspring.errors import InvalidInput, NotStarted
from mainspring.model.forks import survive_forks
from mainspring.model.given import check_name, check_several, check_text
from mainspring.store.open import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
    from pathlib import Path

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from mainspring.app.declarations.declared import DeclaredQueue, QueueArguments
    from mainspring.app.declarations.schedules import Declaration
    from mainspring.app.events import (
        AnyEvent,
        QueueEvent,
        QueueEventName,
        RunEvent,
        RunEventName,
        ScheduleEvent,
        ScheduleEventName,
        WorkerEvent,
        WorkerEventName,
    )
    from mainspring.app.functions.functions import Call
    from mainspring.app.worker import Worker
    from mainspring.engine.registry import Function
    from mainspring.model.clock import Clock
    from mainspring.model.payloads import PayloadCodec
    from mainspring.model.schedules import Hook
    from mainspring.recurrence import CronItem, ParsedCronItem, Spec
    from mainspring.schedules.definition import Definition
    from mainspring.schedules.policy import Policy
    from mainspring.store.external.engines import UsersEngine

T = TypeVar("T")
R = TypeVar("R")
log = logging.getLogger("mainspring.app")
DEFAULT_URL = "sqlite:///mainspring.db"


def _report(left: asyncio.Task[None]) -> None:
    if not left.cancelled() and (error := left.exception()) is not None:
        log.warning("could not close an app whose start was cancelled: %s", error)


def url_of(given: str | None) -> str:
    """The URL that is given, else `$MAINSPRING_URL`, else a SQLite file in the current folder."""
    if given is None:
        return os.environ.get("MAINSPRING_URL") or DEFAULT_URL
    if not isinstance(given, str) or not given.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"the database is a URL such as {DEFAULT_URL} or postgresql://host/name, not {given!r}")
    return given


def _checked(engine: Any, url: object) -> UsersEngine:
    """Check a user's SQLAlchemy engine. Raises `InvalidInput` at once if it cannot be used."""
    from mainspring.store.external.engines import UsersEngine  # noqa: PLC0415  (only where there is one)

    if url is not None:
        raise InvalidInput("App takes a URL or an engine, not both: the engine has a URL of its own")
    found = UsersEngine(engine)
    found()
    return found


class App(ClientApi, ByName[Any], Scope):
    """Registers workflows and steps, and executes them while it is entered: `async with app:` or `with app:`.

    `url` is the database (default: `$MAINSPRING_URL`, else `sqlite:///mainspring.db`). The app connects when it is first used; `url`
    may be a function, which is called at that moment. `engine` is a SQLAlchemy `Engine` or `AsyncEngine` instead: the app connects
    to its database, and transactions that take SQLAlchemy connections or sessions get those of the engine. `payloads` is a codec for
    all stored values, such as `mainspring.payloads.Encryption(key)`. `version` names the version of the code (default: a hash of
    the workflows' sources). `imports` lists modules that register functions; a worker imports them before it starts. `settings`
    are described under `Settings`. `clock` is for tests: `testing.world` sets it.

    Code that does not enter the app can start runs, send to them and look at them, too; a worker executes them.
    """

    _spelled = "app"

    def __init__(
        self,
        url: str | Callable[[], str] | None = None,
        *,
        engine: Engine | AsyncEngine | None = None,
        payloads: PayloadCodec | None = None,
        name: str = "app",
        version: str | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
        imports: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.name = check_text("App: name", name)
        self.imports = tuple(check_text("App: imports", each) for each in check_several("App: imports", imports))
        self._version = None if version is None else check_text("App: version", version)
        if settings is not None and not isinstance(settings, Settings):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"App: settings are Settings(…), not {settings!r}")
        given = None if engine is None else _checked(engine, url)
        self._own_runtime = Runtime(
            given or (url if callable(url) else url_of(url)),
            settings or Settings(),
            clock,
            engine=given,
            payloads=payloads,
        )
        self._runtime.name = name
        self._worker: Worker | None = None
        self._portal: Portal | None = None
        self._exits: contextlib.AsyncExitStack | None = None
        self._leaving: asyncio.Task[None] | None = None
        """Leaves the app after entering it was cancelled."""
        survive_forks(self)

    def _leave_to_parent(self) -> list[object]:
        """Reset the app in a forked process: it is not entered and not connected there."""
        left: list[object] = [self._worker, self._portal, self._exits, self._runtime.leave_to_parent()]
        self._worker = self._portal = self._exits = self._leaving = None
        return left

    @property
    def _runtime(self) -> Runtime:
        return self._own_runtime

    @property
    def url(self) -> str:
        return self._runtime.url

    @property
    def settings(self) -> Settings:
        return self._runtime.settings

    @property
    def version(self) -> str:
        """The version of the code, recorded with each run that begins now."""
        runtime = self._runtime
        return self._version or runtime.registry.version(runtime.declarations.digest() + runtime.queues.digest())

    def __repr__(self) -> str:
        return f"<app {self.name}>"

    def _add(self, function: Function) -> None:
        self._runtime.registry.add(function)

    # -- registering ---------------------------------------------------------------------------------------------------
    def schedule(
        self,
        schedule: str,
        call: Call[Any],
        spec: Spec,
        policy: Policy | None = None,
        *,
        note: str | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> Declaration:
        """Declare a schedule. A worker of this version stores it when it starts."""
        from mainspring.app.declarations.schedules import Declaration  # noqa: PLC0415  (slow to import)

        made = Declaration(schedule, as_call(call), spec, policy, note, attributes or {})
        self._runtime.declarations.add(made.definition())
        return made

    def queue(self, name: str, **limits: Unpack[QueueArguments]) -> DeclaredQueue:
        """Declare a queue. A worker of this version stores it when it starts.

        `concurrency` limits the unfinished runs in the whole fleet, `worker_concurrency` those in one worker, `rate` the starts;
        `partition_concurrency` and `partition_rate` do so for each partition. `retry` is the retry policy of its runs. A change made at
        run time with `app.queues.set` stays until the declaration in the code changes.
        """
        return self._runtime.queues.add(name, limits)

    @overload
    def on(self, event: RunEventName, fn: Callable[[RunEvent], Any]) -> Callable[[RunEvent], Any]: ...
    @overload
    def on(self, event: ScheduleEventName, fn: Callable[[ScheduleEvent], Any]) -> Callable[[ScheduleEvent], Any]: ...
    @overload
    def on(self, event: QueueEventName, fn: Callable[[QueueEvent], Any]) -> Callable[[QueueEvent], Any]: ...
    @overload
    def on(self, event: WorkerEventName, fn: Callable[[WorkerEvent], Any]) -> Callable[[WorkerEvent], Any]: ...
    @overload
    def on(self, event: Literal["*"], fn: Callable[[AnyEvent], Any]) -> Callable[[AnyEvent], Any]: ...
    @overload
    def on(self, event: str, fn: Callable[[Any], Any]) -> Callable[[Any], Any]: ...
    def on(self, event: str, fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Register a listener for events: `app.on("run.failed", fn)`, "run.*" for all events of runs, "*" for all.

        Runs: run.started, run.resumed, run.waiting, run.retrying, run.cancelling, run.succeeded, run.failed, run.cancelled. Times of
        schedules: schedule.fired, schedule.skipped, schedule.missed, schedule.dropped, schedule.start_failed. Changes of schedules and
        queues: schedule. or queue. and created, changed, paused, resumed, deleted. Workers: worker.started, worker.paused,
        worker.resumed, worker.lost, worker.died, worker.stopping, worker.stopped.

        The listener is called on the loop with a `RunEvent`, `ScheduleEvent`, `QueueEvent` or `WorkerEvent`, and may be a coroutine
        function. Runs do not wait for it, and its exceptions are logged. Events of a run are reported in the worker that executes
        it; the end of an unowned run in one worker with a listener, if there is one within a day. Ticks of a schedule are reported
        in the worker that decides on them, changes of schedules and queues in every worker with a listener. An event is reported once, or
        not at all if the process dies at that moment.
        """
        self._runtime.listeners.add(event, fn)
        return fn

    def crontab(
        self,
        *,
        text: str | None = None,
        file: str | Path | None = None,
        items: Iterable[CronItem] | Iterable[ParsedCronItem] | None = None,
    ) -> None:
        """Add the entries of a crontab: exactly one of `text`, `file` and `items`.

        All faults of the crontab are one error: raised here, or for unknown tasks when the app is entered. A worker reads a file again
        when it changes. If the new content is wrong, the old entries stay in force.
        """
        from mainspring.app.declarations.crontab import Crontab  # noqa: PLC0415  (few apps have crontabs)

        self._runtime.crontab = Crontab(text, file, items)

    def _schedule(self, definition: Definition) -> None:
        self._runtime.declarations.add(definition)

    def _hook(self, hook: Hook) -> None:
        self._runtime.declarations.hooks[hook.event, hook.function] = hook

    def include(self, blueprint: Blueprint) -> None:
        """Make the functions of a blueprint part of this app."""
        if not isinstance(blueprint, Blueprint):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"app.include takes a Blueprint, not {blueprint!r}")
        blueprint._join(self)  # noqa: SLF001  (its other half)

    def instance(self, name: str, obj: T) -> T:
        """Register an object whose methods are workflows, under a name by which stored runs refer to it.

        Only workers that have an object of that name execute runs of its methods. Until there is one the runs wait.
        """
        self._runtime.instances.add(name, obj)
        if self._worker is not None:
            self._worker.named_instance()
        return obj

    def _import_all(self) -> None:
        """Import the modules named in `imports`, which register the rest of the functions."""
        for module in self.imports:
            importlib.import_module(module)

    # -- executing -----------------------------------------------------------------------------------------------------
    async def __aenter__(self) -> Self:
        if self._exits is not None:
            raise NotStarted("this app is entered already; one `async with app:` per process is enough")
        self._import_all()
        if self._leaving is not None and self._leaving.get_loop() is asyncio.get_running_loop():
            await asyncio.wait({self._leaving})
        self._leaving = None  # one of a loop that is closed has ended with it
        self._runtime.version = self.version
        self._exits = contextlib.AsyncExitStack()
        try:
            self._stage(f"connecting to {shown(self.url)}")
            self._exits.push_async_callback(asyncio.to_thread, self._runtime.disconnect)
            connection = await self._runtime.connected()
            self._exits.callback(self._stage, "closing the connections")
            if self.settings.work:
                for resource in self._resources:
                    self._stage(f"opening the resource {resource.name!r}")
                    await self._exits.enter_async_context(resource.opened())
                    self._exits.callback(self._stage, f"closing the resource {resource.name!r}")
                self._stage("entering the fleet and declaring queues and schedules")
                from mainspring.app.worker import Worker  # noqa: PLC0415  (who only starts runs needs none of it)

                self._worker = Worker(self._runtime, connection)
                self._exits.push_async_callback(self._worker.stop)
                self._exits.callback(self._stage, "handing back runs")
                await self._worker.start()
                self._stage("")
        except asyncio.CancelledError:
            # The caller does not wait until the database, which may be locked, lets the app leave.
            self._leaving = asyncio.get_running_loop().create_task(self._take_exits().aclose())
            self._leaving.add_done_callback(_report)
            raise
        except BaseException:
            await self._take_exits().aclose()
            raise
        return self

    def _stage(self, what: str) -> None:
        self._runtime.stage = what

    async def __aexit__(self, *exc: object) -> None:
        await self._take_exits().aclose()

    async def _vanish(self) -> None:
        """Stop without releasing anything, as a killed process does. For tests."""
        worker, self._worker, self._exits = self._worker, None, None
        if worker is not None:
            await worker.vanish()

    def _take_exits(self) -> contextlib.AsyncExitStack:
        """Return what is to be closed. From here on the app is not entered."""
        exits, self._exits, self._worker = self._exits, None, None
        return exits or contextlib.AsyncExitStack()

    def __enter__(self) -> Self:
        refuse_blocking_on_loop("async with app:")
        self._portal = Portal()
        try:
            self._portal.call(self.__aenter__())
        except BaseException:
            self._portal.close()
            self._portal = None
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        portal, self._portal = self._portal, None
        if portal is not None:
            portal.call(self.__aexit__(*exc))
            portal.close()

    def close(self) -> None:
        """Close the connections of an app that was used without being entered."""
        self._runtime.disconnect()

    def pause(self) -> None:
        """Stop claiming and beginning runs in this process, also those that it starts. Its present runs continue."""
        self._require_worker().pause(paused=True)

    def resume(self) -> None:
        """Claim and begin runs in this process again, after `pause`."""
        self._require_worker().pause(paused=False)

    @dual
    def drain(self, /) -> Coroutine[Any, Any, None]:
        """Wait until this worker has executed the runs that are due now.

        It does not wait for runs that are due later, held by a limit, or owned by other workers. A worker that has just started also deletes
        the runs whose retention is over.
        """
        return self._require_worker().drained()

    def _require_worker(self) -> Worker:
        if self._worker is None:
            raise NotStarted("the app does not execute in this process; enter it with `async with app:` or `with app:`")
        return self._worker

    # -- runs ----------------------------------------------------------------------------------------------------------
    def handle(self, run_id: str) -> Handle[Any]:
        """Return a handle for a run by its id. An unknown id raises `NotFound` when the handle is used.

        Its result is decoded by the run's own function, if this app has it; `checkout.handle(run_id)` is typed as well.
        """
        return Handle(self._runtime, check_name("the id of a run", run_id), None)
