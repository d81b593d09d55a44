"""`mainspring ui`: the dashboard of a database, without the app's code."""

from __future__ import annotations

import asyncio
import ipaddress
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from mainspring.app.client import Client
from mainspring.app.settings import Settings
from mainspring.cli.commands import Command, F, note, url_option
from mainspring.errors import InvalidInput, MissingExtra
from mainspring.operations.connect import require_there, shown

if TYPE_CHECKING:
    from starlette.types import ASGIApp
    from uvicorn import Server

PORT = 7070


def serving_options(function: F) -> F:
    """`--host`, `--port`, `--token` and `--read-only`, for every command that serves the dashboard."""
    for option in (
        click.option("--read-only", is_flag=True, help="Show everything, and let nobody act."),
        click.option(
            "--token",
            envvar="MAINSPRING_TOKEN",
            show_envvar=True,
            metavar="SECRET",
            help="Let in whoever knows this. Needed for any --host but this machine's own.",
        ),
        click.option(
            "--port",
            type=click.IntRange(0, 65535),
            default=PORT,
            show_default=True,
            metavar="N",
            help="The port to listen on; 0 finds a free one.",
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

    It answers to this machine only, unless --token says how others show that they may come in. It needs no code of the
    app's; tables are checked, never made.

    \b
      mainspring ui
      mainspring ui --url postgresql://db/shop --host 0.0.0.0 --token "$SECRET"
    """
    require_there(url)
    client = Client(url, settings=replace(Settings(), migrate=False))
    try:
        asyncio.run(_serve(client, url, host, port, token, read_only=read_only))
    finally:
        client.close()


async def _serve(client: Client, url: str, host: str, port: int, token: str | None, *, read_only: bool) -> None:
    from mainspring.web import dashboard  # noqa: PLC0415  (needs an extra)

    await client.runtime.connected()
    server = make_server(dashboard(client, auth=token, read_only=read_only), host, port, token)
    note(f"dashboard of {shown(url)}")
    serving = asyncio.create_task(server.serve())
    note(f"  open       {await address(server, serving)}")
    await serving


def make_server(pages: ASGIApp, host: str, port: int, token: str | None) -> Server:
    """A server for the dashboard. Beyond this machine it needs a token."""
    try:
        import uvicorn  # noqa: PLC0415  (only with the extra)
    except ModuleNotFoundError as error:
        raise MissingExtra("the dashboard needs a server; pip install 'mainspring[web]'") from error
    if token is None and not _is_here(host):
        raise InvalidInput(
            f"on {host} others can reach the dashboard; give --token (or MAINSPRING_TOKEN), or mount it in an app of yours "
            "with auth=…"
        )
    config = uvicorn.Config(
        pages, host=host, port=port, log_level="warning", lifespan="off", timeout_graceful_shutdown=1, ws="none"
    )
    return uvicorn.Server(config)


async def address(server: Server, serving: asyncio.Task[None]) -> str:
    """Where the server listens, as soon as it does."""
    while not server.started and not serving.done():  # noqa: ASYNC110  (the server has no signal for it)
        await asyncio.sleep(0.01)
    if serving.done():
        await serving
        raise InvalidInput(f"cannot listen on {server.config.host}:{server.config.port}; give another --port")
    host, port = server.servers[0].sockets[0].getsockname()[:2]
    return f"http://{'localhost' if _is_here(host) else host}:{port}/"


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
