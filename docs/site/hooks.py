"""Hooks of MkDocs: pages that stand at the root of the repository join the site, and drawings become part of their page.

The same Markdown is read on the site and in the repository, so links keep the form that works in the repository.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
JOINING = {
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "PERFORMANCE.md": "project/performance.md",
    "RELIABILITY.md": "project/reliability.md",
    "SECURITY.md": "project/security.md",
}
"""Pages at the root of the repository, and where they are on the site."""

_LINK = re.compile(r"(\]\()([^)#\s]*)(#[^)\s]*)?(\))")
_DRAWING = re.compile(r'<img alt="(?P<alt>[^"]*)" src="(?P<source>[^"]*drawings/[\w-]+\.svg)" ?/?>')


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root."""
    for name, place in JOINING.items():
        files.append(File.generated(config, place, content=(ROOT / name).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Turn links between the root and docs/ into links of the site."""
    places = {place: name for name, place in JOINING.items()}
    here = places.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def moved(link: re.Match[str]) -> str:
        target = link[2]
        if not target or "://" in target or target.startswith("mailto:"):
            return link[0]
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
        place = JOINING.get(wanted) or (wanted.removeprefix("docs/") if wanted.startswith("docs/") else None)
        if place is None:
            return link[0]
        there = posixpath.relpath(place, posixpath.dirname(page.file.src_uri) or ".")
        return f"{link[1]}{there}{link[3] or ''}{link[4]}"

    return _LINK.sub(moved, markdown)


def on_page_content(html: str, **_: object) -> str:
    """Put drawings into the page itself, so that they take its colours, light or dark."""

    def drawn(image: re.Match[str]) -> str:
        text = (ROOT / "docs" / "drawings" / posixpath.basename(image["source"])).read_text("utf-8")
        return f'<figure class="drawing" role="img" aria-label="{image["alt"]}">{text}</figure>'

    return _DRAWING.sub(drawn, html)
