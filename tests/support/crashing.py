"""At which calls to the store a process is to die. All of them, in the long run: `CRASH_STRIDE=1`; some, in a short one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_STRIDE = int(os.environ.get("CRASH_STRIDE", "0"))


def calls(when: str, most: int = 200, coarse: int = 1) -> Iterator[int]:
    """The numbers of the calls, other ones for a death before than for one after. `coarse`: fewer of them in a short run."""
    stride = _STRIDE or 4 * coarse
    first = 1 if when == "before" else 1 + stride // 2
    return iter(range(first, most, stride))
