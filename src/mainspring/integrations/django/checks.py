"""System checks of the settings, for `manage.py check`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from mainspring.integrations.django.conf import JOIN, configuration, database_url, in_memory

if TYPE_CHECKING:
    from mainspring.integrations.django.compat import BaseTaskBackend

LABEL = "mainspring"


def of_settings(app_configs: Any = None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Return what is wrong with the setting MAINSPRING and the database that it names."""
    del app_configs, kwargs
    try:
        found = configuration()
    except ImproperlyConfigured as error:
        return [checks.Error(str(error), id=f"{LABEL}.E001")]
    if found.alias is None:
        return []
    try:
        if not in_memory(found.alias):
            database_url(found)
    except ImproperlyConfigured as error:
        return [checks.Error(str(error), id=f"{LABEL}.E002")]
    except ImportError:
        return [
            checks.Error(
                "The database of Mainspring is PostgreSQL, and psycopg 3 is not installed.",
                hint="pip install 'mainspring[django,postgres]'",
                id=f"{LABEL}.E003",
            )
        ]
    return _of_database(found.alias) if found.atomic == JOIN else []


def _of_database(alias: str) -> list[checks.CheckMessage]:
    connection: Any = connections[alias]
    if connection.vendor == "postgresql":
        from django.db.backends.postgresql.psycopg_any import is_psycopg3  # noqa: PLC0415  (only for PostgreSQL)

        if not is_psycopg3:
            return [
                checks.Error(
                    f"Django uses psycopg2 for the database {alias!r}, whose transactions cannot be joined.",
                    hint="Uninstall psycopg2 and install psycopg 3.",
                    id=f"{LABEL}.E003",
                )
            ]
        return []
    if str(connection.settings_dict.get("OPTIONS", {}).get("transaction_mode", "")).upper() not in {
        "IMMEDIATE",
        "EXCLUSIVE",
    }:
        return [
            checks.Warning(
                f'A transaction of the SQLite database {alias!r} that reads first and enqueues then fails with "database is '
                'locked" if another process has written in between.',
                hint=f'DATABASES["{alias}"]["OPTIONS"] = {{"transaction_mode": "IMMEDIATE", "timeout": 30}}',
                id=f"{LABEL}.W001",
            )
        ]
    return []


def of_backend(backend: BaseTaskBackend) -> list[checks.CheckMessage]:
    """Return what is wrong with an entry of TASKS."""
    found: list[checks.CheckMessage] = []
    if not apps.is_installed("mainspring.integrations.django"):
        found.append(
            checks.Error(
                f"TASKS has the backend {backend.alias!r} of Mainspring, whose Django app is not installed.",
                hint='Add "mainspring.integrations.django" to INSTALLED_APPS.',
                id=f"{LABEL}.E004",
            )
        )
    if backend.options:
        found.append(
            checks.Error(
                f"TASKS has OPTIONS for the backend {backend.alias!r} of Mainspring, which takes none.",
                hint="The settings of Mainspring are in MAINSPRING, and those of queues in code: app.queue(…).",
                id=f"{LABEL}.E005",
            )
        )
    return found
