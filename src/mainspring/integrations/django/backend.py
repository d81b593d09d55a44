"""The backend of Django's tasks: an enqueued task is a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.db import transaction
from django.utils import timezone
from django.utils.module_loading import import_string

from mainspring.app.caller.mistakes import refuse_blocking_on_loop
from mainspring.app.client_api import runtime_of
from mainspring.engine.replay.context import Branch, current
from mainspring.errors import NotFound, WrongColour
from mainspring.integrations.django import atomic, checks, results
from mainspring.integrations.django.compat import (
    BaseTaskBackend,
    InvalidTask,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_enqueued,
)
from mainspring.integrations.django.conf import ON_COMMIT
from mainspring.integrations.django.project import get_app
from mainspring.integrations.django.results import BACKEND, ENQUEUED, RUN_AFTER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from django.core.checks import CheckMessage

    from mainspring.app.functions.options import Duration
    from mainspring.engine.retry import Retry
    from mainspring.integrations.django.compat import AnyResult, AnyTask
    from mainspring.integrations.django.functions import Fn
    from mainspring.integrations.django.project import DjangoApp


@dataclass(frozen=True, slots=True, kw_only=True)
class DurableTask(Task):  # type: ignore[type-arg]  # at run time it takes none
    """A task with a retry policy and a timeout: `@task(retry=5, timeout="10m")`."""

    retry: Retry | int | None = None
    timeout: Duration | None = None


class Backend(BaseTaskBackend):
    """`TASKS = {"default": {"BACKEND": "mainspring.integrations.django.Backend"}}`."""

    is_mainspring = True
    task_class = DurableTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    @property
    def app(self) -> DjangoApp:
        return get_app()

    def validate_task(self, task: AnyTask) -> None:
        """Check a task when it is defined and when it is enqueued, and register it with the app."""
        super().validate_task(task)
        self.app.tasks.of(task)

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """Check that the settings fit together."""
        del kwargs
        return checks.of_backend(self)

    # -- enqueueing ----------------------------------------------------------------------------------------------------
    def enqueue(self, task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Enqueue a task. Inside `transaction.atomic` it is part of that transaction."""
        _refuse_loop("aenqueue()")
        self.validate_task(task)
        app, result = self.app, self._ready(task, args, kwargs)
        if app.configuration.atomic == ON_COMMIT and (current.get() is None) and (open_ := atomic.open_elsewhere(None)):
            run_id = runtime_of(app).ids.new()
            function = self._function(task, result).options(id=run_id)
            transaction.on_commit(lambda: _start(function, result), using=open_[0])
        else:
            if not self.queues:
                app.tasks.make_queue(task.queue_name)
            run_id = _start(self._function(task, result), result)
        return self._enqueued(result, run_id)

    async def aenqueue(self, task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Enqueue a task from a coroutine. In the body of a workflow it is an operation of the run."""
        if not isinstance(current.get(), Branch):
            # Executed on the thread of Django's queries, so that a transaction that is open there is joined.
            return await sync_to_async(self.enqueue, thread_sensitive=True)(task, args, kwargs)
        self.validate_task(task)
        result = self._ready(task, args, kwargs)
        handle = await self._function(task, result).start(*result.args, **result.kwargs)
        return self._enqueued(result, handle.id)

    def _ready(self, task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> AnyResult:
        return TaskResult(
            task=task,
            id="",
            status=TaskResultStatus.READY,
            enqueued_at=results.time_of(self.app.now()),
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=list(args),
            kwargs=dict(kwargs),
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )

    def _function(self, task: AnyTask, result: AnyResult) -> Fn:
        if self.queues:  # workers declare them when they start
            runtime_of(self.app).destinations.assume(task.queue_name)
        attributes = {BACKEND: self.alias}
        if result.enqueued_at is not None:
            attributes[ENQUEUED] = _aware(result.enqueued_at).isoformat()
        options: dict[str, Any] = {"queue": task.queue_name, "priority": -task.priority, "detached": True}
        if task.run_after is not None:
            options["at"] = _aware(task.run_after)
            attributes[RUN_AFTER] = options["at"].isoformat()
        for name in ("retry", "timeout"):
            if getattr(task, name, None) is not None:
                options[name] = getattr(task, name)
        return self.app.tasks.of(task).options(**options, attributes=attributes)

    def _enqueued(self, result: AnyResult, run_id: str) -> AnyResult:
        object.__setattr__(result, "id", run_id)  # as Django's own backends do: it is frozen
        task_enqueued.send(type(self), task_result=result)
        return result

    # -- results -------------------------------------------------------------------------------------------------------
    def get_result(self, result_id: str) -> AnyResult:
        """Return the current result of a task. A task enqueued in a transaction that is still open does not exist yet."""
        _refuse_loop("aget_result()")
        app = self.app
        try:
            info = app.runs.get.sync(str(result_id))
        except NotFound:
            raise TaskResultDoesNotExist(result_id) from None
        events = app.get_events.sync(info.id) if info.started is not None else {}
        return results.result_of(self._task(info.workflow, info.attributes, result_id), info, events)

    async def aget_result(self, result_id: str) -> AnyResult:
        """Return the current result of a task, from a coroutine."""
        app = self.app
        try:
            info = await app.runs.get(str(result_id))
        except NotFound:
            raise TaskResultDoesNotExist(result_id) from None
        events = await app.get_events(info.id) if info.started is not None else {}
        return results.result_of(self._task(info.workflow, info.attributes, result_id), info, events)

    def _task(self, path: str, attributes: Mapping[str, Any], result_id: str) -> AnyTask:
        """Return the task of a run. Raise an error if no backend of this alias enqueued the run."""
        if attributes.get(BACKEND) != self.alias:
            raise TaskResultDoesNotExist(result_id)
        try:
            found: Any = import_string(path)
        except ImportError:
            found = None
        if not isinstance(found, Task):
            raise InvalidTask(f"the run {result_id} is of the task {path}, which does not exist here any more")
        task: AnyTask = found  # pyright: ignore[reportUnknownVariableType]
        return task


def _start(function: Fn, result: AnyResult) -> str:
    return function.start.sync(*result.args, **result.kwargs).id


def _aware(time: Any) -> Any:
    return time if timezone.is_aware(time) else timezone.make_aware(time)


def _refuse_loop(instead: str) -> None:
    try:
        refuse_blocking_on_loop(instead)
    except WrongColour:
        raise SynchronousOnlyOperation(f"you cannot block an event loop; write `await ….{instead}`") from None
