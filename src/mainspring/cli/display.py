"""Times, values and tables for people."""

from __future__ import annotations

import io
import json
import shutil
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click
import msgspec

from mainspring.cli.commands import colour_wanted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

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
_WIDE = 1_000


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print columns. On a terminal they fit it; elsewhere nothing is cut or wrapped."""
    from rich.console import Console  # noqa: PLC0415  (slow to import, and few commands print tables)
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    terminal = sys.stdout.isatty()
    made = Table(*head, box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for column in made.columns:
        column.no_wrap = not terminal or column is made.columns[0]
        column.overflow = "fold" if terminal else "ignore"
    for row in rows:
        made.add_row(*(Text(cell, style=COLOURS.get(cell, "")) for cell in row))
    width = shutil.get_terminal_size().columns if terminal else _WIDE
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal, no_color=colour_wanted() is False)
    with console.capture() as captured:
        console.print(made)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def as_json(value: Any) -> None:
    """Print a value as JSON; times are RFC 3339."""
    click.echo(json.dumps(msgspec.to_builtins(value), indent=2, ensure_ascii=False))


def compact(value: Any) -> str:
    """A JSON value on one line."""
    return json.dumps(value, ensure_ascii=False)


def ago(moment: datetime, now: datetime) -> str:
    """How far a time is from now, in words."""
    delta = now - moment
    return f"{span(delta)} ago" if delta.total_seconds() >= 0 else f"in {span(-delta)}"


def span(length: timedelta) -> str:
    """A length of time in its two largest units."""
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
    """A number of seconds in its two largest units."""
    return span(timedelta(seconds=length))


def at(moment: datetime, now: datetime) -> str:
    """A time, absolute and relative."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC ({ago(moment, now)})"
