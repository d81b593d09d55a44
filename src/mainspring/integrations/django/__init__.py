"""Mainspring in a Django project: its tasks, durable workflows beside them, the ORM inside transactions, the dashboard for staff.

    INSTALLED_APPS = [..., "mainspring.integrations.django"]
    TASKS = {"default": {"BACKEND": "mainspring.integrations.django.Backend"}}

`manage.py migrate` creates the tables, `manage.py mainspring worker` executes runs. Needs the extra `django`, and on Django 5.2 the package
`django-tasks`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.errors import MissingExtra

if TYPE_CHECKING:
    from mainspring.integrations.django.backend import Backend
    from mainspring.integrations.django.project import DjangoApp

    app: DjangoApp
    """The project's app, as the settings describe it. Workflows, steps and transactions are registered with it."""

__all__ = ["Backend", "DjangoApp", "app"]

_WHERE = {"Backend": "backend", "DjangoApp": "project"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  (Django is there only with the extra, and is configured later)

    try:
        if name == "app":
            found: object = import_module(f"{__name__}.project").get_app()
        else:
            found = getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name == "django":
            raise MissingExtra("this needs Django; pip install 'mainspring[django]'") from error
        raise
    if name != "app":
        globals()[name] = found
    return found
