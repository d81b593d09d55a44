"""`mainspring crontab check`: what a file says, and what may not be what was meant."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Mainspring


def checked(mainspring: Mainspring, folder: Path, text: str) -> tuple[str, list[list[str]]]:
    file = folder / "crontab"
    file.write_text(text)
    shown = mainspring("crontab", "check", str(file))
    assert shown.exit_code == 0, shown.stderr
    entries = json.loads(mainspring("crontab", "check", str(file), "-o", "json").stdout)
    return shown.stderr, [entry["warnings"] for entry in entries]


@pytest.mark.parametrize(
    ("pattern", "here", "elsewhere"),
    [
        ("0 4 */10 * *", "10,20,30 here", "1,11,21,31"),
        ("0 4 1 */4 *", "4,8,12 here", "1,5,9"),
    ],
)
def test_a_divisor_of_dates_or_months_gets_a_warning(
    mainspring: Mainspring, tmp_path: Path, pattern: str, here: str, elsewhere: str
) -> None:
    said, [[warning]] = checked(mainspring, tmp_path, f"{pattern} tidy\n")
    assert here in warning
    assert elsewhere in warning
    assert warning in said
    assert "1 warnings" in said


def test_divisors_that_all_crons_read_alike_get_none(mainspring: Mainspring, tmp_path: Path) -> None:
    said, warnings = checked(mainspring, tmp_path, "*/5 */2 */1 * */2 tidy\n")
    assert warnings == [[]]
    assert "nothing wrong" in said


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"0 4 * * * tidy\n0 0 30 2 * tidy ?id=never\n", "line 2: identifier: 'never' never fires"),
        (b"\xff\xfe", "cannot be read"),
    ],
)
def test_a_file_that_no_worker_would_take_is_refused(
    mainspring: Mainspring, tmp_path: Path, content: bytes, fault: str
) -> None:
    file = tmp_path / "crontab"
    file.write_bytes(content)
    shown = mainspring("crontab", "check", str(file))
    assert shown.exit_code == 1
    assert f"{file}: {fault}" in shown.stderr


def test_a_dash_reads_stdin(mainspring: Mainspring) -> None:
    shown = mainspring("crontab", "check", "-", "-o", "json", stdin="30 4 * * 1 tidy {a: 1}\n")
    assert (shown.exit_code, [entry["task"] for entry in json.loads(shown.stdout)]) == (0, ["tidy"])
    wrong = mainspring("crontab", "check", "-", stdin="# first\n99 * * * * tidy\n")
    assert (wrong.exit_code, "-: line 2, column 1: minute: 99" in wrong.stderr) == (1, True)
