"""All cases, by name."""

from __future__ import annotations

from tests.interleavings import committer_cases, part_cases, worker_cases

CASES = [
    *committer_cases.CASES,
    *part_cases.CASES,
    *worker_cases.CASES,
    *(worker_cases.with_lines(case) for case in worker_cases.CASES),
]
LISTED = [*part_cases.LISTED, *worker_cases.LISTED]
"""Those that show defects which are known and not mended yet."""
BY_NAME = {case.name: case for case in [*CASES, *LISTED]}
