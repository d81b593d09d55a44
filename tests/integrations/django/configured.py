"""Django, configured once for this process: its settings cannot be changed afterwards, but its databases can."""

from __future__ import annotations

import asyncio
from typing import Any, cast
from urllib.parse import parse_qs, unquote, urlsplit

import django
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connections

SECRET = "only for tests"
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]


def configure() -> None:
    """Configure Django, if this process has not done so."""
    if settings.configured:
        return
    settings.configure(
        SECRET_KEY=SECRET,
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        INSTALLED_APPS=[
            "django.contrib.admin",
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "django.contrib.messages",
            "django.contrib.sessions",
            *(["django_tasks"] if django.VERSION < (6, 0) else []),
            "mainspring.integrations.django",
            "tests.integrations.django.bank",
        ],
        MIDDLEWARE=MIDDLEWARE,
        TEMPLATES=TEMPLATES,
        ROOT_URLCONF="tests.integrations.django.urls",
        ALLOWED_HOSTS=["*"],
        USE_TZ=True,
        LOGGING_CONFIG=None,
        TASKS={
            "default": {"BACKEND": "mainspring.integrations.django.Backend", "QUEUES": ["default", "limited"]},
            "any": {"BACKEND": "mainspring.integrations.django.Backend", "QUEUES": []},
        },
        MAINSPRING={"NAME": "bank", "POLL": 0.2},
    )
    django.setup()


def described(url: str) -> dict[str, Any]:
    """A database of Django's, as DATABASES describes it."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": unquote(parts.path[1:]),
            "OPTIONS": {"timeout": 30, "transaction_mode": "IMMEDIATE"},
        }
    query = parse_qs(parts.query)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path[1:]),
        "USER": unquote(parts.username or query.get("user", [""])[0]),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": query.get("host", [parts.hostname or ""])[0],
        "PORT": query.get("port", [str(parts.port or "")])[0],
    }


def use(url: str, alias: str = "default") -> None:
    """Put another database behind an alias, on this thread; other threads find it when they first connect."""
    forget(alias)
    made = connections.configure_settings({"default": {}, alias: described(url)})
    connections.settings[alias] = made[alias]


def forget(alias: str) -> None:
    """Take a database away, on this thread and on the one where Django makes the queries of coroutines."""
    _forget(alias)
    asyncio.run(sync_to_async(_forget, thread_sensitive=True)(alias))
    connections.settings.pop(alias, None)


def _forget(alias: str) -> None:
    if alias in connections.settings and hasattr(cast("Any", connections)._connections, alias):
        connections[alias].close()
        del connections[alias]
