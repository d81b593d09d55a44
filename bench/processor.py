"""The processor time of a PostgreSQL server on this machine. Imports nothing that a peer's environment may not have."""

from __future__ import annotations

import os
from pathlib import Path


def server_seconds(backend: int) -> float:
    """What all processes of a server have used, given the process id of one of its sessions."""
    return all_seconds(_times(backend)[0])


def all_seconds(server: int) -> float:
    """What all processes of a server have used, given the process id of the server itself."""
    children = [int(pid) for pid in Path(f"/proc/{server}/task/{server}/children").read_text().split()]
    return sum(_times(pid)[1] for pid in (server, *children))


def _times(pid: int) -> tuple[int, float]:
    """The parent of a process, and the seconds that it and those of its children that have ended have used.

    A process of PostgreSQL has one thread, which the kernel counts in nanoseconds. Ended children are counted in ticks.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        own = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except FileNotFoundError:  # it has ended just now
        return 0, 0.0
    return int(fields[1]), own + sum(map(int, fields[13:15])) / os.sysconf("SC_CLK_TCK")
