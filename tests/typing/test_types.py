"""The types of the user's functions flow through calls, starts, options, handles: right lines pass, wrong ones are refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
SOURCE = Path(__file__).with_name("right_and_wrong.txt").read_text("utf-8")
WRONG = {number for number, line in enumerate(SOURCE.splitlines(), 1) if line.endswith("# wrong")}


def mypy(file: Path) -> set[int]:
    command = [sys.executable, "-m", "mypy", "--no-pretty", "--no-error-summary", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert not done.stderr, done.stderr
    return {int(found[1]) for found in re.finditer(rf"{file.name}:(\d+): error", done.stdout)}


def pyright(file: Path) -> set[int]:
    command = [sys.executable, "-m", "pyright", "--outputjson", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    report = json.loads(done.stdout)["generalDiagnostics"]
    return {found["range"]["start"]["line"] + 1 for found in report if found["severity"] == "error"}


@pytest.mark.parametrize("tool", [mypy, pyright])
def test_right_lines_pass_and_every_wrong_line_is_refused(tool: Callable[[Path], set[int]], tmp_path: Path) -> None:
    assert len(WRONG) > 50
    file = tmp_path / "right_and_wrong.py"
    file.write_text(SOURCE, "utf-8")
    refused = tool(file)
    assert sorted(refused - WRONG) == [], "refused, but right"
    assert sorted(WRONG - refused) == [], "wrong, but not refused"
