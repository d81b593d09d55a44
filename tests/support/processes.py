"""Real processes for tests: started, watched by what they print, killed, frozen and woken, and always cleaned up."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.support.fork_server import ForkServer, Job, can_run
from tests.support.ledger import VARIABLE, Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROJECT = Path(__file__).parents[2]
PATIENCE = 30.0
APP = "tests.fleet.apps:app"
_LOOK_AGAIN = 0.01
_SELDOM = 0.25


@functools.cache
def fork_server() -> ForkServer:
    """The fork server of this process. It ends with it."""
    return ForkServer(PROJECT)


def looks(within: float) -> Iterator[None]:
    """Moments to look again until the time is over: the longer it takes, the more seldom, since whoever looks keeps others from their work."""
    begin = time.monotonic()
    while (waited := time.monotonic() - begin) < within:
        time.sleep(min(max(_LOOK_AGAIN, waited / 10), _SELDOM))
        yield


def eventually(condition: Callable[[], bool], what: str, within: float = PATIENCE) -> None:
    """Wait until `condition` holds: for things that other processes do and of which nobody tells."""
    if not condition() and not any(condition() for _ in looks(within)):
        raise AssertionError(f"not within {within:g} s: {what}")


class Process:
    """A process of the project's Python, with all that it prints in a file."""

    def __init__(self, arguments: list[str], environment: dict[str, str], log: Path, *, fresh: bool = False) -> None:
        """`fresh`: a new interpreter, with a hash seed of its own, and not a fork of one that has imported the library."""
        self.log = log
        whole = os.environ | {"PYTHONUNBUFFERED": "1"} | environment
        self._poll: Callable[[], int | None]
        if not fresh and can_run(arguments, environment):
            log.touch()
            server = fork_server()
            self.pid = server.fork(Job(arguments, whole, str(PROJECT), str(log)))
            self._poll = functools.partial(server.exit_code, self.pid)
            return
        with log.open("ab") as out:
            popen = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=PROJECT,
                env=whole,
                start_new_session=True,  # so that what it forks can be found and ended with it
            )
        self.pid, self._poll = popen.pid, popen.poll

    @property
    def alive(self) -> bool:
        return self._poll() is None

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def says(self, words: str, within: float = PATIENCE) -> None:
        """Wait until it has printed these words."""

        def said() -> bool:
            return words in self.output or not self.alive

        eventually(said, f"process {self.pid} says {words!r}; so far:\n{self.output}", within)
        assert words in self.output, f"process {self.pid} ended without saying {words!r}:\n{self.output}"

    def send(self, number: signal.Signals) -> None:
        if self.alive:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL: no last words. Returns when it is gone."""
        self.send(signal.SIGKILL)
        self.wait()

    def clear_away(self) -> None:
        """Kill it and whatever it has forked."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.kill()  # it may not have a group of its own yet

    def freeze(self) -> None:
        """SIGSTOP: it stands still and does not know it. Returns when it does stand still."""
        self.send(signal.SIGSTOP)
        eventually(lambda: _state(self.pid) == "T", f"process {self.pid} stands still")

    def thaw(self) -> None:
        self.send(signal.SIGCONT)

    def wait(self, within: float = PATIENCE) -> int:
        """Wait until it ends by itself; its exit code."""
        code = self._poll()
        for _ in looks(within) if code is None else ():
            if (code := self._poll()) is not None:
                break
        if code is None:
            raise AssertionError(f"process {self.pid} does not end; it says:\n{self.output}")
        return code


class Fleet:
    """Processes on one database, with one ledger. Whatever is left of them at the end is killed."""

    def __init__(self, folder: Path, url: str, **settings: object) -> None:
        self.folder = folder
        self.url = url
        self.ledger = Ledger(folder / "ledger")
        self.quiet = False
        self.settings = settings
        self.processes: list[Process] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.processes:
            process.clear_away()
        for process in [] if self.quiet else self.processes:  # pytest shows it when the test has failed
            print(f"--- process {process.pid} said:\n{process.output[-4000:]}")  # noqa: T201

    def environment(self, **settings: object) -> dict[str, str]:
        """What a process of this fleet is told: `lease=2` is `MAINSPRING_LEASE=2`."""
        told = {f"MAINSPRING_{name.upper()}": str(value) for name, value in (self.settings | settings).items()}
        return {"MAINSPRING_URL": self.url, VARIABLE: str(self.ledger.path), "FLEET_GATES": str(self.folder)} | told

    def process(self, *arguments: str, **settings: object) -> Process:
        log = self.folder / f"process-{len(self.processes)}.log"
        made = Process(list(arguments), self.environment(**settings), log)
        self.processes.append(made)
        return made

    def start_worker(self, app: str = APP, **settings: object) -> Process:
        """`mainspring worker`, perhaps not ready yet."""
        return self.process("-m", "mainspring", "worker", app, **settings)

    def worker(self, app: str = APP, **settings: object) -> Process:
        """`mainspring worker`, ready."""
        made = self.start_worker(app, **settings)
        made.says("ready;")
        return made

    def workers(self, count: int, app: str = APP, **settings: object) -> list[Process]:
        made = [self.start_worker(app, **settings) for _ in range(count)]
        for each in made:
            each.says("ready;")
        return made

    def freeze(self, process: Process) -> None:
        """Freeze a process at a moment when it has no turn at writing: else everybody stands still with it."""
        for _ in range(100):
            process.freeze()
            if self.url.startswith("postgres") or self._nobody_has_the_turn():
                return
            process.thaw()
            time.sleep(_LOOK_AGAIN)  # or it would never come to the end of its turn
        raise AssertionError("it holds the database's turn whenever it is looked at")

    def _nobody_has_the_turn(self) -> bool:
        with (Path(self.url.removeprefix("sqlite:///") + "-turn")).open("rb") as turn:
            for _ in range(20):  # somebody else may have it for a moment
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return True
                time.sleep(_LOOK_AGAIN)
        return False

    def print_stacks(self) -> None:
        """Have every process print where all of its threads are."""
        for process in self.processes:
            if "ready;" in process.output:  # before that the signal would end it
                process.send(signal.SIGUSR1)
        time.sleep(0.5)

    # -- gates: steps that wait for the test ---------------------------------------------------------------------------
    def open_gate(self, name: str) -> None:
        (self.folder / f"gate-{name}").touch()

    def wait_for_step(self, run: str, step: str, times: int = 1, within: float = PATIENCE) -> None:
        """Wait until a step of a run was begun so many times."""
        what = f"step {step} of {run} begins {times} times"
        eventually(lambda: self.ledger.steps(run).count(step) >= times, what, within)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "gone"
