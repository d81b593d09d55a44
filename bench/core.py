"""Mainspring's side of each section.

A section is a function of a `Target` that yields `Figure("mainspring", what, target.kind, …)`; `what` is spelled as in
`bench/dbos_peer.py` and in the budgets of `bench/run.py`, so that the figures find each other:

| section    | what it yields                    | of what                                                  |
|------------|-----------------------------------|----------------------------------------------------------|
| footprint  | import, memory                    | `import mainspring`; a trivial app after its first run   |
| sequential | step, async run · step, def run   | ms per step of one run of 500 steps                      |
| roundtrip  | start + step + finish             | ms, p50, one after the other                             |
| concurrent | concurrent steps                  | steps per second, 1,000 runs x 5 async steps             |
| queued     | queued runs · enqueue             | runs per second, 2,000 trivial runs through one queue    |
| recovery   | recovery of 500 runs              | ms, from start until the last interrupted one has finished |
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from typing import TYPE_CHECKING

from bench.harness import Figure, Measure, Target

if TYPE_CHECKING:
    from collections.abc import Iterator


def footprint(_: Target) -> Iterator[Figure]:
    program = "import time; t = time.perf_counter(); import mainspring; print(time.perf_counter() - t)"
    took = statistics.median(
        float(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)
        for _ in range(5)
    )
    yield Figure("mainspring", "import", "-", took * 1e3, "ms", "warm, median of 5")


SECTIONS: dict[str, Measure] = {"footprint": footprint}
