"""How often this process and those before it were forked."""

from __future__ import annotations

import os

count: int = 0
"""How many forks lie between the first process and this one. Cheaper to compare than process ids, which take a system call."""


def _in_child() -> None:
    global count  # noqa: PLW0603  (a fact about the process)
    count += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
