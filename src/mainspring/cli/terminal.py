"""Escape control characters in untrusted text before it is printed to a terminal.

An exception's message, a step's name or an attribute may come from a customer. Control characters in it could wipe the screen, set
the title or write the clipboard. Bidirectional ones could make a line read as another.
"""

from __future__ import annotations

import logging
import re
import sys
from typing import Any

import click

_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_IN_LINES = re.compile(f"[{_CONTROLS}]")
_IN_A_LINE = re.compile(f"[\t\n{_CONTROLS}]")
_NOT_STYLES = re.compile(f"\x1b\\[[0-9;]*m|[{_CONTROLS}]")
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


def safe(text: str) -> str:
    """Escape an untrusted text that is part of a line."""
    return _IN_A_LINE.sub(_escape, text)


def safe_lines(text: str) -> str:
    """Escape an untrusted text that may have several lines."""
    return _IN_LINES.sub(_escape, text)


def safe_json(text: str) -> str:
    """Escape control characters in JSON that JSON itself does not escape."""
    return _IN_LINES.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def echo(text: str = "", **how: Any) -> None:
    """Print a line with styles. Untrusted texts in it are already escaped by `safe`, and this escapes what was missed."""
    click.echo(_NOT_STYLES.sub(lambda found: found[0] if len(found[0]) > 1 else _escape(found), text), **how)


def data(text: str) -> None:
    """Print a line that another program may read: exactly, except on a terminal."""
    click.echo(safe_lines(text) if is_terminal() else text)


def is_terminal() -> bool:
    """Whether stdout is a terminal. It may be closed."""
    return sys.stdout is not None and sys.stdout.isatty()


class SafeFormatter(logging.Formatter):
    """Formats log lines with tracebacks for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return safe_lines(super().format(record))


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    code = ord(character)
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
