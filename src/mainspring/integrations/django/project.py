"""The app of a Django project: executed by `manage.py mainspring worker`, and part of requests' transactions."""

from __future__ import annotations

import threading

import django
from django.apps import apps
from django.utils.module_loading import autodiscover_modules

from mainspring.integrations.django.callers import callers_of
from mainspring.integrations.django.functions import TaskFunctions
from mainspring.integrations.django.orm_app import OrmApp

_apps: list[DjangoApp] = []
_making = threading.RLock()


def get_app() -> DjangoApp:
    """Return the app of this project, created at the first call. Sets Django up in a process that has not done so."""
    with _making:
        if not _apps:
            if not (apps.ready or apps.loading):
                django.setup()
            if not _apps:  # `django.setup` may have created it
                _apps.append(DjangoApp())
        return _apps[0]


class DjangoApp(OrmApp):
    """The app of a Django project. A start inside `transaction.atomic` is part of that transaction."""

    def __init__(self) -> None:
        super().__init__()
        self._runtime.callers = callers_of(self)
        self.tasks = TaskFunctions(self)
        """The functions of Django's tasks."""

    def _import_all(self) -> None:
        """Import the module `tasks` of every installed app, and those that the setting IMPORTS names."""
        autodiscover_modules("tasks")
        super()._import_all()
        self.tasks.declare_queues()

    def make_tables(self) -> None:
        """Create or upgrade the app's tables, on a connection that is closed afterwards."""
        from mainspring.operations.database import migrate  # noqa: PLC0415  (only where tables are made)

        migrate(self.url, self.settings)
