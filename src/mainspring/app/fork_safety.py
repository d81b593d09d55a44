"""Keeps a forked process from using what it inherits: connections, and objects whose threads exist only in the parent.

Even garbage collection would do harm: closing a database connection ends the parent's session on the server. So the objects are
kept referenced, and their users open new ones in the child.
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


_all: WeakSet[Forkable] = WeakSet()
_inherited: list[object] = []


def survive_forks(one: Forkable) -> None:
    """Make `one` begin without its connections and threads in every child process forked from now on."""
    _all.add(one)


def _in_child() -> None:
    _inherited.extend(one._leave_to_parent() for one in list(_all))  # noqa: SLF001  (the other half)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
