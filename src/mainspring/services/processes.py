"""Who this process is, and whether another one of the same machine is still there."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainspring.model.runs import Worker


def host() -> str:
    return socket.gethostname()


def boot() -> str:
    """Identifies this boot of this machine and the pid namespace: only within it does a pid mean something.

    Empty where that is unknown; then a worker is only known to be gone when its lease has lapsed.
    """
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
    return f"{boot_id} {namespace}"


def start_time(pid: int) -> int | None:
    """When a process began, in ticks since boot: with the pid, it names a process for good. None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    state, ticks = fields[0], fields[19]
    return None if state in "ZX" else int(ticks)


def is_there(worker: Worker, mine: Worker) -> bool:
    """Whether a worker's process certainly exists, seen from `mine` on the same machine."""
    return bool(mine.boot) and worker.boot == mine.boot and start_time(worker.pid) == worker.pid_start


def is_dead(worker: Worker, mine: Worker) -> bool:
    """Whether a worker's process is certainly gone, seen from `mine` on the same machine."""
    if not mine.boot or worker.boot != mine.boot:
        return False
    return start_time(worker.pid) != worker.pid_start
