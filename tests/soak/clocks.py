"""Clocks of worker processes that can be set while they run, by libfaketime where the machine has it."""

from __future__ import annotations

import glob
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_LIBRARIES = "/usr/lib/*/faketime/libfaketimeMT.so.1"


class Clock:
    """The wall clock of one machine, that is of all workers that are given its environment. Monotonic time stays as it is."""

    def __init__(self, file: Path, library: str) -> None:
        self._file = file
        self._library = library
        self.offset = 0
        self.set(0)

    def set(self, seconds: int) -> None:
        """Set it so many seconds ahead of the true time, at most a second from now."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+d}s\n")
        new.replace(self._file)
        self.offset = seconds

    @property
    def environment(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": self._library,
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_RESET": "1",
        }


def make_clocks(folder: Path, count: int) -> list[Clock]:
    """So many clocks, or none where libfaketime is missing."""
    found = sorted(glob.glob(_LIBRARIES))  # noqa: PTH207  (an absolute pattern)
    return [Clock(folder / f"clock-{number}", found[0]) for number in range(count)] if found else []
