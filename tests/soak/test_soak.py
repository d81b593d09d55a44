"""A short soak; `make soak MINUTES=10` is a long one."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.support.processes import PROJECT


@pytest.mark.processes
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_fleet_under_fire_keeps_every_promise(database: str) -> None:
    """In a process of its own, because the app of the soak reads its environment when it is imported."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.soak.soak",
            "--database",
            database,
            "--minutes",
            "0.2",
            "--seed",
            "7",
            "--workers",
            "2",
        ],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    runs = re.search(r"([\d,]+) runs", done.stdout)
    assert runs is not None
    assert int(runs[1].replace(",", "")) > 50
