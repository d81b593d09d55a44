"""What all commands promise: help with examples, exit codes, no colours in pipes, errors in one sentence."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import click
import pytest

import mainspring as package
from mainspring.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Mainspring


def _commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from _commands(command, (*path, name))


@pytest.mark.parametrize("path", [path for path, _ in _commands(main)], ids=" ".join)
def test_every_command_explains_itself(mainspring: Mainspring, path: tuple[str, ...]) -> None:
    result = mainspring(*path, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: mainspring")
    assert mainspring(*path, "-h").stdout == result.stdout
    assert "..." not in result.stdout.partition("\nCommands:")[2]  # a sentence that is cut off explains nothing


@pytest.mark.parametrize(("path", "command"), list(_commands(main)), ids=str)
def test_every_option_says_what_it_does(path: tuple[str, ...], command: click.Command) -> None:
    del path
    silent = [option.name for option in command.params if isinstance(option, click.Option) and not option.help]
    assert [name for name in silent if name not in {"url", "output"}] == []


def test_the_first_page_of_help_fits_a_terminal(mainspring: Mainspring) -> None:
    assert [line for line in mainspring("--help").stdout.splitlines() if len(line) > 80] == []


def test_the_version_is_that_of_the_package(mainspring: Mainspring) -> None:
    assert mainspring("--version").stdout == f"mainspring {package.__version__}\n"


def test_python_m_mainspring_is_the_same_command() -> None:
    asked = subprocess.run(
        [sys.executable, "-m", "mainspring", "--version"], capture_output=True, text=True, check=True
    )
    assert asked.stdout == f"mainspring {package.__version__}\n"


def test_help_does_not_load_what_it_does_not_need() -> None:
    code = "import sys, mainspring.cli.main; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"rich.console", "psycopg", "starlette", "jinja2"} & set(loaded)


@pytest.mark.parametrize(
    "arguments",
    [["runs", "list", "--state", "asleep"], ["runs", "list", "--limit", "0"], ["runs", "show"], ["nonsense"]],
    ids=" ".join,
)
def test_wrong_usage_is_exit_code_2(mainspring: Mainspring, arguments: list[str]) -> None:
    result = mainspring(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "\nerror: " in result.stderr
    assert "--help' for help" in result.stderr


@pytest.mark.parametrize("url", ["mysql://nobody@nowhere/nothing", "sqlite://", "sqlite:relative.db"])
def test_a_url_that_is_none_is_exit_code_2(mainspring: Mainspring, url: str) -> None:
    result = mainspring("runs", "list", "--url", url)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_v_shows_the_traceback_before_or_after_the_command(mainspring: Mainspring) -> None:
    url = "sqlite:////nowhere/at/all.db"
    assert "Traceback" not in mainspring("runs", "list", "--url", url).stderr
    for arguments in (["-v", "runs", "list"], ["runs", "list", "-v"]):
        result = mainspring(*arguments, "--url", url)
        assert "Traceback" in result.stderr
        assert result.stderr.splitlines()[-1].startswith("error: there is no database file")


def test_the_database_is_that_of_the_environment_unless_given(mainspring: Mainspring, sqlite_url: str) -> None:
    env = {"MAINSPRING_URL": sqlite_url}
    assert mainspring("db", "migrate", env=env).exit_code == 0
    assert mainspring("db", "check", env=env).exit_code == 0
    assert mainspring("db", "check", "--url", sqlite_url + "x", env=env).exit_code == 1


def test_nothing_is_coloured_where_nobody_looks(mainspring: Mainspring, history: str) -> None:
    for arguments in (["runs", "list"], ["runs", "show", "bad-1"], ["doctor"]):
        assert "\x1b" not in mainspring(*arguments, "--url", history).output
