"""The reference pages leave nothing out: each setting, table, column, error, command and option is there."""

from __future__ import annotations

import contextlib
import inspect
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
    return f"{value:,}" if isinstance(value, int) else f"{value:g} s" if isinstance(value, float) else str(value)


def _settings_table(monkeypatch: pytest.MonkeyPatch) -> str:
    """The table as it has to stand in settings.md."""
    for one in fields(Settings):
        monkeypatch.delenv(f"MAINSPRING_{one.name.upper()}", raising=False)
    defaults = Settings()
    lines = ["| setting | default | in the environment | what it is |", "|---|---|---|---|"]
    for one in fields(Settings):
        choices = f"; one of {', '.join(one.metadata['choices'])}" if one.metadata["choices"] else ""
        low = (
            f"; at least {_shown(type(getattr(defaults, one.name))(one.metadata['low']))}"
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
def _columns(url: str) -> dict[str, list[str]]:
    store = open_store(url, Settings())
    store.open()
    store.close()
    found: dict[str, list[str]] = {}
    if url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
            query = "SELECT t.name, c.name FROM sqlite_master t, pragma_table_info(t.name) c WHERE t.type IN ('table', 'view')"
            rows: list[tuple[str, str]] = database.execute(query).fetchall()
    else:
        with psycopg.connect(url) as connection:
            query = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'mainspring'"
            rows = connection.execute(query.encode()).fetchall()
    for table, column in rows:
        found.setdefault(table, []).append(column)
    return found


def test_every_table_and_column_is_explained(store_url: str) -> None:
    page = _page("tables.md")
    for table, columns in _columns(store_url).items():
        section = _section(page, table)
        for column in columns:
            assert f"| `{column}` |" in section, f"tables.md says nothing of {table}.{column}"


def test_no_table_or_column_is_explained_that_is_not_there(sqlite_url: str) -> None:
    page = _page("tables.md")
    tables = _columns(sqlite_url)
    for title in re.findall(r"^## `(\w+)`$", page, re.MULTILINE):
        explained = re.findall(r"^\| `(\w+)` \|", _section(page, title), re.MULTILINE)
        assert set(explained) == set(tables[title]), title


def test_the_queries_on_the_page_run(sqlite_url: str) -> None:
    _columns(sqlite_url)
    with contextlib.closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as database:
        for block in blocks(_page("tables.md")):
            assert block.language == "sql"
            database.executescript(block.text)


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
