"""Every Python block in README and docs runs, and runs a second time in the same folder, as readers do with what they try.

Blocks of one page share their names, like cells of a notebook. A block that cannot run stands below a line `<!-- not run: reason -->`. Tracebacks point into the page.

A block that begins with a comment such as `# shop/tasks.py` is that file of a Django project. Such a page runs in a process of its own:
Django can be configured once in a process.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import types
from dataclasses import dataclass
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PAGES = [*sorted(PROJECT.glob("docs/**/*.md")), *sorted(PROJECT.glob("*.md"))]
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*) *$")
_PATCHES = "sentry_sdk.init("
"""Changes threads and the log of its process, for every test after it."""
_FILE = re.compile(r"# (?P<path>[\w/]+\.py)\n")
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


def _run_alone(page: Path, folder: Path) -> None:
    """Write the files of a page, those of a Django project, and run its other blocks beside them in a process."""
    found = blocks(page.read_text("utf-8"))
    is_project = any(_FILE.match(block.text) for block in found)
    lines = ["import django; django.setup()"] if is_project else []
    for block in found:
        if block.language != "python" or block.not_run is not None:
            continue
        if file := _FILE.match(block.text):
            (folder / file["path"]).parent.mkdir(exist_ok=True)
            (folder / file["path"]).write_text(block.text)
        else:
            lines += [""] * (block.line - 1 - len(lines)) + block.text.splitlines()
    (folder / "page.py").write_text("\n".join([*lines, 'print("all of the page was run")', ""]))
    settings = {"DJANGO_SETTINGS_MODULE": "project.settings"} if is_project else {}
    done = subprocess.run(
        [sys.executable, "page.py"],
        cwd=folder,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert "all of the page was run" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0, done.stderr


def _name(page: Path) -> str:
    return str(page.relative_to(PROJECT))


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_the_examples_of_a_page_run_and_run_again(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = blocks(page.read_text("utf-8"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MAINSPRING_URL", f"sqlite:///{tmp_path}/page.db")
    if any(_FILE.match(block.text) or _PATCHES in block.text for block in found):
        for _ in range(2):
            _run_alone(page, tmp_path)
        return
    for _ in range(2):
        module = types.ModuleType(f"page_{page.stem.replace('-', '_')}")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        _execute(page, found, module)


def _execute(page: Path, found: list[Block], module: types.ModuleType) -> None:
    for block in found:
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
    skipped = [(page, block) for page in PAGES for block in blocks(page.read_text("utf-8")) if block.not_run]
    foreign = [block for page, block in skipped if page.parent.name == "coming-from"]
    assert len(skipped) - len(foreign) <= 3
    assert all(block.not_run and block.not_run.startswith("it is written for ") for block in foreign)


def test_every_guide_works_an_example() -> None:
    for page in (PROJECT / "docs" / "coming-from").glob("[!R]*.md"):
        text = page.read_text("utf-8")
        assert {"## Words", "## Different on purpose", "## Worked example"} <= set(text.splitlines()), page.name
        assert any(block.language == "python" and not block.not_run for block in blocks(text)), page.name


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{_name(page)} links to {target}"
