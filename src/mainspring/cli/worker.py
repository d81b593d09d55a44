"""`mainspring worker`: execute the runs of an app until a signal stops it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
import time
from concurrent.futures import thread as executors
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

import click

import mainspring
from mainspring.app.client_api import runtime_of
from mainspring.cli.commands import FAILED, Command, note
from mainspring.cli.supervisor import Supervisor
from mainspring.cli.target import beside, load_app
from mainspring.cli.terminal import SafeFormatter, safe
from mainspring.errors import StoreFull, StoreUnavailable
from mainspring.operations.connect import shown
from mainspring.operations.database import blockers

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from mainspring.app.app import App
    from mainspring.app.events import RunEvent


log = logging.getLogger("mainspring.worker")

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 15.0
_MOST_NAMED = 5
_SAY_AFTER = 2.0
"""Seconds until a worker that is not ready logs what it waits for."""
_LEAVE_START = 3.0
"""Seconds that a worker has to stop when a signal comes while it starts."""
_LEAVE = 5.0
"""Seconds beyond the grace that a worker has to stop."""


@click.command(cls=Command)
@click.argument("target")
@click.option(
    "--concurrency", type=click.IntRange(min=1), metavar="N", help="Runs at once, instead of the app's setting."
)
@click.option(
    "--crontab",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Declare the entries of this file.",
)
@click.option("--no-crontab", is_flag=True, help="Ignore the file `crontab` beside the target.")
@click.option("--queues", metavar="NAMES", help="Claim runs from these queues only, separated by commas.")
@click.option("--url", metavar="URL", help="A database instead of the app's own.")
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    metavar="N",
    help="Start this many workers, each a process of its own. One that dies is restarted.",
)
@click.option("--once", is_flag=True, help="Execute the runs that are due, then stop.")
@click.option("--fail-fast", is_flag=True, help="Give up if the database cannot be reached at the start.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="What to log, on stderr.",
)
@click.option("--quiet", is_flag=True, help="Print only log lines.")
@click.option("--show-runs", is_flag=True, help="Print how each run ended.")
@click.option("--until-eof", is_flag=True, hidden=True, help="Stop when standard input closes.")
@click.option(
    "--supervised", type=int, hidden=True, help="The number of this worker among several. It stops with them."
)
def worker(
    target: str,
    concurrency: int | None,
    queues: str | None,
    crontab: Path | None,
    url: str | None,
    *,
    processes: int | None,
    supervised: int | None,
    once: bool,
    fail_fast: bool,
    log_level: str,
    quiet: bool,
    show_runs: bool,
    no_crontab: bool,
    until_eof: bool,
) -> None:
    """Execute the runs of an app until stopped, or with --once until nothing is due.

    TARGET is module:app or path/file.py:app, without :app if the module has only one. The current folder is importable.

    On SIGTERM or ^C, running steps may finish (setting `grace`), all runs are released for other workers, and the exit
    code is 0. A second signal ends the process at once. If the database cannot be reached, the worker waits for it.

    \b
      mainspring worker shop:app
      mainspring worker examples/quickstart.py --concurrency 50
      mainspring worker shop:app --once
      mainspring worker shop:app --processes 4
    """
    _log_to_stderr(log_level)
    app = load_app(target)
    runtime = runtime_of(app)
    settings = runtime.settings
    listened = settings.queues if queues is None else frozenset(name.strip() for name in queues.split(","))
    runtime.settings = replace(settings, work=True, concurrency=concurrency or settings.concurrency, queues=listened)
    runtime.url = url or runtime.url
    _take_crontab(app, None if no_crontab else crontab or beside(target, "crontab"), named=crontab is not None)
    if not quiet and supervised is None:
        _introduce(app, target)
    if processes is not None:
        sys.exit(_supervise(app, processes, once=once, fail_fast=fail_fast))
    if show_runs:
        print_runs(app)
    say = _nothing if quiet or supervised is not None else note
    until_eof = until_eof or supervised is not None
    asyncio.run(_serve(app, once=once, fail_fast=fail_fast, until_eof=until_eof, say=say, number=supervised))
    _leave_stuck_threads()


def _supervise(app: App, processes: int, *, once: bool, fail_fast: bool) -> int:
    """Run several workers with the options of this command."""
    given = click.get_current_context().params
    command = [given["target"], "--log-level", given["log_level"]]
    for name in ("concurrency", "queues", "crontab", "url"):
        if given[name] is not None:
            command += [f"--{name}", str(given[name])]
    for name in ("no_crontab", "once", "fail_fast", "show_runs", "quiet"):
        if given[name]:
            command.append(f"--{name.replace('_', '-')}")
    limit = app.settings.grace + _LEAVE
    return Supervisor(command, processes, limit=limit, once=once, fail_fast=fail_fast).run()


def _take_crontab(app: App, file: Path | None, *, named: bool) -> None:
    """Use a crontab file, unless the code declares a crontab and no file is given."""
    if file is not None and (named or runtime_of(app).crontab is None):
        app.crontab(file=file)


def _log_to_stderr(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(SafeFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s", datefmt="%H:%M:%S"))
    logging.basicConfig(level=level.upper(), handlers=[handler])


def _introduce(app: App, target: str) -> None:
    note(f"mainspring {mainspring.__version__}, worker of {target}")
    note(f"  database   {shown(app.url)}")
    note(f"  version    {app.version}")
    crontab = runtime_of(app).crontab
    if crontab is not None and crontab.file is not None:
        note(f"  crontab    {crontab.file}")
    if app.settings.queues is not None:
        note(f"  queues     {', '.join(sorted(app.settings.queues))}, and runs without one")
    for kind in ("workflow", "step"):
        names = sorted(function.name for function in runtime_of(app).registry if function.kind == kind)
        note(f"  {kind + 's':<10} {', '.join(names) or 'none'}")


async def _serve(
    app: App, *, once: bool, fail_fast: bool, until_eof: bool, say: Callable[[str], None], number: int | None
) -> None:
    stop = Stop()
    if until_eof:
        stop.when_input_ends()
    stop.limit(_LEAVE_START, 0, lambda: runtime_of(app).stage)
    async with AsyncExitStack() as stack:
        if not await _enter(app, stack, stop, fail_fast=fail_fast):
            return
        stop.limit(app.settings.grace + _LEAVE, FAILED, lambda: runtime_of(app).stage)
        engine = runtime_of(app).engine
        me = engine.worker_id if engine is not None else "?"
        if number is not None:
            note(f"process {number} (pid {os.getpid()}) ready; worker {me}")
        say(f"  worker     {me}")
        say("ready; ^C or SIGTERM stops it, a second one at once")
        if once:
            await _drain(app, stop)
        else:
            await stop.asked.wait()
        _say_what_is_left(app, say)
    say("stopped")


async def _enter(app: App, stack: AsyncExitStack, stop: Stop, *, fail_fast: bool) -> bool:
    """Enter the app, as soon as its database can be reached. Return False if a signal came first."""
    pause = _FIRST_PAUSE
    while not stop.asked.is_set():
        try:
            return await _enter_once(app, stack, stop)
        except (StoreUnavailable, StoreFull) as error:
            if fail_fast:
                raise
            log.warning("%s; retrying in %g s", " ".join(str(error).split()), pause)
        try:
            await asyncio.wait_for(stop.asked.wait(), pause)
        except TimeoutError:
            pause = min(pause * 2, _LONGEST_PAUSE)
    return False


async def _enter_once(app: App, stack: AsyncExitStack, stop: Stop) -> bool:
    """Enter the app, and log what it waits for if that takes long. Return False if a signal came first."""
    entering = asyncio.ensure_future(stack.enter_async_context(app))
    asked = asyncio.ensure_future(stop.asked.wait())
    reported: set[str] = set()
    try:
        while not entering.done() and not stop.asked.is_set():
            await asyncio.wait((entering, asked), timeout=_SAY_AFTER, return_when=asyncio.FIRST_COMPLETED)
            if not entering.done() and not stop.asked.is_set():
                await _say_what_it_waits_for(app, reported)
        if not entering.done():
            entering.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await entering
            return False
        await entering
        return True
    finally:
        asked.cancel()


async def _say_what_it_waits_for(app: App, reported: set[str]) -> None:
    """Log each reason once, so that the output of a worker that does not start shows the cause."""
    stage = runtime_of(app).stage
    found = await asyncio.to_thread(blockers, app.url, app.settings)
    for reason in found or [""]:
        key = f"{stage} {reason.partition(',')[0]}"
        if key not in reported:
            reported.add(key)
            log.warning("not ready yet: %s%s", stage or "starting", f"; {reason}" if reason else "")


async def _drain(app: App, stop: Stop) -> None:
    """Wait until no run is due, or until a signal comes."""
    drained, asked = asyncio.ensure_future(app.drain()), asyncio.ensure_future(stop.asked.wait())
    await asyncio.wait((drained, asked), return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    drained.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await drained


def _say_what_is_left(app: App, say: Callable[[str], None]) -> None:
    engine = runtime_of(app).engine
    runs = list(engine.executions.values()) if engine is not None else []
    in_step = [ex for ex in runs if ex.invoking]
    say(f"stopping: releasing {len(runs)} run{'' if len(runs) == 1 else 's'}")
    if in_step:
        named = ", ".join(f"{ex.id} ({ex.function.name})" for ex in in_step[:_MOST_NAMED])
        more = f" and {len(in_step) - _MOST_NAMED} more" if len(in_step) > _MOST_NAMED else ""
        say(f"waiting up to {app.settings.grace:g} s for a step of {named}{more}; a second signal ends at once")


def _nothing(text: str) -> None:
    del text


class Stop:
    """The first signal requests an orderly stop, the second one ends the process at once.

    The handlers are those of the interpreter, not of the loop: a step that blocks the loop must not hold up the second signal. For the
    same reason a thread ends a process that does not stop within its limit.
    """

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._signalled = False
        self._limit: tuple[float, int, Callable[[], str]] | None = None
        self.before_end: Callable[[], None] | None = None
        """Called by the signal handler before a second signal ends the process."""
        self._signals: SimpleQueue[None] = SimpleQueue()  # a signal handler may put into it at any point
        threading.Thread(target=self._watch, name="mainspring-stop", daemon=True).start()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        closed = getattr(signal, "SIGHUP", None)  # the terminal was closed; not on Windows, and not under nohup
        if closed is not None and signal.getsignal(closed) is signal.SIG_DFL:
            signal.signal(closed, self._on_signal)

    def limit(self, seconds: float, code: int, activity: Callable[[], str]) -> None:
        """End the process with this code if it has not stopped so many seconds after the request to stop."""
        self._limit = seconds, code, activity

    def _watch(self) -> None:
        self._signals.get()
        if self._limit is None:
            return
        seconds, code, activity = self._limit
        time.sleep(seconds)
        what = activity()
        log.warning(
            "did not stop within %g s%s; ending the process, other workers recover its runs",
            seconds,
            f", {what}" if what else "",
        )
        _end(code)

    def when_input_ends(self) -> None:
        """Stop when the process at the other end of standard input ends, for whatever reason."""
        threading.Thread(target=self._drain_input, name="mainspring-input", daemon=True).start()

    def _drain_input(self) -> None:
        while os.read(0, 1_024):
            pass
        self._signals.put(None)
        with contextlib.suppress(RuntimeError):  # the loop has stopped already
            self._loop.call_soon_threadsafe(self.asked.set)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._signalled:
            if self.before_end is not None:
                self.before_end()
            os.write(2, b"ended at once; other workers take over its runs\n")
            os._exit(128 + number)
        self._signalled = True
        self._signals.put(None)
        self._loop.call_soon_threadsafe(self.asked.set)


def _leave_stuck_threads() -> None:
    """End the process if threads of steps do not end, because the interpreter would wait for them. Other workers recover their runs."""
    if others := stuck_threads():
        log.warning("%d thread(s) of steps did not end; ending the process without waiting for them", len(others))
        _end(0)


def stuck_threads() -> list[threading.Thread]:
    """Return the threads that the interpreter would wait for. An idle thread of an executor ends when the interpreter does."""
    frames = sys._current_frames()  # noqa: SLF001  (there is no other way to see another thread)
    others = [one for one in threading.enumerate() if one is not threading.main_thread() and not one.daemon]
    return [one for one in others if not _is_idle(frames.get(one.ident or 0))]


def _is_idle(frame: FrameType | None) -> bool:
    """Whether a thread of an executor waits for work."""
    return frame is not None and frame.f_code.co_filename == executors.__file__ and frame.f_code.co_name == "_worker"


def _end(code: int) -> None:
    """End the process without waiting for threads."""
    logging.shutdown()
    sys.stderr.flush()
    sys.stdout.flush()
    os._exit(code)


_PRINTED = ("run.retrying", "run.succeeded", "run.failed", "run.cancelled")
_MOST_PER_SECOND = 8


class Showing:
    """Prints one line for each run that ends or is retried, up to a number per second. Those of a busy app are summed up."""

    def __init__(self) -> None:
        self._second = 0
        self._printed = 0
        self._left_out = 0

    def show(self, event: RunEvent) -> None:
        now = int(event.time.timestamp())
        if now != self._second:
            if self._left_out:
                note(f"          … and {self._left_out} more")
            self._second, self._printed, self._left_out = now, 0, 0
        if self._printed == _MOST_PER_SECOND and event.name == "run.succeeded":
            self._left_out += 1
            return
        self._printed += event.name == "run.succeeded"
        reason = f": {safe(event.reason)}" if event.reason else ""
        what = event.name.removeprefix("run.")
        note(f"{event.time.astimezone():%H:%M:%S}  {what:<9}  {safe(event.workflow)}  {safe(event.run)}{reason}")


def print_runs(app: App) -> None:
    """Print the ends and retries of the runs that this process executes."""
    showing = Showing()
    for event in _PRINTED:
        app.on(event, showing.show)
