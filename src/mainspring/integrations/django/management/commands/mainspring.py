"""`manage.py mainspring …`: the command `mainspring`, for this project's app and its database."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

import click
from django.core.management.base import BaseCommand, SystemCheckError

from mainspring.integrations.django.project import get_app

if TYPE_CHECKING:
    from collections.abc import Sequence

TARGET = "mainspring.integrations.django:app"
_CHECKED = {"worker", "dev", "run"}


class Command(BaseCommand):
    help = "Executes and shows the durable workflows and tasks of this project: worker, dev, runs, schedules, queues …"
    requires_system_checks = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """Pass all arguments to the command `mainspring`, which parses them itself."""
        try:
            self._run(argv[2:], standalone=True)
        except SystemCheckError as error:
            self.stderr.write(str(error), lambda text: text)
            sys.exit(error.returncode)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("arguments", nargs=argparse.REMAINDER)

    def handle(self, *args: Any, **options: Any) -> None:
        """Execute the command for `call_command("mainspring", "worker", "--once")`."""
        self._run([*args, *options["arguments"]], standalone=False)

    def _run(self, arguments: Sequence[str], *, standalone: bool) -> None:
        from mainspring.cli.main import main  # noqa: PLC0415  (all commands of the terminal)

        if _CHECKED.intersection(arguments[:2]) and "--help" not in arguments:
            self.check()
        app = get_app()
        # Commands without a target find the database in the environment, and so do child processes.
        os.environ["MAINSPRING_URL"], os.environ["MAINSPRING_SCHEMA"] = app.url, app.settings.schema
        main.main(with_target(main, arguments), prog_name="manage.py mainspring", standalone_mode=standalone)


def with_target(main: click.Command, arguments: Sequence[str]) -> list[str]:
    """Return the arguments, with this project's app where a command takes a target."""
    command, known = main, list[str]()
    for number, word in enumerate(arguments):
        known.append(word)
        if word.startswith("-"):
            continue
        command = command.commands[word] if isinstance(command, click.Group) and word in command.commands else command
        if not isinstance(command, click.Group):
            wants = any(isinstance(each, click.Argument) and each.name == "target" for each in command.params)
            return [*known, *([TARGET] if wants else []), *arguments[number + 1 :]]
    return known
