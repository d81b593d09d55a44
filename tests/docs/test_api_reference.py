"""Every public name has an entry in the API reference, and a docstring that the entry shows."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import re
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

import mainspring
from mainspring import errors, integrations
from tests.docs.test_code_blocks import PROJECT

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGES = PROJECT / "docs" / "reference" / "api"
MODULES = ("mainspring", "mainspring.payloads", "mainspring.recurrence", "mainspring.testing", "mainspring.web")
NOUNS = ("queues", "runs", "scheduled_functions", "schedules", "versions", "workers")
_ENTRY = re.compile(r"^::: (mainspring[\w.]*)$", re.MULTILINE)


@functools.cache
def _entries() -> list[str]:
    return [entry for page in sorted(PAGES.glob("*.md")) for entry in _ENTRY.findall(page.read_text("utf-8"))]


def _found(path: str) -> Any:
    """The object that an entry names. A public name comes before a module of that name; nouns are those of an app."""
    value: Any = mainspring
    for name in path.split(".")[1:]:
        if isinstance(value, ModuleType):
            public = name in getattr(value, "__all__", ()) or hasattr(value, name)
            value = getattr(value, name) if public else importlib.import_module(f"{value.__name__}.{name}")
        else:
            value = getattr(mainspring.App("sqlite://"), name)
    return value


def _leads_somewhere(entry: str) -> bool:
    try:
        return _found(entry) is not None
    except (AttributeError, ImportError):
        return False


def _public() -> Iterator[str]:
    for path in MODULES:
        yield from (f"{path}.{name}" for name in importlib.import_module(path).__all__)
    yield from (f"mainspring.errors.{name}" for name in _of(errors, inspect.isclass))
    for found in pkgutil.iter_modules(integrations.__path__, "mainspring.integrations."):
        if (
            found.name == "mainspring.integrations.django"
        ):  # its names need a configured project; how-to/django.md explains them
            continue
        try:
            module = importlib.import_module(found.name)
        except ImportError:  # what it is for is not installed here
            continue
        public: list[str] = getattr(module, "__all__", None) or list(_of(module, _is_class_or_function))
        yield from (f"{module.__name__}.{name}" for name in public)


def _is_class_or_function(value: object) -> bool:
    return inspect.isclass(value) or inspect.isfunction(value)


def _of(module: ModuleType, kind: Any) -> Iterator[str]:
    for name, value in inspect.getmembers(module, kind):
        if value.__module__ == module.__name__ and not name.startswith("_"):
            yield name


def _docstring(value: Any) -> str | None:
    """The docstring of its own that an object has; that of its class, if it is an object of the library's."""
    if inspect.isclass(value):
        written: str | None = vars(value).get("__doc__")
        return None if written and written.startswith(f"{value.__name__}(") else written  # what a dataclass writes
    if type(value).__module__ == "typing":  # an alias, explained by the string below it, which only the source has
        return str(value)
    return value.__doc__ if inspect.isroutine(value) else type(value).__doc__


@pytest.mark.parametrize("name", list(_public()))
def test_a_public_name_has_an_entry(name: str) -> None:
    value = _found(name)
    there = name in _entries() or any(_found(entry) is value for entry in _entries() if _leads_somewhere(entry))
    assert there, f"add a line `::: {name}` to a page in docs/reference/api"


@pytest.mark.parametrize("name", list(_public()))
def test_a_public_name_has_a_docstring_of_its_own(name: str) -> None:
    assert _docstring(_found(name)), f"{name} has no docstring"


@pytest.mark.parametrize("page", ["docs/design.md", "docs/reference/api/README.md"])
def test_a_page_names_all_public_modules(page: str) -> None:
    text = (PROJECT / page).read_text("utf-8")
    assert [name for name in (*MODULES, errors.__name__, integrations.__name__) if f"`{name}`" not in text] == []


@pytest.mark.parametrize("noun", NOUNS)
def test_a_noun_of_an_app_has_an_entry_and_its_verbs_docstrings(noun: str) -> None:
    assert f"mainspring.App.{noun}" in _entries(), f"add a line `::: mainspring.App.{noun}` to docs/reference/api"
    verbs = getattr(mainspring.App("sqlite://"), noun)
    for name in dir(verbs):
        if not name.startswith("_"):
            assert inspect.getattr_static(verbs, name).__doc__, f"app.{noun}.{name} has no docstring"


@pytest.mark.parametrize("entry", _entries())
def test_an_entry_leads_to_something(entry: str) -> None:
    assert _leads_somewhere(entry), f"there is no {entry}; take its line out of docs/reference/api"


def test_what_is_missing_is_noticed() -> None:
    class Bare(mainspring.Retry):
        pass

    assert _docstring(Bare) is None
    assert not _leads_somewhere("mainspring.Nothing")
