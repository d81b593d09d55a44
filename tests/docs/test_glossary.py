"""The words of the field: what the glossary says is not used is not used, in prose and in names.

`remaining_words.txt` has the files that still use some, with how many. Numbers there only go down. `python -m tests.docs.test_glossary`
writes the file anew, and prints each place.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = Path(__file__).parents[2]
GLOSSARY = PROJECT / "docs" / "glossary.md"
REMAINING = Path(__file__).with_name("remaining_words.txt")
HEADING = "## Words that are not used"
VENDORED = {"htmx.min.js"}
KINDS = {".py", ".sql", ".html", ".js", ".css", ".md"}
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")


class Use(NamedTuple):
    """A forbidden word in a line of a file."""

    path: str
    line: int
    word: str
    use_instead: str


def forbidden(glossary: str) -> dict[str, str]:
    """Each word that is not used, and what to write instead."""
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", glossary.partition(HEADING)[2], re.MULTILINE)
    return {word: instead for words, instead in rows if words != "not" for word in words.split(", ")}


def uses(text: str, path: str, words: dict[str, str]) -> Iterator[Use]:
    pattern = re.compile(rf"\b(?:{'|'.join(sorted(map(re.escape, words), key=len, reverse=True))})\b")
    for number, line in enumerate(text.splitlines(), 1):
        for found in pattern.finditer(_CAMEL.sub(" ", line).replace("_", " ").lower()):
            yield Use(path, number, found[0], words[found[0]])


def all_uses() -> list[Use]:
    words = forbidden(GLOSSARY.read_text("utf-8"))
    files = [
        *PROJECT.glob("src/**/*"),
        *PROJECT.glob("docs/**/*"),
        *PROJECT.glob("examples/**/*"),
        *PROJECT.glob("*.md"),
    ]
    found: list[Use] = []
    for file in sorted(files):
        if file.suffix in KINDS and file.name not in VENDORED and file != GLOSSARY:
            found += uses(file.read_text("utf-8"), str(file.relative_to(PROJECT)), words)
    return found


def remaining() -> Counter[str]:
    lines = REMAINING.read_text("utf-8").splitlines() if REMAINING.exists() else []
    return Counter({path: int(count) for count, path in (line.split(" ", 1) for line in lines)})


def test_no_file_uses_more_forbidden_words_than_it_did() -> None:
    found, allowed = all_uses(), remaining()
    count = Counter(use.path for use in found)
    over = {path for path in count if count[path] > allowed[path]}
    lines = [f"{use.path}:{use.line}: not {use.word!r} but {use.use_instead}" for use in found if use.path in over]
    assert not lines, "\n".join(lines)


def test_the_glossary_forbids_words_and_defines_none_of_them() -> None:
    text = GLOSSARY.read_text("utf-8")
    words = forbidden(text)
    assert len(words) > 30
    assert not list(uses(text.partition(HEADING)[0], "glossary", words))


def test_a_forbidden_word_is_found_in_prose_and_in_names() -> None:
    words = {"in hand": "owned", "lane": "path", "told": "notified"}
    found = [use.word for use in uses("self.in_hand = SlowLane()  # Told\nplane, bold, lanes\n", "x.py", words)]
    assert found == ["in hand", "lane", "told"]


if __name__ == "__main__":
    found = all_uses()
    REMAINING.write_text(
        "".join(f"{count} {path}\n" for path, count in sorted(Counter(use.path for use in found).items()))
    )
    for use in found:
        print(f"{use.path}:{use.line}: not {use.word!r} but {use.use_instead}")  # noqa: T201
