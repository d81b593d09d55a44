"""Django's decorator, from wherever this version of Django has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import django

P = ParamSpec("P")
R = TypeVar("R")

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.tasks import default_task_backend, task
else:
    try:
        from django.tasks import default_task_backend, task
    except ModuleNotFoundError:
        from django_tasks import default_task_backend, task


def durable(**options: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """`@task` with options of Mainspring's own. Django 6.0 takes none, only what comes before it and after it."""
    made: Any = cast("Any", task)(**({} if django.VERSION[:2] == (6, 0) else options))
    return cast("Callable[[Callable[P, R]], Callable[P, R]]", made)


__all__ = ["default_task_backend", "durable", "task"]
