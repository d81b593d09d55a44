"""A process that has imported the library and forks: a worker of a test is ready in the time of a fork, not of five hundred imports.

Each forked process runs `-m module …` or `-c code …` as a new interpreter would: with its own session, standard streams, environment and
arguments, to an ordinary exit. It differs from a new interpreter in one thing: all of them have one hash seed.

The server answers one request at a time, over a socket pair, one JSON object per line: fork a process, or say which processes have ended
with which exit code. It ends when the socket closes.
"""

from __future__ import annotations

import gc
import importlib
import io
import json
import os
import runpy
import socket
import subprocess
import sys
import threading
import types
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

_IMPORTED = (
    "asyncio",
    "concurrent.futures.thread",
    "psycopg",
    "sqlite3",
    "mainspring",
    "mainspring.__main__",
    "mainspring.cli.main",
    "mainspring.cli.worker",
    "mainspring.app.app",
    "mainspring.app.run",
    "mainspring.app.worker",
    "mainspring.operations.schedules.crontabs",
    "mainspring.services.heartbeat",
    "mainspring.store.committer",
    "mainspring.store.postgres.store",
    "mainspring.store.sqlite.store",
)


class Job(NamedTuple):
    """A process to be."""

    arguments: list[str]
    environment: dict[str, str]
    folder: str
    log: str


def can_run(arguments: list[str], environment: dict[str, str]) -> bool:
    """Whether a forked process is as good as a new interpreter: none of its own options is asked for."""
    return arguments[:1] in (["-m"], ["-c"]) and not any(name.startswith("PYTHON") for name in environment)


class ForkServer:
    """The server, as seen by the process that starts it."""

    def __init__(self, project: Path) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                cwd=project,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._answers = self._socket.makefile("rb")
        self._lock = threading.Lock()
        self._codes: dict[int, int] = {}

    def fork(self, job: Job) -> int:
        """The pid of a new process."""
        pid = int(self._request(job._asdict())["pid"])
        self._codes.pop(pid, None)  # of an earlier process with this pid
        return pid

    def exit_code(self, pid: int) -> int | None:
        """What a process ended with, as `Popen.returncode`; None while it runs."""
        if pid not in self._codes:
            ended = self._request({})
            self._codes.update({int(each): int(code) for each, code in ended.items()})
        return self._codes.get(pid)

    def _request(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            line = self._answers.readline()
        if not line:
            raise RuntimeError("the fork server has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer


# -- the server ----------------------------------------------------------------------------------------------------------
def serve(descriptor: int) -> Job | None:
    """Answer until the socket closes. In a forked process: the job it was forked for."""
    with socket.socket(fileno=descriptor) as connection, connection.makefile("rb") as requests:
        for line in requests:
            request = json.loads(line)
            if request:
                pid = os.fork()
                if pid == 0:
                    return Job(**request)
                answer: dict[Any, int] = {"pid": pid}
            else:
                answer = ended()
            connection.sendall(json.dumps(answer).encode() + b"\n")
    return None


def ended() -> dict[int, int]:
    """Exit codes of the processes that have ended since this was asked before."""
    codes: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return codes
        if pid == 0:
            return codes
        codes[pid] = os.waitstatus_to_exitcode(status)


def run(job: Job) -> None:
    """What a new interpreter does with its arguments."""
    os.setsid()
    os.environ.clear()
    os.environ.update(job.environment)
    os.chdir(job.folder)
    log = os.open(job.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(os.fdopen(number, "wb", 0), "utf-8", errors, write_through=True)
        for number, errors in ((1, "strict"), (2, "backslashreplace"))
    )
    option, what, *rest = job.arguments
    if option == "-m":
        sys.path[0], sys.argv = job.folder, [what, *rest]
        runpy.run_module(what, run_name="__main__", alter_sys=True)
        return
    sys.path[0], sys.argv = "", ["-c", *rest]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(what, "<string>", "exec"), main.__dict__)


if __name__ == "__main__":
    for each in _IMPORTED:
        importlib.import_module(each)
    gc.collect()
    gc.freeze()  # or a collection in a forked process would copy every page
    if (job := serve(int(sys.argv[1]))) is not None:
        run(job)
