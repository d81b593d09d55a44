"""The public surface: what is promised is there, and nothing else is spelled as if it were."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest

import mainspring
from mainspring import errors

PROMISED = {
    "mainspring": {
        "App",
        "AsyncFn",
        "Blueprint",
        "Call",
        "CronItem",
        "CronOptions",
        "Event",
        "Handle",
        "Message",
        "Resource",
        "Retry",
        "RunInfo",
        "Settings",
        "State",
        "StepInfo",
        "Stream",
        "SyncFn",
        "Topic",
        "parse_cron_items",
        "parse_crontab",
        "run",
    },
    "mainspring.testing": {"Fake", "Outcome", "VirtualClock", "World", "crash", "simulate", "world"},
    "mainspring.recurrence": {"Calendar", "Cron", "Interval", "Spec", "lint", "parse_duration"},
}


@pytest.mark.parametrize("name", PROMISED)
def test_a_public_module_exports_what_is_promised(name: str) -> None:
    module = importlib.import_module(name)
    assert PROMISED[name] <= set(module.__all__)
    assert list(module.__all__) == sorted(module.__all__)
    for exported in module.__all__:
        assert hasattr(module, exported), exported


@pytest.mark.parametrize("name", ["mainspring.errors", "mainspring.integrations"])
def test_the_other_public_modules_can_be_imported(name: str) -> None:
    importlib.import_module(name)


def test_every_error_is_drawn_in_the_tree_with_its_base() -> None:
    drawn = inspect.getdoc(errors) or ""
    classes = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, errors.MainspringError)]
    assert len(classes) > 20
    for cls in classes:
        assert f" {cls.__name__} " in f"{drawn} ".replace("\n", " "), cls
        assert cls.__doc__, cls


def test_the_version_is_that_of_the_package() -> None:
    from importlib.metadata import version  # noqa: PLC0415

    assert mainspring.__version__ == version("mainspring")


def test_importing_the_package_loads_no_optional_part() -> None:
    code = (
        "import sys, mainspring; "
        "bad = [m for m in ('psycopg', 'starlette', 'uvicorn', 'jinja2', 'rich', 'sqlalchemy', 'mainspring.store.postgres') "
        "if m in sys.modules]; sys.exit(', '.join(bad) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_package_says_that_it_is_typed() -> None:
    from importlib.resources import files  # noqa: PLC0415

    assert (files("mainspring") / "py.typed").is_file()
