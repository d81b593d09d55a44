"""What people install: the wheel has everything that the library reads at run time, and nothing else.

The wheel is built by the build backend itself, in this process; `make build` does it as a release does.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

PROJECT = Path(__file__).parents[2]
SOURCE = PROJECT / "src"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    (built,) = WheelBuilder(str(PROJECT)).build(directory=str(folder), versions=["standard"])
    return zipfile.ZipFile(built)


def _in_source(pattern: str) -> set[str]:
    return {str(file.relative_to(SOURCE)) for file in SOURCE.glob(pattern) if "__pycache__" not in file.parts}


@pytest.mark.parametrize(
    "pattern",
    [
        "mainspring/py.typed",
        "mainspring/web/static/*",
        "mainspring/web/templates/*.html",
        "mainspring/store/**/*.sql",
        "mainspring/**/*.py",
    ],
)
def test_the_wheel_has_what_the_library_reads(wheel: zipfile.ZipFile, pattern: str) -> None:
    wanted = _in_source(pattern)
    assert wanted, f"nothing in src is called {pattern}"
    assert wanted <= set(wheel.namelist())


def test_the_wheel_has_nothing_else(wheel: zipfile.ZipFile) -> None:
    others = {name for name in wheel.namelist() if not name.startswith("mainspring-")}
    assert others <= _in_source("mainspring/**/*")


def test_the_wheel_says_what_it_is(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    text = wheel.read(name).decode()
    assert "Name: mainspring\n" in text
    assert "Requires-Python: >=3.11\n" in text
    assert "License-Expression: Apache-2.0\n" in text
    assert "Description-Content-Type: text/markdown\n" in text
    (commands,) = (name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt"))
    assert "mainspring = mainspring.cli.main:main" in wheel.read(commands).decode()
