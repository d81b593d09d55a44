"""Django's tasks: `django.tasks` from Django 6 on, the package `django-tasks` before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.errors import MissingExtra

if TYPE_CHECKING:
    from typing import Any, TypeAlias

    from django.tasks import Task, TaskContext, TaskResult, TaskResultStatus, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import TaskError
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json

    AnyTask: TypeAlias = Task[..., Any]
    AnyResult: TypeAlias = TaskResult[..., Any]
else:
    try:
        from django.tasks import Task, TaskContext, TaskResult, TaskResultStatus, task_backends
        from django.tasks.backends.base import BaseTaskBackend
        from django.tasks.base import TaskError
        from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
        from django.tasks.signals import task_enqueued, task_finished, task_started
        from django.utils.json import normalize_json
    except ModuleNotFoundError as missing:
        try:
            from django_tasks import TaskContext, TaskResult, TaskResultStatus, exceptions, task_backends
            from django_tasks.backends.base import BaseTaskBackend
            from django_tasks.base import Task, TaskError
            from django_tasks.signals import task_enqueued, task_finished, task_started
            from django_tasks.utils import normalize_json
        except ModuleNotFoundError:
            raise MissingExtra(
                "this version of Django has no tasks of its own; pip install django-tasks, or use Django 6"
            ) from missing
        # Up to version 0.12 some names are different.
        InvalidTask = getattr(exceptions, "InvalidTask", None) or exceptions.InvalidTaskError
        TaskResultDoesNotExist = getattr(exceptions, "TaskResultDoesNotExist", None) or exceptions.ResultDoesNotExist

    AnyTask, AnyResult = Task, TaskResult

__all__ = [
    "AnyResult",
    "AnyTask",
    "BaseTaskBackend",
    "InvalidTask",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "normalize_json",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
