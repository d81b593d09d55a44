"""`mainspring dev`: a worker and the dashboard, reloaded whenever the code changes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from mainspring.app.client import Client
from mainspring.app.client_api import runtime_of
from mainspring.app.settings import Settings
from mainspring.cli.app_probe import Found, look
from mainspring.cli.commands import Command, Failure, note
from mainspring.cli.ui import require_web, served, serving_options
from mainspring.cli.worker import Stop
from mainspring.errors import InvalidInput
from mainspring.operations.connect import missing_file, shown, sqlite_path

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainspring.web.site import Dashboard

LOOK_SECONDS = 0.4
_LEAVE = {".git", ".venv", "venv", "node_modules", "__pycache__", "site-packages"}
_MOST_FILES = 2_000
_MOST_NAMED = 12


@click.command(cls=Command)
@click.argument("target")
@click.option("--url", metavar="URL", help="A database instead of the app's own.")
@serving_options
def dev(target: str, url: str | None, host: str, port: int, token: str | None, *, read_only: bool) -> None:
    """Execute an app and show it in a browser. Reload it whenever its code changes.

    TARGET is module:app or path/file.py:app, as for `mainspring worker`. If the new code does not load, its error is shown and the
    old code continues.

    \b
      mainspring dev shop:app
    """
    require_web()
    found = asyncio.run(look(target))
    if found.error is not None:
        raise Failure(f"{target} cannot be loaded:\n{found.error}")
    where = url or found.url
    missing_file(where)  # an in-memory database cannot be shared with the worker
    client = Client(where, settings=replace(Settings(), migrate=True))
    runtime_of(client).name = found.name
    try:
        asyncio.run(Developing(target, where, client, found).serve(host, port, token, read_only=read_only))
    finally:
        client.close()


class Developing:
    """The worker's process, the dashboard in this process, and a watch on the files."""

    def __init__(self, target: str, url: str, client: Client, found: Found) -> None:
        self._target = target
        self._url = url
        self._client = client
        self._found = found
        self._worker: asyncio.subprocess.Process | None = None
        self._pages: Dashboard | None = None

    async def serve(self, host: str, port: int, token: str | None, *, read_only: bool) -> None:
        from mainspring.web.site import Dashboard  # noqa: PLC0415  (needs an extra)

        await runtime_of(self._client).connected()
        self._pages = Dashboard(self._client, auth=token, read_only=read_only)
        stop = Stop()
        stop.before_end = self._end_worker
        async with served(self._pages, host, port, token) as place:
            self._introduce(place)
            await self._start()
            watching = asyncio.create_task(self._watch())
            asked = asyncio.create_task(stop.asked.wait())
            await asyncio.wait({watching, asked}, return_when=asyncio.FIRST_COMPLETED)
            note("stopping")
            await self._stop()
            watching.cancel()
            asked.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching

    def _introduce(self, place: str) -> None:
        note(f"mainspring dev {self._target}")
        note(f"  dashboard    {place}")
        note(f"  database     {shown(self._url)}")
        self._list()
        note("  files are watched; ^C stops everything")

    def _list(self) -> None:
        found = self._found
        for kind, names in found.functions.items():
            more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
            note(f"  {kind + 's':<13}{', '.join(names[:_MOST_NAMED])}{more}")
        for schedule, words, upcoming in found.schedules[:_MOST_NAMED]:
            note(f"  schedule     {schedule}: {words}; next {upcoming or 'never'}")
        if found.queues:
            note(f"  queues       {', '.join(found.queues)}")

    # -- the worker ----------------------------------------------------------------------------------------------------
    async def _start(self) -> None:
        self._worker = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "mainspring",
            "worker",
            self._target,
            "--url",
            self._url,
            "--log-level",
            "warning",
            "--quiet",
            "--show-runs",
            "--until-eof",
            stdin=asyncio.subprocess.PIPE,  # closes when this process ends, even if it is killed, and stops the worker
            start_new_session=True,  # ^C in the terminal reaches only this process, which stops the worker in order
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )

    async def _stop(self) -> None:
        worker = self._worker
        if worker is not None and worker.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                worker.send_signal(signal.SIGTERM)
            await worker.wait()
        self._worker = None

    def _end_worker(self) -> None:
        """Kill the worker and its child processes. The worker has a session of its own."""
        if self._worker is None or self._worker.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            if sys.platform == "win32":
                self._worker.kill()
            else:
                os.killpg(self._worker.pid, signal.SIGKILL)

    # -- the files -----------------------------------------------------------------------------------------------------
    async def _watch(self) -> None:
        seen, file = stamps(self._files()), self._database_file()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = stamps(self._files())
            file, before = self._database_file(), file
            if before not in {None, file}:
                note("the database was removed or replaced; starting with the new one")
                await self._stop()
                await self._start()
                file = None  # until the worker has created it
            if now != seen:
                changed = sorted(name for name in {*seen, *now} if seen.get(name) != now.get(name))
                seen = now
                await self._reload(changed)
            elif self._worker is not None and self._worker.returncode is not None:
                note(f"the worker ended with code {self._worker.returncode}; it starts again after the next change")
                self._worker = None

    def _database_file(self) -> int | None:
        """Return the inode of the database file, which a user may remove to begin anew. None if there is no file."""
        name = sqlite_path(self._url) if urlsplit(self._url).scheme == "sqlite" else ""
        with contextlib.suppress(OSError):
            return os.stat(name).st_ino if name else None  # noqa: PTH116  (as below)
        return None

    async def _reload(self, changed: list[str]) -> None:
        note(f"changed: {', '.join(Path(name).name for name in changed[:3])}")
        found = await look(self._target)
        if found.error is not None:
            self._say(f"{self._target} cannot be loaded, the old code continues:\n{found.error}")
            return
        if found.url != self._found.url and self._url == self._found.url:
            raise InvalidInput(f"the app's database is now {shown(found.url)}; start `mainspring dev` again")
        before, self._found = self._found, found
        self._say(None)
        await self._stop()
        await self._start()
        if (found.functions, found.schedules, found.queues) != (before.functions, before.schedules, before.queues):
            self._list()
        note(f"reloaded, version {found.version}")

    def _say(self, trouble: str | None) -> None:
        if trouble is not None:
            note(trouble)
        if self._pages is not None:
            self._pages.trouble = trouble

    def _files(self) -> Iterable[str]:
        return {*self._found.files, *files_here(Path.cwd())}


def files_here(folder: Path) -> list[str]:
    """Return the Python files and crontabs below a folder, without those of environments and tools."""
    found: list[str] = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _LEAVE and not name.startswith(".")]
        found += [os.path.join(place, name) for name in names if name.endswith(".py") or name == "crontab"]  # noqa: PTH118
        if len(found) > _MOST_FILES:
            break
    return found


def stamps(files: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return when each file was last changed, and its size."""
    found: dict[str, tuple[int, int]] = {}
    for name in files:
        with contextlib.suppress(OSError):
            stat = os.stat(name)  # noqa: PTH116  (thousands of times a minute)
            found[name] = stat.st_mtime_ns, stat.st_size
    return found
