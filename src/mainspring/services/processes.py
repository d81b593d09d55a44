"""Identify this process, and find out whether another process of the same machine exists."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainspring.model.runs import Worker


def host() -> str:
    return socket.gethostname()


def boot() -> str:
    """Return an id of this boot of the machine and the pid namespace. A pid has a meaning only within it.

    Empty where it is unknown. Then a worker is only known to be gone when its lease has lapsed.
    """
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
    return f"{boot_id} {namespace}"


def start_time(pid: int) -> int | None:
    """Return when a process started, in ticks since boot, or None if it does not exist. Pid and start time identify a process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    state, ticks = fields[0], fields[19]
    return None if state in "ZX" else int(ticks)


def is_there(worker: Worker, mine: Worker) -> bool:
    """Whether a worker's process certainly exists. Only known if it is on the same machine as `mine`."""
    return bool(mine.boot) and worker.boot == mine.boot and start_time(worker.pid) == worker.pid_start


def is_dead(worker: Worker, mine: Worker) -> bool:
    """Whether a worker's process is certainly gone. Only known if it is on the same machine as `mine`."""
    if not mine.boot or worker.boot != mine.boot:
        return False
    return start_time(worker.pid) != worker.pid_start
