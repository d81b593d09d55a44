"""Format times, values and tables for the terminal."""

from __future__ import annotations

import json
import shutil
import textwrap
import unicodedata
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from mainspring.cli.commands import note
from mainspring.cli.terminal import data, echo, is_terminal, safe, safe_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

T = TypeVar("T")

COLOURS = {
    "scheduled": "cyan",
    "queued": "cyan",
    "running": "blue",
    "waiting": "blue",
    "cancelling": "yellow",
    "succeeded": "green",
    "failed": "red",
    "cancelled": "yellow",
    "stranded": "red",
    "ok": "green",
    "look": "yellow",
    "wrong": "red",
}
_GAP = "  "
_INDENT = "    "
_ROOM_FOR_WORDS = 24


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print columns. On a terminal they are fitted to its width without breaking ids or words. Elsewhere nothing is cut or wrapped.

    Columns that do not fit beside the others are printed below them, indented.
    """
    lines = [[safe(cell) for cell in row] for row in (head, *rows)]
    widths = [max(cell_len(row[at]) for row in lines) for at in range(len(head))]
    width = shutil.get_terminal_size().columns if is_terminal() else None
    words = max(cell_len(word) for row in lines for word in (row[-1].split() or [""]))
    beside = len(head) if width is None else _fitting(widths, max(words, _ROOM_FOR_WORDS), width)
    for number, row in enumerate(lines):
        style: Callable[[str], str] = _head if number == 0 else coloured
        for line in _laid_out(row, widths, beside, width, style):
            echo(line.rstrip())


def _fitting(widths: Sequence[int], words: int, width: int) -> int:
    """Return how many columns fit beside one another. The last one may be wrapped, if there is room for its words."""
    taken = 0
    for at, each in enumerate(widths):
        last = at == len(widths) - 1
        if at and taken + (min(each, words) if last else each) > width:
            return at
        taken += each + len(_GAP)
    return len(widths)


def _laid_out(
    row: Sequence[str], widths: Sequence[int], beside: int, width: int | None, style: Callable[[str], str]
) -> Iterator[str]:
    whole = beside == len(row)
    left = "".join(
        style(cell) + " " * (size - cell_len(cell)) + _GAP for cell, size in zip(row[:-1], widths, strict=False)
    )
    if whole and width is None:
        yield left + style(row[-1])
    elif whole:
        taken = sum(size + len(_GAP) for size in widths[:-1])
        first, *more = _wrapped(row[-1], (width or 0) - taken)
        yield left + style(first)
        for line in more:
            yield " " * taken + style(line)
    else:
        yield _GAP.join(
            style(cell) + " " * (size - cell_len(cell)) for cell, size in zip(row[:beside], widths, strict=False)
        )
        rest = _GAP.join(cell for cell in row[beside:] if cell)
        for line in _wrapped(rest, (width or 0) - len(_INDENT)) if rest else ():
            yield _INDENT + style(line)


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, 1), break_on_hyphens=False) or [""]


def _head(text: str) -> str:
    return click.style(text, dim=True) if text else text


def coloured(text: str) -> str:
    return click.style(text, fg=COLOURS[text]) if text in COLOURS else text


def cell_len(text: str) -> int:
    """Return how many terminal columns a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text
    )


def as_json(value: Any) -> None:
    """Print a value as JSON. Times are RFC 3339."""
    click.echo(safe_json(json.dumps(msgspec.to_builtins(value), indent=2, ensure_ascii=False)))


def as_jsonl(values: Iterable[Any]) -> None:
    """Print values as JSON, one per line."""
    for value in values:
        click.echo(safe_json(json.dumps(msgspec.to_builtins(value), ensure_ascii=False)))


def listing(
    output: str,
    found: Sequence[T],
    *,
    page: Any = None,
    name: Callable[[T], str | None] = str,
    head: Sequence[str],
    row: Callable[[T], Sequence[str]],
    none: str,
) -> None:
    """Print a list as `-o` says, or the note `none` instead of an empty table.

    `page` is the page that it is part of: JSON has all of it, and a note names the next one. `name` makes the lines of `-o ids`.
    """
    if output == "json":
        as_json(found if page is None else page)
    elif output == "jsonl":
        as_jsonl(found)
    elif output == "ids":
        for each in found:
            if (given := name(each)) is not None:
                data(given)
    elif found:
        table(head, map(row, found))
    else:
        note(none)
    if page is not None and page.next:
        note(f"there are more: --after {page.next}")


def plural(count: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def compact(value: Any) -> str:
    """Return a JSON value on one line."""
    return json.dumps(value, ensure_ascii=False)


def ago(moment: datetime, now: datetime) -> str:
    """Return the distance of a time from now, as text."""
    delta = now - moment
    return f"{span(delta)} ago" if delta.total_seconds() >= 0 else f"in {span(-delta)}"


def briefly(moment: datetime, now: datetime) -> str:
    """Return the distance of a time from now in one unit, for lists."""
    number, unit, *_ = span(abs(now - moment)).split()
    return f"{number} {unit} ago" if now >= moment else f"in {number} {unit}"


def span(length: timedelta) -> str:
    """Return a duration in its two largest units."""
    seconds = length.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86_400)
    if minutes < 60:
        return f"{minutes} min {int(seconds) % 60} s"
    if hours < 24:
        return f"{hours} h {minutes % 60} min"
    return f"{days} d {hours % 24} h"


def seconds(length: float) -> str:
    """Return a number of seconds in its two largest units."""
    return span(timedelta(seconds=length))


def at(moment: datetime, now: datetime) -> str:
    """Return a time, absolute and relative."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC ({ago(moment, now)})"
