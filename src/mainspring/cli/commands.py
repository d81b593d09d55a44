"""Options of all commands, and how commands fail.

Data goes to stdout, everything else to stderr. Exit codes: 0 success, 1 failure, 2 wrong usage, 4 not found. An error is one sentence
that says what to do. `-v` adds the traceback.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mainspring.app.app import DEFAULT_URL
from mainspring.cli.terminal import echo, safe_lines
from mainspring.errors import InvalidInput, MainspringError, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

F = TypeVar("F", bound="Callable[..., Any]")

FAILED = 1
MISUSED = 2
NOT_FOUND = 4
_WHOLE = 1_000


class Command(click.Command):
    """A command that takes `-v` and converts exceptions to messages and exit codes."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        with _usage_in_our_words():
            return super().make_context(info_name, args, parent, **extra)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(
            click.Option(
                ["-v", "--verbose"], is_flag=True, expose_value=False, callback=_be_verbose, help="Show tracebacks."
            )
        )
        names = {param.name for param in self.params}
        if (
            "reason" in names and "yes" not in names
        ):  # it changes something and does not ask: scripts may pass --yes all the same
            self.params.append(
                click.Option(
                    ["--yes"], is_flag=True, expose_value=False, hidden=True, help="No effect: it does not ask."
                )
            )

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with _usage_in_our_words():
                return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as error:  # every exception becomes a message
            if ctx.find_root().meta.get("verbose"):
                echo(safe_lines("".join(traceback.format_exception(error))), err=True, nl=False)
            raise _failure(error) from error


class Group(click.Group):
    """A noun with its verbs."""

    command_class = Command

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.no_args_is_help = True

    def invoke(self, ctx: click.Context) -> Any:
        with _usage_in_our_words():
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The first sentence of each command, over several lines rather than cut off."""
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [(name, each.get_short_help_str(_WHOLE)) for name, each in found if each is not None and not each.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class Failure(click.ClickException):
    """The command failed, with a message and an exit code."""

    def show(self, file: Any = None) -> None:
        words = f"{click.style('error:', fg='red')} {safe_lines(self.message)}"
        echo(words, err=True, file=file, color=self.show_color)


class WrongUsage(click.UsageError):
    """Something on the command line is wrong: click's own words, printed as all errors are."""

    def show(self, file: Any = None) -> None:
        if self.ctx is not None:
            hint = f"Try '{self.ctx.command_path} {self.ctx.help_option_names[-1]}' for help.\n"
            echo(f"{self.ctx.get_usage()}\n{hint}", err=True, file=file)
        Failure(self.format_message()).show(file)


class Misuse(Failure):
    exit_code = MISUSED


class Missing(Failure):
    exit_code = NOT_FOUND


@contextlib.contextmanager
def _usage_in_our_words() -> Generator[None]:
    try:
        yield
    except (WrongUsage, click.exceptions.NoArgsIsHelpError):
        raise
    except click.UsageError as error:
        raise WrongUsage(error.format_message(), error.ctx) from error


def note(message: str) -> None:
    """Print a message to stderr, beside the data."""
    click.echo(safe_lines(message), err=True)


def fault(message: str) -> None:
    """Say what went wrong, and go on with the rest."""
    Failure(message).show()


def url_option(function: F) -> F:
    """Add `--url` to a command that needs a database."""
    return click.option(
        "--url",
        envvar="MAINSPRING_URL",
        default=DEFAULT_URL,
        show_default=True,
        show_envvar=True,
        metavar="URL",
        help="The database: sqlite:///file.db or postgresql://user@host/name.",
    )(function)


def output_option(*choices: str) -> Callable[[F], F]:
    """Add `-o` to a command that prints data."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(choices),
        default=choices[0],
        show_default=True,
        help="How to print the data.",
    )


def ids_from(given: tuple[str, ...]) -> list[str]:
    """Return the ids on the command line without duplicates. `-` stands for the ids on stdin, one per line."""
    found: list[str] = []
    for one in given:
        found += [line.strip() for line in sys.stdin] if one == "-" else [one]
    return list(dict.fromkeys(one for one in found if one))


def colour_wanted() -> bool | None:
    """Return False if the user disabled colours (https://no-color.org). None: it depends on the terminal."""
    return False if os.environ.get("NO_COLOR") else None


def _be_verbose(ctx: click.Context, param: click.Parameter, value: bool) -> None:  # noqa: FBT001
    del param
    if value:
        ctx.find_root().meta["verbose"] = True


def _failure(error: Exception) -> Failure:
    text = " ".join(str(error).split())
    if not isinstance(error, MainspringError):
        return Failure(f"{type(error).__name__}: {text} (-v shows where)")
    if isinstance(error, NotFound):
        return Missing(text)
    return Misuse(text) if isinstance(error, InvalidInput) else Failure(text)
