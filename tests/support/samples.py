"""How much of a large set of cases a test looks at: a sample in `make test`, all of it with `SAMPLES=all`, as `make simulate` does.

A test that asks here is marked `sampled`, so that `make simulate` finds it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ALL = os.environ.get("SAMPLES") == "all"


def of(everything: int, some: int) -> int:
    """`some`, or with `SAMPLES=all` everything."""
    return everything if ALL else some


def calls(when: str, most: int = 200, coarse: int = 1) -> Iterator[int]:
    """At which calls to the store a process dies, other ones for a death before the call than for one after it. A greater `coarse`
    samples fewer of them.
    """
    stride = of(1, 8 * coarse)
    first = 1 if when == "before" else 1 + stride // 2
    return iter(range(first, most, stride))
