"""Pages about the project name files, functions, targets and budgets that are there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from bench.run import BUDGETS

PROJECT = Path(__file__).parents[2]
PAGES = sorted([*PROJECT.glob("*.md"), PROJECT / "docs" / "design.md", *(PROJECT / "docs" / "reference").glob("*.md")])
_ROOTS = (PROJECT, PROJECT / "src" / "mainspring")
_NAMED = re.compile(r"`([\w./-]+/[\w.-]*)`(?: `([A-Za-z_][\w.]*)`)?")
"""A path with a slash, and the name of what is in it, if that follows."""
_IN = re.compile(r"`([A-Za-z_][\w.]*)` in `([\w/]+\.py)`")


def _file(named: str) -> Path | None:
    return next((root / named for root in _ROOTS if (root / named).exists()), None)


def _is_ours(named: str) -> bool:
    """Whether a path begins in the repository or in the package: other ones belong to the reader."""
    return any((root / named.partition("/")[0]).is_dir() for root in _ROOTS)


def _has(path: Path, name: str) -> bool:
    text = path.read_text("utf-8")
    return all(re.search(rf"^ *(?:async )?(?:def|class) {part}\b", text, re.MULTILINE) for part in name.split("."))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_files_and_what_is_in_them(page: Path) -> None:
    text = page.read_text("utf-8")
    pairs = [*_NAMED.findall(text), *((path, name) for name, path in _IN.findall(text))]
    named = [(path, name) for path, name in pairs if _is_ours(path)]
    missing = [path for path, _ in named if _file(path) is None]
    missing += [
        f"{name} in {path}"
        for path, name in named
        if name and path.endswith(".py") and (file := _file(path)) is not None and not _has(file, name)
    ]
    assert missing == []
    assert len(named) >= {"CONTRIBUTING.md": 10, "RELIABILITY.md": 20, "PERFORMANCE.md": 5, "design.md": 50}.get(
        page.name, 0
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_targets_of_make(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:^    |`)make ([a-z-]+)", page.read_text("utf-8"), re.MULTILINE))
    assert named - targets == set()
    assert page.name != "CONTRIBUTING.md" or {"quick", "test", "check", "simulate"} <= named


@pytest.mark.parametrize(("page", "between"), [("CONTRIBUTING.md", " · "), ("docs/design.md", "   ")])
def test_the_layers_on_a_page_are_those_that_imports_keep(page: str, between: str) -> None:
    (contract,) = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers = [between.join(re.findall(r"mainspring\.(\w+)", layer)) for layer in contract["layers"]]
    lines = [line.strip() for line in (PROJECT / page).read_text("utf-8").splitlines()]
    first = next(number for number, line in enumerate(lines) if line.startswith(layers[0]))
    named = lines[first : first + len(layers)]
    assert [layer for layer, line in zip(layers, named, strict=True) if not f"{line}  ".startswith(f"{layer}  ")] == []


def test_pages_stay_short() -> None:
    for name, most in (("CONTRIBUTING.md", 100), ("README.md", 150)):
        assert len((PROJECT / name).read_text("utf-8").splitlines()) <= most


def _row(what: str) -> str:
    page = (PROJECT / "docs" / "design.md").read_text("utf-8").partition("## Performance budgets")[2]
    found: list[str] = re.findall(rf"^\| {re.escape(what)} \| (.*) \|$", page, re.MULTILINE)
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize(
    ("row", "figure"),
    [
        ("a step of an async run", "step, async run"),
        ("a step of a `def` run", "step, def run"),
        ("start, one step, finish", "start + step + finish"),
        ("steps of 1,000 concurrent runs", "concurrent steps"),
        ("runs through one queue", "queued runs"),
        ("recovery of 500 interrupted runs", "recovery of 500 runs"),
        ("a tick on an idle machine", "lateness of a tick"),
        ("`import mainspring`", "import"),
    ],
)
def test_the_budgets_on_the_page_are_those_that_are_measured(row: str, figure: str) -> None:
    text = _row(row).replace("a tenth", "0.1")
    limits = [each.at_most if each.at_most is not None else each.at_least for each in BUDGETS if each.what == figure]
    assert limits
    assert [limit for limit in limits if not re.search(rf"(?<![\d.]){limit:g}(?![\d.]\d)", text)] == []
