"""The ledger of the soak: one append-only file that every process of the soak writes to, and no database.

Each line is one JSON object, appended by one `write` to a file opened with O_APPEND. The system keeps such writes of several
processes apart, so the order of lines is the order in which things happened, and a line survives the process that wrote it.
An effect has a line before it (`begin`) and one after it (`end` or `raise`), with the run, the step, the attempt, the claim of
the run (epoch), the process and the time. What the client was promised, what operators did and what was disturbed stand in the
same file, between the effects.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.ledger import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

BEGIN, END, RAISE = "begin", "end", "raise"
EFFECTS = frozenset({BEGIN, END, RAISE})


class Writer:
    """Appends to the ledger. From any thread."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    @classmethod
    def of_environment(cls) -> Writer:
        return cls(Path(os.environ.get(VARIABLE, os.devnull)))

    def write(self, what: str, run: str = "", label: str = "", **more: Any) -> None:
        line = {"what": what, "run": run, "label": label, "pid": os.getpid(), "at": time.monotonic(), **more}
        os.write(self._descriptor, json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        os.close(self._descriptor)


@dataclass(frozen=True, slots=True)
class Line:
    """One line. `at` is monotonic time, the same clock for all processes of the machine."""

    number: int
    what: str
    run: str
    label: str
    pid: int
    at: float
    epoch: int = 0
    attempt: int = 0
    generation: int = 0
    token: str = ""
    before: str = ""
    more: dict[str, Any] = field(default_factory=dict[str, Any])

    def __str__(self) -> str:
        claim = f" epoch {self.epoch} attempt {self.attempt} {self.token}" if self.token else ""
        rest = f" {json.dumps(self.more)}" if self.more else ""
        return f"  ledger {self.number}: {self.at:.3f} pid {self.pid} {self.what} {self.run} {self.label}{claim}{rest}"


_OWN = frozenset(Line.__dataclass_fields__) - {"number", "more"}


class Ledger:
    """All lines of a soak, read at its end."""

    def __init__(self, path: Path) -> None:
        self.lines = [*_lines(path)]

    @cached_property
    def by_run(self) -> dict[str, list[Line]]:
        """The effects of each run, in order."""
        found: defaultdict[str, list[Line]] = defaultdict(list)
        for line in self.lines:
            if line.what in EFFECTS:
                found[line.run].append(line)
        return found

    @cached_property
    def by_token(self) -> dict[str, dict[str, Line]]:
        """The lines of each execution of an effect, by what they say."""
        found: defaultdict[str, dict[str, Line]] = defaultdict(dict)
        for line in self.lines:
            if line.token and line.what in EFFECTS:
                found[line.token][line.what] = line
        return found

    def begun(self, run: str) -> list[Line]:
        """The executions that were begun of a run's effects, in order."""
        return [line for line in self.by_run.get(run, ()) if line.what == BEGIN]

    def of(self, *what: str) -> list[Line]:
        """The lines of some kinds, in order."""
        return [line for line in self.lines if line.what in what]


def _lines(path: Path) -> Iterator[Line]:
    for number, text in enumerate(path.read_text().splitlines(), 1):
        values = json.loads(text)
        more = {name: value for name, value in values.items() if name not in _OWN}
        yield Line(number, **{name: value for name, value in values.items() if name in _OWN}, more=more)
