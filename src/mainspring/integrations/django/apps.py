"""The Django app: its checks, and the tables that `manage.py migrate` creates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.apps import AppConfig
from django.core import checks
from django.db.models.signals import post_migrate

if TYPE_CHECKING:
    from django.core.management.base import OutputWrapper


class MainspringConfig(AppConfig):
    name = "mainspring.integrations.django"
    label = "mainspring"
    verbose_name = "Mainspring"

    def ready(self) -> None:
        from mainspring.integrations.django.checks import of_settings  # noqa: PLC0415  (settings are there now)

        checks.register(of_settings)
        post_migrate.connect(make_tables, sender=self, dispatch_uid="mainspring")


def make_tables(*, using: str, verbosity: int = 1, stdout: OutputWrapper | None = None, **kwargs: Any) -> None:
    """Create or upgrade the tables of the app after the database that has them was migrated."""
    del kwargs
    from mainspring.integrations.django.conf import in_memory  # noqa: PLC0415
    from mainspring.integrations.django.project import get_app  # noqa: PLC0415  (models are loaded now)

    app = get_app()
    if app.alias != using or in_memory(using):
        return
    if verbosity >= 2 and stdout is not None:
        stdout.write("  Bringing the tables of Mainspring up to date")
    app.make_tables()
