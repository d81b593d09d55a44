"""Forks of this process: how many there were, and the objects that a child process inherits and must not use.

Connections and threads belong to the parent. Even garbage collection in the child would do harm: closing a database connection ends the
parent's session on the server. So the objects are kept referenced, and their users open new ones in the child.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """An object that holds connections or threads."""

    def _leave_to_parent(self) -> list[object]:
        """Drop the objects that belong to the parent process, and return them."""
        ...


count: int = 0
"""How many forks lie between the first process and this one. Cheaper to compare than process ids, which take a system call."""
_all: WeakSet[Forkable] = WeakSet()
_inherited: list[object] = []


def survive_forks(one: Forkable) -> None:
    """Make `one` begin without its connections and threads in every child process forked from now on."""
    _all.add(one)


def _in_child() -> None:
    global count  # noqa: PLW0603  (a fact about the process)
    count += 1
    _inherited.extend(one._leave_to_parent() for one in list(_all))  # noqa: SLF001  (the other half)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
