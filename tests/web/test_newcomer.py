"""The first minutes of somebody new: the first program of the README under `mainspring dev`, seen in the browser."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.support.processes import PROJECT, eventually

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE = 120.0


@pytest.mark.processes
def test_the_first_program_of_the_readme_is_seen_on_the_page(tmp_path: Path) -> None:
    program = (PROJECT / "README.md").read_text().partition("```python\n")[2].partition("```")[0]
    (tmp_path / "orders.py").write_text(program)
    said = tmp_path / "said"
    with said.open("wb") as output:
        command = [sys.executable, "-m", "mainspring", "dev", "orders.py", "--port", "0"]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=output, stderr=output)
    try:
        eventually(lambda: "files are watched" in said.read_text(), "it says where the dashboard is", within=PATIENCE)
        introduction = said.read_text()
        assert re.search(r"steps +charge", introduction)
        assert re.search(r"workflows +checkout", introduction)
        place = re.search(r"http://\S+?(?=/\s)", introduction)
        assert place is not None, introduction

        def page(path: str) -> str:
            return httpx.get(f"{place[0]}{path}", timeout=PATIENCE, verify=False).text

        assert "not found" in page("/runs/order-7")
        ordered = subprocess.run(
            [sys.executable, "orders.py"], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=True
        )
        assert ordered.stdout == "receipt for order-7, shipped\n"
        eventually(lambda: "succeeded" in page("/runs/order-7"), "the order is fulfilled", within=PATIENCE)
        assert "receipt for order-7, shipped" in page("/runs/order-7")
        assert "order-7" in page("/runs")
    finally:
        process.terminate()
        process.wait(PATIENCE)
