"""The public surface: what is promised is there, and nothing else is spelled as if it were."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import pytest

import mainspring
from mainspring import App, Client, Handle, errors

if TYPE_CHECKING:
    from collections.abc import Iterator

EXPORTED: list[str] = vars(mainspring)["__all__"]
PROMISED = {
    "mainspring": {
        "Alert",
        "App",
        "AsyncFn",
        "BackfillInfo",
        "Blueprint",
        "Calendar",
        "Call",
        "Changed",
        "Client",
        "Clock",
        "Cron",
        "CronItem",
        "CronOptions",
        "Debounce",
        "Declaration",
        "DeclaredQueue",
        "Duration",
        "Event",
        "Figures",
        "FunctionPage",
        "Handle",
        "Interval",
        "JSON",
        "Loaded",
        "LogLine",
        "Message",
        "Moment",
        "Overlap",
        "ParsedCronItem",
        "PartitionInfo",
        "PatchInfo",
        "Policy",
        "Question",
        "QueueInfo",
        "QueueLimits",
        "Rate",
        "Resource",
        "Retry",
        "QueueEvent",
        "RunEvent",
        "ScheduleEvent",
        "WorkerEvent",
        "RunInfo",
        "RunPage",
        "RunTick",
        "ScheduleAudit",
        "ScheduleDescription",
        "ScheduleInfo",
        "SchedulePage",
        "ScheduledFunction",
        "Settings",
        "Spec",
        "State",
        "StepFigures",
        "StepInfo",
        "Stream",
        "SyncFn",
        "TickInfo",
        "TickOutcome",
        "TickPage",
        "TickSource",
        "Topic",
        "Try",
        "Tx",
        "VersionInfo",
        "WorkerInfo",
        "parse_cron_items",
        "parse_crontab",
        "run",
    },
    "mainspring.testing": {
        "Fake",
        "Faults",
        "Outcome",
        "Report",
        "SimulationFailed",
        "VirtualClock",
        "World",
        "crash",
        "simulate",
        "world",
    },
    "mainspring.payloads": {
        "BlobStore",
        "DeletingBlobStore",
        "Chain",
        "Compression",
        "Encryption",
        "FileStore",
        "Offload",
        "PayloadCodec",
    },
    "mainspring.recurrence": {
        "Advice",
        "AmbiguousCron",
        "Calendar",
        "Cron",
        "CronItem",
        "CronOptions",
        "DateRange",
        "Dialect",
        "Fold",
        "Gap",
        "Interval",
        "ParsedCronItem",
        "Spec",
        "ambiguity",
        "format_duration",
        "lint",
        "parse_cron_items",
        "parse_crontab",
        "parse_duration",
    },
}

ON_OBJECTS = {
    App: {
        "ask",
        "bind",
        "close",
        "crontab",
        "drain",
        "first",
        "gather",
        "get_event",
        "get_events",
        "handle",
        "include",
        "instance",
        "joined",
        "on",
        "on_late",
        "on_missed",
        "on_paused_by_failure",
        "options",
        "pause",
        "queue",
        "queues",
        "read_stream",
        "resource",
        "resume",
        "run_after",
        "run_at",
        "runs",
        "schedule",
        "scheduled",
        "scheduled_functions",
        "schedules",
        "send",
        "send_many",
        "start",
        "settings",
        "start_many",
        "step",
        "transaction",
        "url",
        "version",
        "versions",
        "workers",
        "workflow",
    },
    Client: {
        "ask",
        "bind",
        "close",
        "first",
        "gather",
        "get_event",
        "get_events",
        "handle",
        "joined",
        "options",
        "queues",
        "read_stream",
        "run_after",
        "run_at",
        "runs",
        "scheduled_functions",
        "schedules",
        "send",
        "send_many",
        "start",
        "start_many",
        "versions",
        "workers",
    },
    Handle: {
        "cancel",
        "describe",
        "result",
        "terminate",
    },
}


@pytest.mark.parametrize("name", PROMISED)
def test_a_public_module_exports_exactly_what_is_promised(name: str) -> None:
    module = importlib.import_module(name)
    assert set(module.__all__) == PROMISED[name]
    for exported in module.__all__:
        assert hasattr(module, exported), exported


@pytest.mark.parametrize("cls", ON_OBJECTS)
def test_an_object_has_exactly_the_public_names_that_are_promised(cls: type) -> None:
    assert {name for name in dir(cls) if not name.startswith("_")} == ON_OBJECTS[cls]


@pytest.mark.parametrize("package", PROMISED)
def test_what_is_exported_says_that_it_is_from_the_package(package: str) -> None:
    found = {name: getattr(mainspring, name) for name in EXPORTED}  # some are in two packages, and say the outer one
    found |= {name: getattr(importlib.import_module(package), name) for name in PROMISED[package]}
    things = {name: found[name] for name in PROMISED[package]}
    things = {name: thing for name, thing in things.items() if inspect.isclass(thing) or inspect.isfunction(thing)}
    assert len(things) > len(PROMISED[package]) * 3 / 4
    said = {name: "mainspring" if name in EXPORTED else package for name in things}
    assert {name: thing.__module__ for name, thing in things.items()} == said


@pytest.mark.parametrize("package", PROMISED)
def test_no_public_name_is_hidden_by_a_module(package: str) -> None:
    """Importing a module sets an attribute of its package: a public name of the same spelling would be overwritten."""
    code = (
        "import importlib, inspect, pkgutil, sys\n"
        f"package = importlib.import_module({package!r})\n"
        "for found in pkgutil.iter_modules(package.__path__):\n"
        "    if found.name not in {'__main__', 'fixtures'}:\n"
        "        importlib.import_module(f'{package.__name__}.{found.name}')\n"
        "print([name for name in package.__all__ if inspect.ismodule(getattr(package, name))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


def test_type_checkers_see_the_names_that_are_there_at_run_time() -> None:
    tree = ast.parse(Path(mainspring.__file__ or "").read_text("utf-8"))
    seen = {alias.asname for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen - {None} == set(EXPORTED)


def test_the_types_of_infos_can_be_read_by_other_libraries() -> None:
    assert get_type_hints(mainspring.RunInfo)["created"] is datetime
    assert get_type_hints(mainspring.StepInfo)["tries"] == list[mainspring.Try]


PUBLIC_ELSEWHERE = {"Dialect", "Fold", "Gap", "PayloadCodec"}
"""In `mainspring.recurrence` and `mainspring.payloads`."""
ONLY_HELD = {
    *(
        "Answer",
        "Ask",
        "GetEvent",
        "ReadStream",
        "Receive",
        "AdHocStep",
        "Dual",
    ),  # verbs: `app.ask` is called, not annotated
    *("RunVerbs", "WorkerVerbs", "VersionVerbs", "QueueVerbs", "FunctionVerbs", "ScheduleVerbs"),  # nouns: `app.runs`
    *(
        "JoinedBlock",
        "DurableTimeout",
        "Undo",
        "Starter",
        "Decorator",
        "TransactionDecorator",
    ),  # used where they are made
    *(
        "OptionArguments",
        "QueueArguments",
        "RunFilters",
        "RunTraits",
        "ScheduleFilters",
        "Texts",
        "Mode",
        "KeyModeName",
    ),  # keywords
    "Lines",  # a list of LogLine
}


def test_every_type_that_a_verb_takes_or_returns_is_exported() -> None:
    verbs = list(_verbs(mainspring.App)) + list(_verbs(mainspring.Client)) + list(_verbs(mainspring.Handle))
    nouns = (mainspring.App().runs, mainspring.App().workers, mainspring.App().versions, mainspring.App().queues)
    for noun in (*nouns, mainspring.App().schedules, mainspring.App().scheduled_functions, mainspring.run):
        verbs += _verbs(type(noun))
    assert len(verbs) > 120
    ours = _classes_of_the_package()
    missing = {}
    for name, verb in verbs:
        words = {word for text in _annotations(verb) for word in re.findall(r"[A-Z]\w+", text)}
        left = words & ours - set(EXPORTED) - PUBLIC_ELSEWHERE - ONLY_HELD
        if left:
            missing[name] = left
    assert missing == {}


def _verbs(cls: type) -> Iterator[tuple[str, Any]]:
    for base in cls.__mro__:
        for name, found in vars(base).items():
            if not name.startswith("_") and base.__module__.startswith("mainspring"):
                verb = getattr(found, "__wrapped__", None) or getattr(found, "fget", None) or found
                if inspect.isfunction(verb):
                    yield f"{cls.__name__}.{name}", verb


def _annotations(verb: Any) -> list[str]:
    return [str(annotation) for annotation in inspect.get_annotations(verb).values()]


def _classes_of_the_package() -> set[str]:
    found: set[str] = set()
    for file in Path(mainspring.__file__ or "").parent.rglob("*.py"):
        found |= {node.name for node in ast.parse(file.read_text("utf-8")).body if isinstance(node, ast.ClassDef)}
    return found


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
