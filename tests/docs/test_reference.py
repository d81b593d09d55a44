"""The reference pages leave nothing out: each setting, table, column, error, command and option is there."""

from __future__ import annotations

import contextlib
import inspect
import json
import re
import shlex
import sqlite3
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import psycopg
import pytest

from mainspring import Settings, errors
from mainspring.cli.main import main
from mainspring.store.open import open_store
from tests.docs.test_code_blocks import PAGES, PROJECT, blocks
from tests.store import raw
from tests.store.build import NOW, get, run, start, worker

if TYPE_CHECKING:
    from collections.abc import Iterator

REFERENCE = PROJECT / "docs" / "reference"


def _page(name: str) -> str:
    return Path(REFERENCE, name).read_text("utf-8")


def _section(page: str, title: str) -> str:
    found = re.search(rf"^#+ `?{re.escape(title)}`?$(.*?)(?=^#+ |\Z)", page, re.MULTILINE | re.DOTALL)
    assert found is not None, f"there is no section {title!r}"
    return found[1]


# -- settings ----------------------------------------------------------------------------------------------------------
def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return _length(value) if isinstance(value, float) else str(value)


def _length(seconds: float) -> str:
    unit, name = next((each for each in ((86_400, "d"), (3_600, "h")) if seconds and seconds % each[0] == 0), (1, "s"))
    return f"{seconds / unit:g} {name}"


def _like(default: object, low: float) -> object:
    """The lowest value as it is written: a duration where the default is one."""
    return type(default)(low) if isinstance(default, (int, float)) else low


def _settings_table(monkeypatch: pytest.MonkeyPatch) -> str:
    """The table as it has to stand in settings.md."""
    for one in fields(Settings):
        monkeypatch.delenv(f"MAINSPRING_{one.name.upper()}", raising=False)
    defaults = Settings()
    lines = ["| setting | default | in the environment | what it is |", "|---|---|---|---|"]
    for one in fields(Settings):
        choices = f"; one of {', '.join(one.metadata['choices'])}" if one.metadata["choices"] else ""
        low = (
            f"; at least {_shown(_like(getattr(defaults, one.name), one.metadata['low']))}"
            if one.metadata["low"]
            else ""
        )
        variable = f"`MAINSPRING_{one.name.upper()}`"
        text = f"{one.metadata['help']}{low}{choices}"
        lines.append(f"| `{one.name}` | {_shown(getattr(defaults, one.name))} | {variable} | {text} |")
    return "\n".join(lines)


def test_the_table_of_settings_is_that_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = _settings_table(monkeypatch)
    assert expected in _page("settings.md"), f"put this into docs/reference/settings.md:\n\n{expected}\n"


# -- errors ------------------------------------------------------------------------------------------------------------
def test_every_error_is_explained() -> None:
    page = _page("errors.md")
    for name, value in inspect.getmembers(errors, inspect.isclass):
        if issubclass(value, errors.MainspringError):
            assert f"| `{name}` |" in page, f"errors.md says nothing of {name}"


# -- tables ------------------------------------------------------------------------------------------------------------
VIEW = "_view"


def _columns(url: str) -> dict[str, list[str]]:
    """The columns of each table and view of a database with all of them."""
    with contextlib.closing(open_store(url, Settings())) as store:
        store.open()
    return raw.columns(url, views=True)


def _explained(page: str, table: str) -> dict[str, str]:
    """The columns of a table on the page, with what it says of them."""
    return dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", _section(page, table), re.MULTILINE))


def _tables_and_views(url: str) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """The tables (and the view of scheduled functions), and the views that show times."""
    found = _columns(url)
    views = {name: columns for name, columns in found.items() if name.endswith(VIEW)}
    return {name: columns for name, columns in found.items() if name not in views}, views


def test_the_tables_and_columns_on_the_page_are_those_of_the_database(store_url: str) -> None:
    page = _page("tables.md")
    tables, _ = _tables_and_views(store_url)
    assert set(re.findall(r"^## `(\w+)`$", page, re.MULTILINE)) == tables.keys()
    for table, columns in tables.items():
        assert _explained(page, table).keys() == set(columns), table


def test_the_views_on_the_page_are_those_of_postgres(postgres_url: str, sqlite_url: str) -> None:
    _, views = _tables_and_views(postgres_url)
    assert _explained(_page("tables.md"), "Views with times") == {
        name: f"[`{name.removesuffix(VIEW)}`](#{name.removesuffix(VIEW)})" for name in views
    }
    assert _tables_and_views(sqlite_url)[1] == {}


def test_the_values_on_the_page_are_those_that_the_database_accepts(store_url: str) -> None:
    page = _page("tables.md")
    _columns(store_url)
    for (table, column), values in raw.checks(store_url).items():
        assert set(re.findall(r"`(\w+)`", _explained(page, table)[column])) == values, f"{table}.{column}"


def test_what_stands_in_stranded_is_explained(store_url: str) -> None:
    explained = set(re.findall(r"`(\w+)`", _explained(_page("tables.md"), "runs")["blocked"]))
    with contextlib.closing(open_store(store_url, Settings())) as store:
        store.open()
        start(store, run("known", fingerprint="f"), run("unknown", workflow="unknown", fingerprint=""))
        store.register(worker("w", functions="{}"))
        assert store.strand({}) == 1
        store.unknown.review(NOW, 1)
        found = [json.loads(get(store, each).blocked or "{}") for each in ("known", "unknown")]
    assert all(isinstance(each["versions"], list) for each in found)
    assert {key for each in found for key in each} == explained


def test_the_queries_on_the_page_run(sqlite_url: str, postgres_url: str) -> None:
    for url in (sqlite_url, postgres_url):
        _columns(url)
    first, second = blocks(_page("tables.md"))
    assert (first.language, second.language) == ("sql", "sql")
    with contextlib.closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as database:
        database.executescript(first.text)
    with psycopg.connect(postgres_url) as connection:
        connection.execute(second.text.encode())


# -- commands ----------------------------------------------------------------------------------------------------------
def _commands(group: click.Group, path: str = "mainspring") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


@pytest.mark.parametrize(("path", "command"), list(_commands(main)), ids=str)
def test_every_command_is_explained_with_its_options(path: str, command: click.Command) -> None:
    section = _section(_page("cli.md"), path)
    if "(#which-runs)" in section:
        section += _section(_page("cli.md"), "Which runs")
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden and option.name != "verbose":
            assert f"`{option.opts[-1]}" in section, f"cli.md says nothing of {path} {option.opts[-1]}"


def _command_lines() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for line in page.read_text("utf-8").splitlines():
            for part in line.split(" | "):
                found = re.match(r"^(?: {4}|\$ )?(?:[A-Z_]+=\S+ )?(mainspring [a-z].*?)(?: {3,}.*| > .*)?$", part)
                if found is not None and line.startswith(("    ", "$ ")):
                    yield str(page.relative_to(PROJECT)), found[1]


@pytest.mark.parametrize(("page", "line"), list(_command_lines()), ids=str)
def test_the_commands_on_the_pages_exist(page: str, line: str) -> None:
    del page
    command: click.Command = main
    words = shlex.split(line)[1:]
    while isinstance(command, click.Group):
        command = command.commands[words.pop(0)]
    command.make_parser(click.Context(command, help_option_names=["-h", "--help"])).parse_args(words)
