"""What a forked process inherits and must leave alone: connections, and objects whose threads stayed behind in the parent.

Not even throwing them away is harmless: closing a database connection says goodbye to the server in the parent's name. So they
are set aside, and their users open new ones in the child.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """Something that holds connections or threads."""

    def _leave_to_parent(self) -> list[object]:
        """Let go of whatever belongs to the parent process, and answer with it."""
        ...


_all: WeakSet[Forkable] = WeakSet()
_inherited: list[object] = []


def survive_forks(one: Forkable) -> None:
    """From now on, in a child process, `one` begins without what it has here."""
    _all.add(one)


def _in_child() -> None:
    _inherited.extend(one._leave_to_parent() for one in list(_all))  # noqa: SLF001  (the other half)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
