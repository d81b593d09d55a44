"""Turns at writing between the processes that use one SQLite file: a lock on a file beside it.

The lock is fair and quick, but SQLite's own lock is what separates writers. So a process that does not get its turn within a lease
continues without it: a process that froze with the turn, and without SQLite's lock, blocks no other. A process that froze in the middle of
a transaction blocks all others, because SQLite's lock ends only with its process. The log names that process.

The system has no time limit for such a lock. A short wait polls; a longer one is left to a thread.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from mainspring.model.clock import SECOND, to_datetime

fcntl: Any
try:
    import fcntl
except ImportError:  # pragma: no cover  (not on Windows, where SQLite's busy handler is enough)
    fcntl = None

POSSIBLE = fcntl is not None
_PAUSES = (0.0001, 0.0002, 0.0004, 0.0008, 0.0016, 0.002, 0.002, 0.002)
_STOPPED = {"T", "t"}
_WIDTH = 80
_WRITER = "120 120"
"""The byte of the shared memory that SQLite locks while it writes (WAL mode)."""


class Holder(NamedTuple):
    """The process that has the turn at writing, or SQLite's own lock. `since` is seconds since 1970."""

    pid: int
    host: str
    since: float | None
    state: str
    """The state of the process: R, S, D, T (stopped) …; empty: unknown."""

    def __str__(self) -> str:
        since = "" if self.since is None else f" since {to_datetime(int(self.since * SECOND)):%H:%M:%S} UTC"
        stopped = ", and is stopped (SIGCONT lets it continue, SIGKILL ends it)" if self.state in _STOPPED else ""
        return f"process {self.pid} on {self.host} holds the lock for writing{since}{stopped}"


class Turns:
    """The turns of one process at one file. Used by one thread at a time, under a lock of the process."""

    def __init__(self, path: str, patience: float) -> None:
        self._file = f"{path}-turn"
        self._patience = patience
        self._me = (
            f"{os.getpid()} {socket.gethostname()}"[: _WIDTH - 1].ljust(_WIDTH - 1).encode()[: _WIDTH - 1] + b"\n"
        )
        self._descriptor = _open(self._file)
        self._taken = False
        self._passing = False
        """Whether the last wait for a turn failed. Then the next one does not wait."""
        self._waiting: _Waiting | None = None

    def take(self) -> bool:
        """Wait for a turn, up to a lease. Return False if there was none; then only SQLite's own lock separates writers."""
        self._taken = _try(self._descriptor) or (not self._passing and (self._ask_again() or self._wait()))
        self._passing = not self._taken
        if self._taken:
            with contextlib.suppress(
                OSError
            ):  # for operators only; a full disk must not stop a writer that frees space on it
                os.pwrite(self._descriptor, self._me, 0)
        return self._taken

    def give_back(self) -> None:
        if self._taken:
            self._taken = False
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the lock file. In a forked process, a lock of the parent ends with the parent, not with the child."""
        os.close(self._descriptor)
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.close()

    def _ask_again(self) -> bool:
        for pause in _PAUSES:
            time.sleep(pause)
            if _try(self._descriptor):
                return True
        return False

    def _wait(self) -> bool:
        self._waiting = waiting = _Waiting(self._file)
        descriptor = waiting.end(self._patience)
        self._waiting = None
        if descriptor is None:
            return False
        os.close(self._descriptor)
        self._descriptor = descriptor
        return True


class _Waiting:
    """A wait for a turn on a thread. If the caller has given up, the thread releases the turn when it gets it."""

    def __init__(self, file: str) -> None:
        self._descriptor = _open(file)
        self._deciding = threading.Lock()
        self._taken = threading.Event()
        self._given_up = False
        threading.Thread(target=self._wait, name="mainspring-turn", daemon=True).start()

    def _wait(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        with self._deciding:
            self._taken.set()
            if self._given_up:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # a forked child may have the descriptor open as well
                os.close(self._descriptor)

    def end(self, seconds: float) -> int | None:
        """Wait at most so long. Return the descriptor that has the turn, or None."""
        self._taken.wait(seconds)
        with self._deciding:
            self._given_up = not self._taken.is_set()
            return None if self._given_up else self._descriptor

    def close(self) -> None:
        os.close(self._descriptor)


def holders(path: str) -> list[Holder]:
    """The other processes that have the turn at writing, or SQLite's own lock, now."""
    found = {holder.pid: holder for holder in [*_writers(path), *_of_turn(f"{path}-turn")]}
    return [holder for pid, holder in found.items() if pid != os.getpid()]


def _of_turn(file: str) -> list[Holder]:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        if not POSSIBLE or _try(descriptor):
            return []
        pid, _, host = os.pread(descriptor, _WIDTH, 0).decode(errors="replace").strip().partition(" ")
        return [Holder(int(pid), host, os.fstat(descriptor).st_mtime, _state(int(pid)))] if pid.isdigit() else []
    finally:
        os.close(descriptor)  # which also releases the lock, if it was free


def _writers(path: str) -> list[Holder]:
    """The processes that have SQLite's own lock, by the system's list. To open and close the file would release this process's locks."""
    try:
        inode = os.stat(f"{path}-shm").st_ino  # noqa: PTH116
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    found = [line.split() for line in lines if "POSIX" in line and line.endswith(_WRITER) and "->" not in line]
    pids = [int(parts[4]) for parts in found if parts[5].rpartition(":")[2] == str(inode) and parts[3] == "WRITE"]
    return [Holder(pid, socket.gethostname(), None, _state(pid)) for pid in pids if pid > 0]


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def _open(file: str) -> int:
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
