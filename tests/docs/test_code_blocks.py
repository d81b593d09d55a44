"""Every Python block in README and docs runs. Blocks of one page share their names, like cells of a notebook.

A block that cannot run stands below a line `<!-- not run: reason -->`. Tracebacks point into the page.
"""

from __future__ import annotations

import re
import sys
import types
from dataclasses import dataclass
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PAGES = [*sorted(PROJECT.glob("docs/**/*.md")), PROJECT / "README.md"]
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*) *$")
_NOT_RUN = re.compile(r"^<!-- not run: (?P<reason>.+) -->$")


@dataclass(frozen=True)
class Block:
    """A block of a page: its text, and the line of the page on which it begins."""

    language: str
    text: str
    line: int
    not_run: str | None


def blocks(page: str) -> list[Block]:
    """All fenced blocks of a page."""
    found: list[Block] = []
    language: str | None = None
    start, lines = 0, page.splitlines()
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        if fence is None:
            continue
        if language is None:
            language, start = fence["language"], number + 1
        else:
            mark = _NOT_RUN.match(lines[start - 2]) if start >= 2 else None
            text = "\n".join(lines[start:number]) + "\n"
            found.append(Block(language, text, start + 1, mark["reason"] if mark else None))
            language = None
    return found


def _name(page: Path) -> str:
    return str(page.relative_to(PROJECT))


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MAINSPRING_URL", f"sqlite:///{tmp_path}/page.db")
    module = types.ModuleType(f"page_{page.stem.replace('-', '_')}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for block in blocks(page.read_text("utf-8")):
        if block.language == "python" and block.not_run is None:
            text = block.text.replace('if __name__ == "__main__":', "if True:")  # a page is run, not imported
            code = compile("\n" * (block.line - 1) + text, str(page), "exec")
            exec(code, module.__dict__)


def test_the_blocks_of_a_page_are_found_with_their_lines() -> None:
    page = "# A page\n\n```python\none = 1\n```\n\n<!-- not run: why -->\n```python\ntwo\n```\n```ini\nthree\n```\n"
    assert blocks(page) == [
        Block("python", "one = 1\n", 4, None),
        Block("python", "two\n", 9, "why"),
        Block("ini", "three\n", 12, None),
    ]


def test_few_blocks_are_not_run() -> None:
    skipped = [block for page in PAGES for block in blocks(page.read_text("utf-8")) if block.not_run]
    assert len(skipped) <= 2


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{_name(page)} links to {target}"
