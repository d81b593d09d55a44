"""Django's `TaskResult` of a task, made from a run and the history of its attempts.

A run has its last error and, while it is executed, its worker. Django wants those of all attempts. So each attempt begins by
setting the event `django`: a list of the attempts so far, each with its worker, time and error. A retry deletes the events of
the attempt before it. So an exception that leaves a task carries the list as an attribute, which is stored with the run's
error.
"""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.utils import timezone

from mainspring.integrations.django.compat import TaskError, TaskResult, TaskResultStatus
from mainspring.model.states import State

if TYPE_CHECKING:
    from collections.abc import Generator

    from mainspring.integrations.django.compat import AnyResult, AnyTask
    from mainspring.operations.runs.info import RunInfo

History = list[dict[str, Any]]
"""The attempts of a task, oldest first."""
HISTORY = "django"
BACKEND, ENQUEUED, RUN_AFTER = "django_backend", "enqueued_at", "run_after"
"""Attributes of a task's run."""
_CARRIED = "mainspring_attempts"
_MOST_ATTEMPTS, _LONGEST_TRACEBACK = 12, 4_000
"""An exception's attribute is limited to 64,000 bytes, so the earliest attempts are dropped."""

_STATUS = {
    State.SCHEDULED: TaskResultStatus.READY,
    State.QUEUED: TaskResultStatus.READY,
    State.RUNNING: TaskResultStatus.RUNNING,
    State.WAITING: TaskResultStatus.RUNNING,
    State.CANCELLING: TaskResultStatus.RUNNING,
    State.SUCCEEDED: TaskResultStatus.SUCCESSFUL,
    State.FAILED: TaskResultStatus.FAILED,
    State.CANCELLED: TaskResultStatus.FAILED,
}


def began_before(info: RunInfo) -> bool:
    """Whether a worker began this run before."""
    return info.attempts > 1 or info.epoch > 1


def begun(info: RunInfo, events: dict[str, Any], now: datetime) -> History:
    """Return the history with an attempt that begins now."""
    return [*_history(info, events)[-_MOST_ATTEMPTS:], {"worker": info.worker, "at": now.isoformat()}]


@contextlib.contextmanager
def carrying(history: History) -> Generator[None]:
    """Attach the history to an exception that leaves the block."""
    try:
        yield
    except BaseException as error:
        with contextlib.suppress(AttributeError, TypeError):  # an exception that takes no attributes
            setattr(error, _CARRIED, history)
        raise


def _history(info: RunInfo, events: dict[str, Any]) -> History:
    """Return all attempts. Between two attempts the list is stored with the run's error, which is that of the last one."""
    if HISTORY in events:
        return list(events[HISTORY])
    stored = info.error or {}
    carried: History = list(stored.get("attributes", {}).get(_CARRIED, ()))
    return [*carried[:-1], {**carried[-1], "error": _error(stored)}] if carried else []


def result_of(task: AnyTask, info: RunInfo, events: dict[str, Any]) -> AnyResult:
    """Return the current result of a task."""
    history = _history(info, events)
    status = _STATUS[info.state]
    errors = [TaskError(**attempt["error"]) for attempt in history if "error" in attempt]
    if status is TaskResultStatus.FAILED and not (history and "error" in history[-1]):
        errors += _last_error(info)
    args, kwargs = _arguments(info.input)
    made: AnyResult = TaskResult(
        task=_as_enqueued(task, info),
        id=info.id,
        status=status,
        enqueued_at=time_of(info.attributes.get(ENQUEUED) or info.created),
        started_at=time_of(history[0]["at"]) if history else None,
        last_attempted_at=time_of(history[-1]["at"]) if history else None,
        finished_at=None if info.completed is None else time_of(info.completed),
        args=args,
        kwargs=kwargs,
        backend=info.attributes.get(BACKEND, task.backend),
        errors=errors,
        worker_ids=[attempt["worker"] for attempt in history],
    )
    if status is TaskResultStatus.SUCCESSFUL:
        object.__setattr__(made, "_return_value", info.output)  # as Django's own backends do: it is frozen
    return made


def _last_error(info: RunInfo) -> list[TaskError]:
    if info.error is not None:
        return [TaskError(**_error(info.error))]
    reason = info.reason or "cancelled"
    return [TaskError(exception_class_path="mainspring.errors.RunCancelled", traceback=f"{reason}\n")]


def _error(stored: dict[str, Any]) -> dict[str, str]:
    path = str(stored["type"]).replace(":", ".")
    text = stored.get("traceback") or f"{path}: {stored['message']}\n"
    return {"exception_class_path": path, "traceback": text[-_LONGEST_TRACEBACK:]}


def _arguments(stored: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    if "*" in stored:  # started by name, without the task's code
        return list(stored["*"]), {key: value for key, value in stored.items() if key != "*"}
    return list(stored.get("*args", ())), dict(stored.get("**kwargs", {}))


def _as_enqueued(task: AnyTask, info: RunInfo) -> AnyTask:
    """Return the task with the options of its enqueue, where they differ from its own."""
    run_after = info.attributes.get(RUN_AFTER)
    queue, priority = info.queue or task.queue_name, -info.priority
    backend = info.attributes.get(BACKEND, task.backend)
    if (queue, priority, backend, run_after) == (task.queue_name, task.priority, task.backend, None):
        return task
    return task.using(
        queue_name=queue,
        priority=priority,
        backend=backend,
        run_after=None if run_after is None else time_of(run_after),
    )


def time_of(given: datetime | str) -> datetime:
    """Return a time as Django has it: aware, or in local time where the project has no time zones."""
    time = datetime.fromisoformat(given) if isinstance(given, str) else given
    return time if settings.USE_TZ else timezone.make_naive(time)
