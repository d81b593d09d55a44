"""Waits until its parent is gone, then stops the PostgreSQL server of one directory and removes the directory."""

import os
import shutil
import signal
import sys
import time
from pathlib import Path


def main(directory: Path) -> None:
    sys.stdin.buffer.read()  # returns when the last holder of the pipe's other end has closed it, or has died
    pid = _server_of(directory / "data")
    if pid is not None:
        os.kill(pid, signal.SIGQUIT)
        deadline = time.monotonic() + 10
        while _server_of(directory / "data") == pid and time.monotonic() < deadline:
            time.sleep(0.05)
    shutil.rmtree(directory, ignore_errors=True)


def _server_of(data: Path) -> int | None:
    """The pid of the server that uses `data`: never that of a stranger who was given a dead server's number."""
    try:
        pid = int((data / "postmaster.pid").read_text().split("\n", 1)[0])
        os.kill(pid, 0)
    except (OSError, ValueError):
        return None
    try:
        command_line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None if Path("/proc/self").exists() else pid
    return pid if str(data).encode() in command_line else None


if __name__ == "__main__":
    main(Path(sys.argv[1]))
