"""`mainspring ui`: the dashboard of a database, without the app's code."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from dataclasses import replace
from importlib.util import find_spec
from pathlib import PurePath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from mainspring.app.client import Client
from mainspring.app.client_api import runtime_of
from mainspring.app.settings import Settings
from mainspring.cli.commands import Command, F, note, url_option
from mainspring.cli.worker import Stop
from mainspring.errors import InvalidInput, MissingExtra
from mainspring.operations.connect import require_there, shown

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from mainspring.web.site import Dashboard

PORT = 7070


def serving_options(function: F) -> F:
    """Add `--host`, `--port`, `--token` and `--read-only` to a command that serves the dashboard."""
    for option in (
        click.option("--read-only", is_flag=True, help="Show everything, allow no action."),
        click.option(
            "--token",
            envvar="MAINSPRING_TOKEN",
            show_envvar=True,
            metavar="SECRET",
            help="The token to sign in with. Required unless --host is a loopback address.",
        ),
        click.option(
            "--port",
            type=click.IntRange(0, 65535),
            default=PORT,
            show_default=True,
            metavar="N",
            help="The port to listen on. 0 selects a free one.",
        ),
        click.option(
            "--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="The address to listen on."
        ),
    ):
        function = option(function)
    return function


@click.command(cls=Command)
@url_option
@serving_options
def ui(url: str, host: str, port: int, token: str | None, *, read_only: bool) -> None:
    """Serve the dashboard of a database, until stopped.

    It answers to this machine only, unless --token is given. It needs no code of the app. Tables are checked, never created.

    \b
      mainspring ui
      mainspring ui --url postgresql://db/shop --host 0.0.0.0 --token "$SECRET"
    """
    require_web()
    require_there(url)
    client = Client(url, settings=replace(Settings(), migrate=False))
    runtime_of(client).name = PurePath(urlsplit(url).path).stem or runtime_of(client).name
    try:
        asyncio.run(_serve(client, url, host, port, token, read_only=read_only))
    finally:
        client.close()


async def _serve(client: Client, url: str, host: str, port: int, token: str | None, *, read_only: bool) -> None:
    from mainspring.web.site import Dashboard  # noqa: PLC0415  (needs an extra)

    await runtime_of(client).connected()
    stop = Stop()
    async with served(Dashboard(client, auth=token, read_only=read_only), host, port, token) as address:
        note(f"dashboard of {shown(url)}")
        note(f"  open       {address}")
        note("  ^C stops it")
        await stop.asked.wait()


def require_web() -> None:
    """Raise `MissingExtra` if a package of the dashboard is not installed."""
    missing = [name for name in ("starlette", "jinja2", "uvicorn") if find_spec(name) is None]
    if missing:
        raise MissingExtra(f"the dashboard needs {', '.join(missing)}; pip install 'mainspring[web]'")


@contextlib.asynccontextmanager
async def served(pages: Dashboard, host: str, port: int, token: str | None) -> AsyncGenerator[str]:
    """Serve the dashboard for the length of a block, and yield its address. Hosts other than loopback need a token."""
    from mainspring.cli.serving import serving  # noqa: PLC0415  (only with the extra)

    if token is None and not _is_here(host):
        raise InvalidInput(
            f"on {host} others can reach the dashboard; give --token (or MAINSPRING_TOKEN), or mount it in an app of yours "
            "with auth=…"
        )
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        raise InvalidInput(f"cannot listen on {host}:{port}: {error.strerror}; give another --port") from None
    with listening:
        async with serving(pages, listening):
            yield f"http://{'localhost' if _is_here(host) else host}:{listening.getsockname()[1]}/"


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
