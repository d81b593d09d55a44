"""Load an app's code in a process of its own, to find out whether it loads, what it declares, and its files."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, field

from mainspring.app.client_api import runtime_of
from mainspring.cli.commands import note
from mainspring.cli.target import load_app
from mainspring.errors import MainspringError
from mainspring.model.clock import SystemClock, to_datetime

if TYPE_CHECKING:
    from collections.abc import Generator

    from mainspring.app.app import App

_OURS = str(Path(__file__).parents[1])
_MARK = "mainspring-found:"
LONG_SECONDS = 5
RUNS_AT_IMPORT = 'what should not run whenever it is imported belongs below `if __name__ == "__main__":`'


class Found(Struct):
    """What an app's code declares. With `error`: why it cannot be loaded."""

    url: str = ""
    name: str = ""
    version: str = ""
    functions: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Function names by kind."""
    schedules: list[tuple[str, str, str | None]] = field(default_factory=list[tuple[str, str, str | None]])
    """Id, description and next time."""
    queues: list[str] = field(default_factory=list[str])
    files: list[str] = field(default_factory=list[str])
    """The files that the code was loaded from, without the library's own and installed packages."""
    error: str | None = None


@contextlib.contextmanager
def reminding(words: str) -> Generator[None]:
    """Print a message if a block takes long."""
    later = asyncio.get_running_loop().call_later(LONG_SECONDS, note, words)
    try:
        yield
    finally:
        later.cancel()


async def look(target: str) -> Found:
    """Return what the code of a target declares, as it is on disk now."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "mainspring.cli.app_probe",
        target,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    with reminding(f"{target} is still being loaded; {RUNS_AT_IMPORT}"):
        try:
            out, err = await process.communicate()
        finally:
            if process.returncode is None:  # the caller was cancelled
                process.kill()
                await process.wait()
    for line in out.decode(errors="replace").splitlines():
        if line.startswith(_MARK):
            return msgspec.json.decode(line.removeprefix(_MARK), type=Found)
    return Found(error=err.decode(errors="replace").strip() or f"loading {target} ended with code {process.returncode}")


def describe(app: App) -> Found:
    """Return what a loaded app declares."""
    kinds: dict[str, list[str]] = {}
    for function in runtime_of(app).registry:
        kinds.setdefault(function.kind, []).append(function.name)
    now = to_datetime(SystemClock().now())
    schedules: list[tuple[str, str, str | None]] = []
    for each in runtime_of(app).declarations:
        upcoming = each.spec.next(now)
        schedules.append(
            (each.id, each.spec.describe(), None if upcoming is None else f"{upcoming:%Y-%m-%d %H:%M:%S %Z}")
        )
    return Found(
        app.url,
        app.name,
        app.version,
        {kind: sorted(names) for kind, names in kinds.items()},
        sorted(schedules),
        _queues(app),
        _files(),
    )


def _queues(app: App) -> list[str]:
    return sorted(queue.name for queue in runtime_of(app).queues)


def _files() -> list[str]:
    installed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    found: set[str] = set()
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and file.endswith(".py") and not file.startswith((_OURS, *installed)):
            found.add(str(Path(file).resolve()))
    return sorted(found)


def main() -> None:
    """Print what the app declares on one line, or its error. Called in the process of its own."""
    target = sys.argv[1]
    try:
        found = describe(load_app(target))
    except Exception as error:  # noqa: BLE001  (a user's code may raise anything)
        cause = error.__cause__ or error
        frames = [frame for frame in traceback.extract_tb(cause.__traceback__) if not _is_machinery(frame.filename)]
        where = "".join(traceback.format_list(frames))
        ours = not frames and isinstance(cause, MainspringError)  # about the target, not from the user's code
        last = str(cause) if ours else "".join(traceback.format_exception_only(cause)).strip()
        found = Found(error=f"{where}{last}", files=_files())
    sys.stdout.write(f"\n{_MARK}{msgspec.json.encode(found).decode()}\n")


def _is_machinery(file: str) -> bool:
    return file.startswith((_OURS, "<frozen")) or "importlib" in file


if __name__ == "__main__":
    main()
