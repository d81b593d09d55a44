"""`mainspring run`: start a function of an app."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
import msgspec

from mainspring.app.client_api import runtime_of
from mainspring.app.functions.functions import Call
from mainspring.app.functions.options import Options
from mainspring.cli.commands import FAILED, Command, note
from mainspring.cli.options import time
from mainspring.cli.runs.listing import runs
from mainspring.cli.target import load_app
from mainspring.cli.terminal import data, safe_json
from mainspring.codec.values import UNTAGGED
from mainspring.engine.registry import Bound
from mainspring.errors import InvalidInput, UnknownFunction
from mainspring.recurrence.durations import typed_duration

if TYPE_CHECKING:
    from datetime import datetime

    from mainspring.app.app import App
    from mainspring.app.handle import Handle


class _Run(Command):
    """The command, which suggests `runs` where its first argument is a verb of that noun."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        first = args[0] if args else ""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if first not in runs.commands:
                raise
            raise click.UsageError(f"{error.format_message()} {_suggestion(first)}", error.ctx) from error


def _suggestion(verb: str) -> str:
    return f"Did you mean `mainspring runs {verb}`?"


@click.command(cls=_Run)
@click.argument("target")
@click.argument("name")
@click.option("--args", "arguments", metavar="JSON", default="{}", help="An object of arguments by name, or an array.")
@click.option("--after", type=typed_duration, metavar="DURATION", help="10s, 3d, … or seconds.  [default: at once]")
@click.option("--at", type=time, metavar="TIME", help="When, UTC unless it says otherwise.")
@click.option("--id", "run_id", metavar="ID", help="The id of the run. A second start with it returns the same run.")
@click.option("--wait", is_flag=True, help="Wait for the result and print it as JSON; the id goes to stderr.")
@click.option("--url", metavar="URL", help="A database instead of the app's own.")
@click.pass_context
def run(
    ctx: click.Context,
    /,
    target: str,
    name: str,
    *,
    arguments: str,
    after: float | str | None,
    at: datetime | None,
    run_id: str | None,
    wait: bool,
    url: str | None,
) -> None:
    """Start a workflow, step or transaction of an app, now or later, and print the id of its run. Workers execute it.

    TARGET is module:app or path/file.py:app; NAME is the name of the function.

    \b
      mainspring run shop:app remind --after 3d --args '{"order": 7}'
      mainspring run shop.py report --args '["eu"]' --wait
    """
    if after is not None and at is not None:
        raise click.UsageError("give --after or --at, not both")
    app = _app(target)
    if url is not None:
        runtime_of(app).url = url
    call = _call(app, name, arguments, run_id)
    try:
        handle = app.run_at.sync(at, call) if at is not None else app.run_after.sync(after or 0, call)
        if not wait:
            data(handle.id)
            return
        note(handle.id)
        if not _waited(handle):
            ctx.exit(FAILED)
    finally:
        app.close()


def _app(target: str) -> App:
    try:
        return load_app(target)
    except InvalidInput as error:
        cause = error.__cause__
        if target in runs.commands and isinstance(cause, ModuleNotFoundError) and cause.name == target:
            raise InvalidInput(f"{error}. {_suggestion(target)}") from error
        raise


def _call(app: App, name: str, arguments: str, run_id: str | None) -> Call[Any]:
    try:
        function = runtime_of(app).registry.get(name)
    except UnknownFunction as error:
        raise InvalidInput(str(error)) from None
    if function.bound is not Bound.NOT:
        raise InvalidInput(f"{name!r} is a method; only functions can be run from the command line")
    try:
        given: Any = json.loads(arguments)
    except json.JSONDecodeError as error:
        raise InvalidInput(f"--args is not JSON: {error}") from None
    if arguments.lstrip()[:1] not in {"{", "["}:
        raise InvalidInput(f"--args takes an object of arguments by name, or an array, not {arguments}")
    named = arguments.lstrip().startswith("{")
    try:
        function.codec.signature.bind(*(() if named else given), **(given if named else {}))
    except TypeError as error:
        raise InvalidInput(f"{name}{function.codec.signature} cannot be called with {arguments}: {error}") from None
    # The star says that the call is to be bound to the signature, as one that was stored without the function's code.
    call: dict[str, Any] = {"*": [], **given} if named else {"*": given}
    args, kwargs = function.codec.decode(json.dumps(call, ensure_ascii=False, separators=(",", ":")))
    options = Options() if run_id is None else Options().with_({"id": run_id})
    return Call(runtime_of(app), function, args, kwargs, options)


def _waited(handle: Handle[Any]) -> bool:
    try:
        found = handle.result.sync()
    except Exception as error:  # noqa: BLE001  (the run's own exception)
        note(f"{type(error).__name__}: {error}")
        return False
    click.echo(safe_json(msgspec.json.encode(UNTAGGED.lower(found)).decode()))
    return True
