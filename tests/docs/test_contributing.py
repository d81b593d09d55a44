"""The walk of a step in CONTRIBUTING.md leads through files and names that are there."""

from __future__ import annotations

import re
from pathlib import Path

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "CONTRIBUTING.md").read_text("utf-8")
WALK = PAGE.partition("## The walk of a step")[2].partition("\n## ")[0]


def test_the_walk_of_a_step_names_what_is_there() -> None:
    stations = re.findall(r"`([a-z_/]+\.py)`(?: `([\w.]+)`)?", WALK)
    assert len(stations) >= 10
    for path, name in stations:
        text = (PROJECT / "src" / "mainspring" / path).read_text("utf-8")
        for part in name.split(".") if name else ():
            assert re.search(rf"^ *(?:async )?(?:def|class) {part}\b", text, re.MULTILINE), f"{path} has no {part}"


def test_the_page_stays_short() -> None:
    assert len(PAGE.splitlines()) <= 100
    assert len((PROJECT / "README.md").read_text("utf-8").splitlines()) <= 150


def test_every_target_that_the_page_names_is_one() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:^    |`)make ([a-z-]+)", PAGE, re.MULTILINE))
    assert {"quick", "test", "check", "simulate"} <= named
    assert named - targets == set()
