"""The app: a registry of functions, their settings, and the database they live in. An object, never a global."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from mainspring.app.caller.mistakes import refuse_blocking_on_loop
from mainspring.app.client_api import ClientApi
from mainspring.app.declarations.crontab import Crontab
from mainspring.app.declarations.schedules import Declaration
from mainspring.app.fork_safety import survive_forks
from mainspring.app.functions.by_name import ByName
from mainspring.app.functions.functions import as_call
from mainspring.app.functions.scope import Blueprint, Scope
from mainspring.app.nouns.schedules import AppSchedules
from mainspring.app.runtime import Runtime
from mainspring.app.settings import Settings
from mainspring.app.sync.dual import dual
from mainspring.app.sync.portal import Portal
from mainspring.app.waiting.handle import Handle
from mainspring.errors import InvalidInput, NotStarted
from mainspring.model.given import check_name, check_several, check_text
from mainspring.store.open import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
    from pathlib import Path

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from mainspring.app.declarations.declared import DeclaredQueue, QueueArguments
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
DEFAULT_URL = "sqlite:///mainspring.db"


def url_of(given: str | None) -> str:
    """The database that is given, else the one that the environment names, else a file in this folder."""
    if given is None:
        return os.environ.get("MAINSPRING_URL") or DEFAULT_URL
    if not isinstance(given, str) or not given.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"the database is a URL such as {DEFAULT_URL} or postgresql://host/name, not {given!r}")
    return given


def _checked(engine: Any, url: object) -> UsersEngine:
    """A user's engine. Whatever is wrong with it is an error at once."""
    from mainspring.store.external.engines import UsersEngine  # noqa: PLC0415  (only where there is one)

    if url is not None:
        raise InvalidInput("App takes a URL or an engine, not both: the engine says where its database is")
    found = UsersEngine(engine)
    found()
    return found


class App(ClientApi, ByName[Any], Scope):
    """Holds workflows and steps, and executes them while it is entered: `async with app:` or `with app:`.

    `url` is the database (default: `$MAINSPRING_URL`, else `sqlite:///mainspring.db`); it is connected to when first used.
    A function that returns the URL is called at that moment. `engine` is a SQLAlchemy `Engine` or `AsyncEngine` instead: the app
    connects to its database, and transactions that are given SQLAlchemy's connections or sessions are given those of the engine.
    `payloads` encodes all values that are stored, such as `mainspring.payloads.Encryption(key)`.
    `version` names the version of the code (default: a hash of the workflows' sources). `imports` lists modules that register
    functions and must be imported before a worker starts.
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
        self.schedules = AppSchedules(self)
        """The schedules in the app's database."""
        self._worker: Worker | None = None
        self._portal: Portal | None = None
        self._exits: contextlib.AsyncExitStack | None = None
        survive_forks(self)

    def _leave_to_parent(self) -> list[object]:
        """In a forked process: this app is not entered here, and has not connected yet."""
        left: list[object] = [self._worker, self._portal, self._exits, self._runtime.leave_to_parent()]
        self._worker = self._portal = self._exits = None
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
        """The version that runs begun now will carry."""
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
        """Declare a schedule: it is in the database, as it stands here, once a worker of this version has started."""
        made = Declaration(schedule, as_call(call), spec, policy, note, attributes or {})
        self._runtime.declarations.add(made.definition())
        return made

    def queue(self, name: str, **limits: Unpack[QueueArguments]) -> DeclaredQueue:
        """Declare a queue: it is in the database once a worker of this version has started.

        Limits: `concurrency` of runs under way in the whole fleet, `worker_concurrency` in one worker, `rate` of starts; the same
        of one partition with `partition_` before them. `retry` is how its runs that fail are tried again. What was changed at run
        time with `app.queues.set` stays, until the code says something new.
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
        """Have a function called when something happens: `app.on("run.failed", fn)`, "run.*" for all about runs, "*" for all.

        Runs: run.started, run.resumed, run.waiting, run.retrying, run.cancelling, run.succeeded, run.failed, run.cancelled. Times of
        schedules: schedule.fired, schedule.skipped, schedule.missed, schedule.dropped, schedule.start_failed. Changes of schedules and
        queues: schedule. or queue. and created, changed, paused, resumed, deleted. Workers: worker.started, worker.paused,
        worker.resumed, worker.lost, worker.died, worker.stopping, worker.stopped.

        The function is given a `RunEvent`, `ScheduleEvent`, `QueueEvent` or `WorkerEvent`, on the loop; it may be a coroutine
        function. Nothing waits for it, and what it raises is logged. Of a run it is called in the worker that executes it; for runs
        that end in no worker's hand in one worker that has such a function, within a day, if there is one. Of a time of a schedule:
        in the worker that decided on it. Of a change: in every worker that has such a function. Each is reported once, or never if
        the process dies in that moment.
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
        """Bring the entries of a crontab along: exactly one of its text, its file, or items made in code.

        Whatever is wrong with it is one error, here or, for tasks that do not exist, when the app is entered. A file is read
        again when it changes while a worker runs; if it is wrong then, the one that was read before stays in force.
        """
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
        """Name an object whose methods are workflows, so that they can be continued after a restart.

        Runs of its methods are executed by workers that have an object of that name, and wait for one where there is none.
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
        self._runtime.version = self.version
        self._exits = contextlib.AsyncExitStack()
        try:
            self._stage(f"connecting to {shown(self.url)}")
            connection = await self._runtime.connected()
            self._exits.push_async_callback(asyncio.to_thread, self._runtime.disconnect)
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
        except BaseException:
            await self._leave()
            raise
        return self

    def _stage(self, what: str) -> None:
        self._runtime.stage = what

    async def __aexit__(self, *exc: object) -> None:
        await self._leave()

    async def _vanish(self) -> None:
        """Stop as a process that is killed does: nothing is handed back. For tests of what happens then."""
        worker, self._worker, self._exits = self._worker, None, None
        if worker is not None:
            await worker.vanish()

    async def _leave(self) -> None:
        exits, self._exits, self._worker = self._exits, None, None
        if exits is not None:
            await exits.aclose()

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
        """Disconnect an app that was used without being entered."""
        self._runtime.disconnect()

    def pause(self) -> None:
        """Begin nothing more in this process, not even what is started in it; runs that it owns go on."""
        self._require_worker().pause(paused=True)

    def resume(self) -> None:
        """Claim again."""
        self._require_worker().pause(paused=False)

    @dual
    def drain(self, /) -> Coroutine[Any, Any, None]:
        """Wait until this worker has worked off what is due. What is due later, waits for a limit or was begun by others stays."""
        return self._require_worker().drained()

    def _require_worker(self) -> Worker:
        if self._worker is None:
            raise NotStarted("the app does not execute in this process; enter it with `async with app:` or `with app:`")
        return self._worker

    # -- runs ----------------------------------------------------------------------------------------------------------
    def handle(self, run_id: str) -> Handle[Any]:
        """A handle for a run by its id. Whether there is one is found out when something is asked of it.

        Its result is decoded as the run's own function says, if this app has it; `checkout.handle(run_id)` also has its type.
        """
        return Handle(self._runtime, check_name("the id of a run", run_id), None)
