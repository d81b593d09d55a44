"""The functions of Django's tasks: each task is a step of the app, named by the path of its function."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from typing import TYPE_CHECKING, Any

from django.utils.module_loading import import_string

from mainspring.app.caller.current import current_caller
from mainspring.app.client_api import runtime_of
from mainspring.app.run import run
from mainspring.errors import NotFound
from mainspring.integrations.django import results
from mainspring.integrations.django.compat import (
    BaseTaskBackend,
    TaskContext,
    normalize_json,
    task_backends,
    task_finished,
    task_started,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainspring.app.events import RunEvent
    from mainspring.app.functions.functions import AsyncFn, SyncFn
    from mainspring.integrations.django.compat import AnyResult, AnyTask
    from mainspring.integrations.django.orm_app import OrmApp

    Fn = AsyncFn[..., Any] | SyncFn[..., Any]


class TaskFunctions:
    """Registers tasks when they are defined, and executes them."""

    def __init__(self, app: OrmApp) -> None:
        self._app = app
        self._all: dict[str, Fn] = {}
        self._declared: set[str] = set()
        """Queues that a worker with this code declares, or that exist already."""
        for event in ("run.succeeded", "run.failed", "run.cancelled"):
            app.on(event, self._ended)

    def of(self, task: AnyTask) -> Fn:
        """Return the function of a task."""
        path = task.module_path
        if path not in self._all:
            self._all[path] = self._app.step(name=path)(self._function(path, task.func))
            self._declared.add(task.queue_name)
        return self._all[path]

    def declare_queues(self) -> None:
        """Declare the queues of tasks that the project's code does not declare itself."""
        for alias in task_backends.settings:
            backend = task_backends[alias]
            if getattr(backend, "is_mainspring", False):
                self._declared |= backend.queues
        for name in sorted(self._declared):
            if name not in runtime_of(self._app).queues:
                self._app.queue(name)

    def make_queue(self, name: str) -> None:
        """Create a queue that only a call names and no code declares. QUEUES is empty, so any name is valid."""
        app = self._app
        if name in self._declared or name in runtime_of(app).queues:
            return
        if app.joins("enqueue"):
            with app.joined():
                app.queues.set.sync(name)
        else:
            app.queues.set.sync(name)
            self._declared.add(name)

    # -- executing -----------------------------------------------------------------------------------------------------
    def _function(self, path: str, func: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            task: AnyTask = import_string(path)
            result, history = current_caller(runtime_of(self._app)).block(self._begin(task))
            task_started.send(sender=_sender(task), task_result=result)
            with results.carrying(history):
                return normalize_json(task.call(*_given(task, result, args), **kwargs))

        async def acall(*args: Any, **kwargs: Any) -> Any:
            task: AnyTask = import_string(path)
            result, history = await self._begin(task)
            await task_started.asend(sender=_sender(task), task_result=result)
            with results.carrying(history):
                return normalize_json(await task.acall(*_given(task, result, args), **kwargs))

        return acall if inspect.iscoroutinefunction(func) else call

    async def _begin(self, task: AnyTask) -> tuple[AnyResult, results.History]:
        """Record that an attempt begins. Return the result of the task so far, and the history of its attempts."""
        app = self._app
        info = await app.runs.get(run.id)
        events = await app.get_events(run.id) if results.began_before(info) else {}
        history = results.begun(info, events, app.now())
        await run.set_event(results.HISTORY, history)
        return results.result_of(task, info, {results.HISTORY: history}), history

    async def _ended(self, event: RunEvent) -> None:
        """Send Django's signal for a task that has ended."""
        if event.workflow not in self._all:
            return
        with contextlib.suppress(NotFound):  # the run may already be deleted
            info, events = await self._app.runs.get(event.run), await self._app.get_events(event.run)
            error: BaseException | None = None
            try:
                await self._app.handle(event.run).result()
            except BaseException as raised:  # noqa: BLE001  (whatever the task raised)
                error = raised
            task: AnyTask = import_string(event.workflow)
            await asyncio.to_thread(self._send_finished, task, results.result_of(task, info, events), error)

    def _send_finished(self, task: AnyTask, result: AnyResult, error: BaseException | None) -> None:
        """Send the signal while the task's exception, if any, is being handled: error reporters look for it there."""
        try:
            _handling(error, lambda: task_finished.send(sender=_sender(task), task_result=result))
        finally:
            self._app.close_connections()


def _handling(error: BaseException | None, work: Callable[[], object]) -> None:
    """Call `work` while `error` is being handled. This is no context manager: a generator hides the exception it handles."""
    if error is None:
        work()
        return
    try:
        raise error
    except type(error):
        work()


def _given(task: AnyTask, result: AnyResult, args: tuple[Any, ...]) -> tuple[Any, ...]:
    return (TaskContext(task_result=result), *args) if task.takes_context else args


def _sender(task: AnyTask) -> type[BaseTaskBackend]:
    return type(task.get_backend())
