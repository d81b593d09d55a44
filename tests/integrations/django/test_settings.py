"""The setting MAINSPRING, and what `manage.py check` says of it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.test import override_settings

from mainspring.integrations.django.checks import of_settings
from mainspring.integrations.django.conf import configuration, database_url
from mainspring.integrations.django.management.commands.mainspring import Command
from tests.integrations.django import configured

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainspring.integrations.django import DjangoApp


def _ids(messages: Any) -> list[str]:
    return [message.id for message in messages]


def test_a_project_that_is_set_up_well_has_nothing_to_be_told(bank: DjangoApp) -> None:
    assert [message for message in run_checks() if str(message.id).startswith("mainspring")] == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"DATABSE": "default"}, "there is no DATABSE"),
        ({"DATABASE": "nowhere"}, "there is no 'nowhere' in DATABASES"),
        ({"URL": "sqlite:///x.db"}, "ATOMIC"),
        ({"URL": "sqlite:///x.db", "DATABASE": "default", "ATOMIC": "immediate"}, "not both"),
        ({"ATOMIC": "sometimes"}, "join, on_commit, immediate"),
        ({"STAFF_ROLE": "king"}, "viewer, operator, admin"),
        ({"LEASE": "soon"}, "lease"),
        ({"LEASE": "soon", "STAFF_ROLE": "king"}, "king"),
        ([], "is a dict"),
    ],
)
def test_what_is_wrong_is_said_by_a_check(given: Any, words: str) -> None:
    with override_settings(MAINSPRING=given):
        (error,) = of_settings()
    assert error.id == "mainspring.E001"
    assert words in error.msg


def test_a_database_that_cannot_have_the_tables_is_an_error(bank: DjangoApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(connections["default"]), "vendor", "mysql")
    (error,) = of_settings()
    assert error.id == "mainspring.E002"


def test_sqlite_without_immediate_transactions_is_a_warning(bank: DjangoApp, monkeypatch: pytest.MonkeyPatch) -> None:
    if connections["default"].vendor != "sqlite":
        pytest.skip("only SQLite has modes of transactions")
    monkeypatch.setitem(connections["default"].settings_dict, "OPTIONS", {})
    assert _ids(of_settings()) == ["mainspring.W001"]


def test_options_of_the_backend_and_a_missing_app_are_errors(bank: DjangoApp) -> None:
    backend = {"BACKEND": "mainspring.integrations.django.Backend", "OPTIONS": {"lease": 3}}
    with override_settings(TASKS={"default": backend}):
        assert "mainspring.E005" in _ids(run_checks())
    installed = ["django.contrib.auth", "django.contrib.contenttypes"]
    with override_settings(INSTALLED_APPS=installed, TASKS={"default": {"BACKEND": backend["BACKEND"]}}):
        from tests.integrations.django.decorator import default_task_backend  # noqa: PLC0415

        assert _ids(default_task_backend.check()) == ["mainspring.E004"]


def test_a_worker_of_a_project_that_is_set_up_wrong_says_so_without_a_traceback(
    bank: DjangoApp, capsys: pytest.CaptureFixture[str]
) -> None:
    with override_settings(MAINSPRING={"STAFF_ROLE": "king"}), pytest.raises(SystemExit) as stopped:
        Command().run_from_argv(["manage.py", "mainspring", "worker", "--once"])
    assert stopped.value.code == 1
    assert "mainspring.E001" in capsys.readouterr().err


def test_settings_of_the_library_are_fields_in_capitals() -> None:
    given = {
        "LEASE": "2s",
        "CONCURRENCY": 7,
        "NAME": "shop",
        "IMPORTS": ["a.b"],
        "URL": "sqlite:///x.db",
        "ATOMIC": "immediate",
    }
    with override_settings(MAINSPRING=given):
        found = configuration()
    assert (found.settings.lease, found.settings.concurrency, found.name, found.imports) == (2, 7, "shop", ("a.b",))
    assert (found.alias, database_url(found)) == (None, "sqlite:///x.db")


@pytest.fixture
def other() -> Iterator[None]:
    yield
    configured.forget("other")


@pytest.mark.parametrize(
    ("described", "url"),
    [
        (
            {"NAME": "shop", "USER": "ada", "PASSWORD": "a/b@c:d", "HOST": "db", "PORT": "5433"},
            "postgresql://ada:a%2Fb%40c%3Ad@db:5433/shop",
        ),
        ({"NAME": "shop", "HOST": "/run/pg", "PORT": "5433"}, "postgresql:///shop?host=%2Frun%2Fpg&port=5433"),
        (
            {"NAME": "shop", "HOST": "::1", "OPTIONS": {"sslmode": "require", "pool": True, "isolation_level": 2}},
            "postgresql://[::1]/shop?sslmode=require",
        ),
    ],
)
def test_a_database_of_djangos_has_a_url(other: None, described: dict[str, Any], url: str) -> None:
    made = connections.configure_settings(
        {"default": {}, "other": {"ENGINE": "django.db.backends.postgresql", **described}}
    )
    connections.settings["other"] = made["other"]
    with override_settings(MAINSPRING={"DATABASE": "other"}):
        assert database_url(configuration()).replace("%2F", "%2F") == url


def test_a_database_in_memory_is_refused_with_what_to_write_instead() -> None:
    configured.use("sqlite:///:memory:")
    with pytest.raises(ImproperlyConfigured, match=r'\["TEST"\]'):
        database_url(configuration())


def test_the_library_does_not_import_django() -> None:
    code = "import sys, mainspring, mainspring.testing, mainspring.integrations.django; print('django' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"
